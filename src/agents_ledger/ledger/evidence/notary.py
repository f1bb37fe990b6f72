"""Does in the background what evidence needs besides the transactions that are covered: sequences
leaves on a server, takes checkpoints, and seals what was recorded before."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agents_ledger.ledger.evidence import checkpoints, sealing
from agents_ledger.ledger.evidence.leaves import sequence
from agents_ledger.ledger.evidence.signers import SignerFile
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.ids import now_ms
from agents_ledger.store.database import Transaction

if TYPE_CHECKING:
    from agents_ledger.ledger.core import Core

PAUSE_S = 0.5  # between writes and their sequencing
SEALING_PAUSE_S = 0.05  # other writers go first


class Notary:
    """One per open ledger that needs it."""

    def __init__(self, core: Core, signer: SignerFile | None, *, is_behind: bool) -> None:
        self._core = core
        self._signer = signer
        self._is_behind = is_behind
        self._sequences = core.db.engine == "postgresql"
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._written = 0
        self._taken_at = now_ms()
        if is_behind:
            self._start()

    def written(self) -> None:
        """Called after every write."""
        self._written += 1
        if not self._wake.is_set():
            self._wake.set()
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        with self._guard:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="agents-ledger-evidence", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            if self._is_behind:
                self._closed.wait(SEALING_PAUSE_S)
            else:
                self._wake.wait(self._until_due())
                self._closed.wait(PAUSE_S)
            if self._closed.is_set():
                return
            self._wake.clear()
            try:
                self._work()
            except LedgerError:
                self._closed.wait(PAUSE_S)  # the ledger is busy or away: tried again

    def _until_due(self) -> float | None:
        """Seconds until the next checkpoint; None: there is nothing to wait for."""
        if self._signer is None or not self._written:
            return None
        return max(0.0, self._taken_at / 1000 + self._signer.every_seconds - now_ms() / 1000)

    def _work(self) -> None:
        if self._is_behind:
            self._is_behind = sealing.seal_more(self._core)
        if self._sequences:
            while self._core.db.write(sequence):
                pass
        signer = self._signer
        if signer is not None and self._written:
            elapsed = now_ms() - self._taken_at
            if self._written >= signer.every_leaves or elapsed >= signer.every_seconds * 1000:
                self._take(signer)

    def _take(self, signer: SignerFile) -> None:
        self._written, self._taken_at = 0, now_ms()
        checkpoints.take(self._core, signer)

    def close(self) -> None:
        """Sequence what waits, and take the last checkpoint."""
        with self._guard:
            self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if not self._written:
            return
        if self._signer is not None:
            self._take(self._signer)
        elif self._sequences:
            while self._core.db.write(sequence):
                pass


def needed(core: Core) -> Notary | None:
    """The notary of a ledger that has something for it to do."""

    def look(tx: Transaction) -> tuple[bool, str | None]:
        return sealing.is_behind(tx), checkpoints.ledger_id(tx)

    is_behind, identity = core.db.read(look)
    signer = None
    if identity is not None:
        from agents_ledger.ledger.evidence import signers

        signer = signers.load(identity)
    if is_behind or signer is not None or core.db.engine == "postgresql":
        return Notary(core, signer, is_behind=is_behind)
    return None
