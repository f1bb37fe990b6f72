"""What Ledger and AsyncLedger share: one database, and recovery before the first write."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.turns import live
from agents_ledger.model.errors import Damaged, LedgerError, StoreUnavailable
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Finding
from agents_ledger.store.database import Database, Work, open_database

if TYPE_CHECKING:
    from agents_ledger.ledger.search.vectors import Filler
    from agents_ledger.model.agents.embedding import Embedder


T = TypeVar("T")
AUDIT_EVERY_MS = 60_000  # at most so often the rules are evaluated to explain an error


class Core:
    """An open ledger."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._guard = threading.Lock()
        self.recovered = False
        self._broken: Finding | None = None
        self._audited_at: int | None = None
        self._writes = 0
        self._filler: Filler | None = None
        self._indexer: threading.Thread | None = None
        self._closed = False

    @classmethod
    def open(cls, address: str, *, create: bool, read_only: bool) -> Core:
        """Open a ledger by its address."""
        return cls(open_database(address, create=create, read_only=read_only))

    def read(self, work: Work[T]) -> T:
        """Do `work`, which only reads. If it stumbles over a row that is missing or makes no sense,
        the rules are evaluated: Damaged, if one is broken; else the error is a bug, and stays."""
        try:
            return self.db.read(work)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            broken = self._broken_rule()
            if broken is None:
                raise
            named = f"{broken.rule} {broken.id} {broken.detail}".rstrip()
            raise Damaged(f"{self.db.address} is damaged: {named}") from error

    def _broken_rule(self) -> Finding | None:
        """The first that the audit finds. It reads everything, so it is not run again and again."""
        from agents_ledger.ledger.maintenance import audit

        now = now_ms()
        if self._audited_at is None or now - self._audited_at > AUDIT_EVERY_MS:
            findings = self.db.read(partial(audit.audit, engine=self.db.engine, quick=True))
            self._broken = findings[0] if findings else None
            self._audited_at = now
        return self._broken

    def recover(self) -> tuple[str, ...]:
        """Fail the turns of writers that died."""
        with self._guard:
            failed = live.recover(self.db)
            self.recovered = True
            return failed

    def recover_once(self) -> None:
        """recover(), unless it was done: called before every write."""
        if not self.recovered:
            self.recover()

    def index_is_due(self) -> bool:
        """Called after every write: whether it is time to look what waits for the index."""
        self._writes += 1
        is_due = self._writes % index_queue.LOOK_EVERY == 0
        if self._filler is not None:
            self._filler.written = True
            if is_due:
                self._fill()
        return is_due

    def _fill(self) -> None:
        if self._filler is not None:
            self._filler.wake()

    def index(self, *, least: int | None = None, steps: int | None = None) -> None:
        """Put what waits into the index, if it fills a batch, or so many batches of it. What was
        written before is stored, whatever comes of this: it is tried again later."""
        with suppress(StoreUnavailable):
            index_queue.catch_up(self.db, least=least or index_queue.BATCH, steps=steps)
        self._fill()

    def index_behind(self) -> None:
        """Put all that waits into the index, in a thread that others can write beside."""
        if self._indexer is not None and self._indexer.is_alive():
            return
        self._indexer = threading.Thread(
            target=self._index_all, name="agents-ledger-index", daemon=True
        )
        self._indexer.start()

    def _index_all(self) -> None:
        with suppress(LedgerError):  # what is left is put in later
            while not self._closed and self.db.write(index_queue.put_in):
                pass

    def embed_behind(self, embedder: Embedder) -> None:
        """From now on give turns their vectors in a thread of its own."""
        from agents_ledger.ledger.search.vectors import Filler

        with self._guard:
            if self._filler is not None:
                self._filler.stop()
            self._filler = Filler(self.db, embedder)

    def rebuild_index(self) -> int:
        """Empty the word index and fill it again; with how many turns."""
        from agents_ledger.ledger.search import index as indexing

        self.recover_once()
        self.db.write(indexing.forget_all)
        index_queue.catch_up(self.db)
        return int(self.db.read(lambda tx: tx.run("indexed_count"))[0][0])

    def close(self) -> None:
        """Close the database, and say that this writer is done."""
        if self._closed:
            return
        self._closed = True
        if self._indexer is not None:
            self._indexer.join()
        if self._filler is not None:
            self._filler.stop()
        try:
            if self.recovered:  # it wrote
                with suppress(LedgerError):
                    index_queue.catch_up(
                        self.db, least=index_queue.CLOSE_FROM, steps=index_queue.CLOSE_STEPS
                    )
            live.retire(self.db)
        finally:
            self.db.close()
