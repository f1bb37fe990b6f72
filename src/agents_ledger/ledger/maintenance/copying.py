"""Copies between engines, backups and restores of whole ledgers, each verified."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from agents_ledger.ledger.evidence.leaves import sequence
from agents_ledger.ledger.maintenance import audit
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.turns import live
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


def backup(source: str, file: str) -> Path:
    """Write a verified copy of a ledger to a new file, while others write to the ledger."""
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
        replace_durably(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def restore(file: str, target: str) -> Copied:
    """Create a ledger from a backup, which is verified first."""
    verify(file)
    return copy(file, target)
