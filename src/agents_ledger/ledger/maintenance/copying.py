"""Copies between engines, backups and restores of whole ledgers, each verified."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from agents_ledger.ledger.evidence.leaves import sequence
from agents_ledger.ledger.maintenance import audit
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.turns import live
from agents_ledger.model import encryption
from agents_ledger.model.errors import Damaged, Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.text import humanize
from agents_ledger.store.database import Database, Transaction, open_database
from agents_ledger.store.files import new_private_file, replace_durably
from agents_ledger.store.tables import copying as tables


class Copied(NamedTuple):
    rows: dict[str, int]  # by table
    tokens_revoked: int


def copy(source: str, target: str) -> Copied:
    """Copy a ledger into a new one at another address.

    The copy is compared with its source row by row. Live turns are failed in the copy, because
    their writer does not write there. Access tokens are revoked in the copy: a backup may be older
    than the revocation of a token in it.
    """
    origin = open_database(source, create=False, read_only=True)
    try:
        copied = open_database(target)
        try:
            return _fill(origin, copied)
        finally:
            copied.close()
    finally:
        origin.close()


def _fill(origin: Database, copied: Database) -> Copied:
    if any(copied.read(lambda tx: tx.run("counts"))[0]):
        raise Refused(f"{copied.address} is not empty", "Name the file or schema of a new ledger.")

    def fill(reading: Transaction) -> _Filled:
        return copied.restore(partial(_copy, reading=reading))

    source, revoked = origin.read(fill)
    compared = {table: digest.columns for table, digest in source.items()}
    digests = copied.read(partial(tables.digests, compared=compared))
    wrong = [table for table in source if source[table] != digests[table]]
    if source["access_tokens"].rows == digests["access_tokens"].rows:
        # The tokens differ on purpose: the copy has revoked them. Their number must still be the
        # same.
        wrong = [table for table in wrong if table != "access_tokens"]
    if wrong:
        raise Damaged(f"the copy differs from its source in {', '.join(wrong)}", "Copy again.")
    for writer_id, seen_at, _ in copied.read(lambda tx: tx.run("other_writers", id="")):
        copied.write(partial(live.fail_all, writer_id=writer_id, seen_at=seen_at))
    copied.write(lambda tx: tx.run("expect_sealing", now=now_ms()))
    while copied.write(sequence):
        pass
    index_queue.catch_up(copied)
    return Copied({table: digest.rows for table, digest in source.items()}, revoked)


class _Filled(NamedTuple):
    source: dict[str, tables.TableDigest]  # what was read
    tokens_revoked: int


def _copy(writing: Transaction, reading: Transaction) -> _Filled:
    source = tables.copy(reading, writing)
    writing.run("name_tasks_of_messages")  # an older ledger does not
    revoked = writing.run("revoke_all_tokens", now=now_ms())
    writing.run("await_index_all")  # the index is rebuilt
    return _Filled(source, len(revoked))


def verify(address: str) -> None:
    """Refuse a ledger file that is damaged or breaks a rule."""
    db = open_database(address, create=False, read_only=True)
    try:
        findings = db.read(lambda tx: audit.audit(tx, db.engine))
    finally:
        db.close()
    if findings:
        first = findings[0]
        named = f"{first.rule} {first.id} {first.detail}".rstrip()
        raise Damaged(f"{address} is damaged, {humanize.count(len(findings), 'finding')}: {named}")


def backup(source: str, file: str, *, passphrase: str | None = None) -> Path:
    """Write a verified copy of a ledger to a new file, while others write to the ledger.

    With a passphrase, the file is encrypted once it is verified.
    """
    if passphrase is not None:
        encryption.check_available()
    target = Path(file)
    if target.exists():
        raise Refused(f"{target} exists already", "Name a file that does not exist.")
    unfinished = new_private_file(target)
    try:
        db = open_database(source, create=False, read_only=True)
        try:
            saved = db.save_to(unfinished)
        finally:
            db.close()
        if not saved:
            copy(source, str(unfinished))
        # The file gets its name only when it is verified: a damaged backup must not look valid.
        verify(str(unfinished))
        if passphrase is not None:
            _encrypt(unfinished, passphrase)
        replace_durably(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _encrypt(file: Path, passphrase: str) -> None:
    """Replace a file by its encrypted content. The one without encryption is never named."""
    encrypted = new_private_file(file)
    with (
        file.open("rb") as plain,
        encrypted.open("wb") as opened,
        encryption.EncryptingWriter(opened, passphrase) as writer,
    ):
        while data := plain.read(encryption.CHUNK_BYTES):
            writer.write(data)
    replace_durably(encrypted, file)


def restore(file: str, target: str, *, passphrase: str | None = None) -> Copied:
    """Create a ledger from a backup, which is verified first."""
    if passphrase is None:
        verify(file)
        return copy(file, target)
    plain = new_private_file(Path(file))
    try:
        decrypt(file, plain, passphrase)
        verify(str(plain))
        return copy(str(plain), target)
    finally:
        for suffix in ("", "-wal", "-shm"):
            plain.with_name(plain.name + suffix).unlink(missing_ok=True)


def decrypt(file: str, target: Path, passphrase: str) -> None:
    """Write the content of an encrypted file into an empty one."""
    with Path(file).open("rb") as opened, target.open("wb") as plain:
        for data in encryption.decrypted(opened, passphrase):
            plain.write(data)


def is_encrypted(file: str) -> bool:
    """Whether a file is an encrypted backup or export."""
    try:
        with Path(file).open("rb") as opened:
            return encryption.is_encrypted(opened.read(len(encryption.MAGIC)))
    except OSError:
        return False  # reading it reports why
