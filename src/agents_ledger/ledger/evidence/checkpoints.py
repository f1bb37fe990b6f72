"""Checkpoints: signed statements of how long the log is and what its root is.

Each is kept in the ledger, and appended to a file or posted to an address outside of it. Whoever
has one of these can tell whether the ledger was rewritten or rolled back since.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.evidence import leaves, signers
from agents_ledger.ledger.evidence.leaves import sequence
from agents_ledger.ledger.evidence.signers import SignerFile
from agents_ledger.model.errors import Refused, StoreUnavailable
from agents_ledger.model.evidence.merkle import Peaks
from agents_ledger.model.evidence.signed_note import (
    Checkpoint,
    PublicKey,
    Signer,
    checkpoint_text,
    checkpoints_of,
    signed,
)
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.store.database import Transaction
from agents_ledger.store.files import append_durably

LEDGER_SETTING = "evidence.ledger"  # the id of the ledger in its checkpoints
POST_SECONDS = 10.0
_SCHEMES = ("http://", "https://")


class Latest(NamedTuple):
    size: int
    peaks: bytes
    note: str
    taken_at: int


NO_CHECKPOINT = Latest(0, b"", "", 0)


def latest(tx: Transaction) -> Latest:
    rows = tx.run("latest_checkpoint")
    return Latest(*rows[0]) if rows else NO_CHECKPOINT


def ledger_id(tx: Transaction) -> str | None:
    rows = tx.run("setting", name=LEDGER_SETTING)
    return rows[0][0] if rows else None


def signer_of(core: Core) -> SignerFile | None:
    """Who signs checkpoints of this ledger here; None: nobody was asked to."""
    identity = core.db.read(ledger_id)
    return None if identity is None else signers.load(identity)


def set_up(
    core: Core,
    destination: str | None,
    *,
    every_leaves: int | None,
    every_seconds: int | None,
) -> SignerFile:
    """From now on, this machine takes checkpoints of the ledger, and sends them to a file or an
    address. What is None stays as it is."""
    if destination is not None and not destination.startswith(_SCHEMES):
        destination = str(Path(destination).absolute())
    core.recover_if_due()
    identity = core.db.write(_identify)
    file = signers.load(identity)
    if file is None:
        file = signers.new(identity)
        core.db.write(partial(_note_key, key=file.signer.public, former=None))
    file = msgspec.structs.replace(
        file,
        destination=destination or file.destination,
        every_leaves=every_leaves or file.every_leaves,
        every_seconds=every_seconds or file.every_seconds,
    )
    file.save()
    core.watch_evidence()
    return file


def _identify(tx: Transaction) -> str:
    identity = ledger_id(tx)
    if identity is None:
        identity = new_id()
        tx.run("set_setting", name=LEDGER_SETTING, value=identity, now=now_ms())
    return identity


def _note_key(tx: Transaction, key: PublicKey, former: PublicKey | None) -> None:
    entry = {"at": now_ms(), "key": str(key), "former": former and str(former)}
    leaves.add_entry(tx, "key", key.name, msgspec.json.encode(entry).decode())


def rotate(core: Core, file: SignerFile) -> SignerFile:
    """Sign with a new key. The first checkpoint after it has the signatures of both."""
    new = signers.rotated(file)
    core.db.write(partial(_note_key, key=new.signer.public, former=file.signer.public))
    # Saved first: a checkpoint by a key that is lost could not be verified here any more.
    new.save()
    take(core, new, also=(file.signer,))
    return new


def take(
    core: Core, file: SignerFile, *, also: Sequence[Signer] = (), deliver: bool = True
) -> Checkpoint | None:
    """Take a checkpoint of what is sequenced; None if nothing was added since the last."""
    while core.db.write(sequence):
        pass
    checkpoint = core.db.write(partial(_take, file=file, also=also))
    if checkpoint is not None and deliver and file.destination is not None:
        send(file.destination, checkpoint.note)
    return checkpoint


def _take(tx: Transaction, file: SignerFile, also: Sequence[Signer]) -> Checkpoint | None:
    last = latest(tx)
    size = tx.run("evidence_size")[0][0]
    if size <= last.size:
        return None
    peaks = Peaks(last.size, last.peaks)
    peaks.add(bytes(row[0]) for row in tx.run("evidence_hashes", after=last.size, upto=size))
    text = checkpoint_text(file.origin, size, peaks.root)
    note = signed(text, (file.signer, *also))
    tx.run("insert_checkpoint", size=size, peaks=bytes(peaks), note=note, taken_at=now_ms())
    return Checkpoint(file.origin, size, peaks.root, note, True)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """What is sent goes where the owner chose."""


def send(destination: str, note: str) -> None:
    """Append a note to a file, or post it."""
    if not destination.startswith(_SCHEMES):
        append_durably(Path(destination), f"{note}\n")
        return
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    request = Request(destination, note.encode(), headers, method="POST")  # noqa: S310
    try:
        build_opener(_NoRedirects).open(request, timeout=POST_SECONDS).close()
    except (URLError, OSError, ValueError) as error:
        raise StoreUnavailable(
            f"the checkpoint was not accepted by {destination}: {error}",
            "It is kept in the ledger; the next one is sent again.",
        ) from error


def kept(tx: Transaction, keys: Sequence[PublicKey]) -> list[Checkpoint]:
    """The checkpoints in the ledger itself."""
    notes = "\n".join(row[0] for row in tx.run("checkpoint_notes"))
    return list(checkpoints_of(notes, keys))


def read_file(path: str, keys: Sequence[PublicKey]) -> list[Checkpoint]:
    """The checkpoints in a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}", "Name a file of checkpoints.") from error
    checkpoints = list(checkpoints_of(text, keys))
    if not checkpoints:
        raise Refused(f"{path} has no checkpoints", "They are appended to the file you chose.")
    return checkpoints
