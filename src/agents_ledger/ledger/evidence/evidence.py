"""The verbs of evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.evidence import checkpoints, derivation, proofs, verification
from agents_ledger.ledger.evidence.checkpoints import Latest
from agents_ledger.ledger.evidence.signers import SignerFile
from agents_ledger.ledger.face import Face
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.evidence.signed_note import Checkpoint, PublicKey
from agents_ledger.model.evidence.verification import EvidenceFinding, Verification


class Evidence:
    """Checkpoints of a ledger, and who signs them on this machine."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def signer(self) -> SignerFile | None:
        """None: this machine takes no checkpoints of this ledger."""
        return checkpoints.signer_of(self._core)

    def set_up(
        self,
        destination: str | None = None,
        *,
        every_leaves: int | None = None,
        every_seconds: int | None = None,
    ) -> SignerFile:
        """From now on take checkpoints when the ledger is closed, after a number of leaves or
        seconds, and append them to a file or post them to an address. None keeps a setting."""
        return checkpoints.set_up(
            self._core, destination, every_leaves=every_leaves, every_seconds=every_seconds
        )

    def checkpoint(self) -> Checkpoint | None:
        """Take a checkpoint now; None if nothing was added since the last."""
        return checkpoints.take(self._core, self._set_up())

    @property
    def latest(self) -> Latest:
        """The last checkpoint that was taken, on whichever machine."""
        return self._core.db.read(checkpoints.latest)

    def statement(self, proof: Mapping[str, Any]) -> bytes:
        """A proof as a signed statement (COSE_Sign1), for transparency services."""
        return proofs.signed_statement(proof, self._set_up())

    def new_key(self) -> SignerFile:
        """Sign with a new key from now on."""
        return checkpoints.rotate(self._core, self._set_up())

    def copy_sources(self, new: Face) -> None:
        """Copy the source records into a new ledger, as if nothing had been derived yet."""
        derivation.copy_sources(self._core, new._core)

    def differences(self, derived: Face) -> tuple[EvidenceFinding, ...]:
        """How imported turns differ from those of a ledger that was derived from their records."""
        return derivation.differences(self._core, derived._core)

    def _set_up(self) -> SignerFile:
        signer = self.signer
        if signer is None:
            raise NotFound(
                "this machine takes no checkpoints of this ledger",
                "Choose where they go: agents-ledger checkpoint --to FILE",
            )
        return signer


def verify(
    core: Core, checkpoint_file: str | None = None, *, keys: Sequence[str] = ()
) -> Verification:
    """Verify everything, on one snapshot: against the checkpoints of a file, those in the file that
    they are appended to on this machine, and those in the ledger."""
    signer = checkpoints.signer_of(core)
    known_keys = [*map(PublicKey.parse, keys), *(signer.keys if signer else ())]
    identity = core.db.read(checkpoints.ledger_id)
    outside: list[Checkpoint] = []
    if checkpoint_file is not None:
        outside += _of_ledger(checkpoints.read_file(checkpoint_file, known_keys), identity)
    if signer is not None and signer.destination and Path(signer.destination).is_file():
        of_file = checkpoints.read_file(signer.destination, known_keys)
        outside += [checkpoint for checkpoint in of_file if checkpoint.origin == signer.origin]
    sources = Sources(core)
    with core.db.snapshot():
        return core.db.read(
            lambda tx: verification.verify(
                tx, sources, list(dict.fromkeys([*outside, *checkpoints.kept(tx, known_keys)]))
            )
        )


def _of_ledger(found: list[Checkpoint], identity: str | None) -> list[Checkpoint]:
    """The checkpoints of this ledger. A file of one log is taken to be that of this ledger: who
    rolled it back may have taken its id away, too."""
    own = [checkpoint for checkpoint in found if checkpoint.origin == f"agents-ledger/{identity}"]
    if own:
        return own
    origins = {checkpoint.origin for checkpoint in found}
    if len(origins) > 1:
        raise Refused(
            f"none of these checkpoints is of this ledger, but of {', '.join(sorted(origins))}",
            "Name a file with the checkpoints of one ledger.",
        )
    return found
