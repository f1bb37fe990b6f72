"""What Ledger and AsyncLedger share: one database, recovery before writes, the index."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.turns import live
from agents_ledger.model.errors import Damaged, LedgerError, StoreUnavailable
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Finding
from agents_ledger.store.database import Database, Work, open_database

if TYPE_CHECKING:
    from agents_ledger.ledger.evidence.notary import Notary
    from agents_ledger.ledger.projection.archive_reader import Edit, TurnRecords
    from agents_ledger.ledger.search.vectors import Filler
    from agents_ledger.model.agents.embedding import Embedder
    from agents_ledger.model.imports.requests import (
        ChunkResponse,
        ImportChunk,
        ImportRequest,
        ImportResponse,
    )
    from agents_ledger.model.imports.sources import Renaming


T = TypeVar("T")
# An unexplained error may start an audit this often: it reads everything, and a bug that raises at
# every call would run one each time.
AUDIT_EVERY_MS = 60_000
SETTING_FRESH_MS = 1000
_MASKING = ([("mask",)], [("redact",)])
SECRETS = "secrets"  # the setting that says what is done about them


class Core:
    def __init__(self, db: Database) -> None:
        self.db = db
        self._guard = threading.Lock()
        self._recovered_at: int | None = None
        self._broken: Finding | None = None
        self._audited_at: int | None = None
        self._writes = 0
        self._filler: Filler | None = None
        self._indexer: threading.Thread | None = None
        self._notary: Notary | None = None
        self._shows = False  # what it reads is shown to people or agents
        self._masks = False
        self._setting_read_at = 0
        self._redactions: int | None = None  # as last counted
        self._redactions_read_at = now_ms()  # nothing is kept yet
        self._closed = False

    @classmethod
    def open(cls, address: str, *, create: bool, read_only: bool) -> Core:
        return cls(open_database(address, create=create, read_only=read_only))

    def read(self, work: Work[T]) -> T:
        """Run `work`, which only reads.

        An error that a missing or malformed row could cause starts an audit: if a rule is broken,
        Damaged is raised; otherwise the error is a bug and is raised as it is.
        """
        self._heed_redactions()
        try:
            return self.as_shown(self.db.read_anywhere(work))
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            broken = self._broken_rule()
            if broken is None:
                raise
            finding = f"{broken.rule} {broken.id} {broken.detail}".rstrip()
            raise Damaged(f"{self.db.address} is damaged: {finding}") from error

    def _heed_redactions(self) -> None:
        """Forget what was read before another process removed something, a second later at most."""
        now = now_ms()
        if abs(now - self._redactions_read_at) > SETTING_FRESH_MS:
            count = self.db.read(lambda tx: tx.run("redactions_count"))[0][0]
            self._redactions_read_at = now
            if count != self._redactions:
                self._redactions = count
                self.db.forget_read()

    def forget_read(self) -> None:
        """Forget what was read: something was removed."""
        self.db.forget_read()

    def show(self) -> None:
        """From now on, what is read is shown to people or agents: secrets in it are masked, if the
        ledger's setting says so."""
        self._shows = True

    def show_again(self) -> None:
        """The setting has changed."""
        self._setting_read_at = 0

    def as_shown(self, value: T) -> T:
        """A value with its secrets masked, if it is for people or agents and set so."""
        if not self._shows or not self._is_set_to_mask():
            return value
        from agents_ledger.model.secrets.masking import masked_value

        return masked_value(value)

    def _is_set_to_mask(self) -> bool:
        """As the ledger was set a second ago."""
        now = now_ms()
        if abs(now - self._setting_read_at) > SETTING_FRESH_MS:
            rows = self.db.read(lambda tx: tx.run("setting", name=SECRETS))
            self._masks, self._setting_read_at = rows in _MASKING, now
        return self._masks

    def write(self, work: Work[T]) -> T:
        """Commit `work`, and now and then what waits for the search index."""
        self.recover_if_due()
        result = self.db.write(work)
        if self.index_is_due():
            self.index(steps=1)
        return result

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        return self.as_shown(self.db.query(sql))

    def _broken_rule(self) -> Finding | None:
        """The first finding of the audit, which reads everything and therefore runs rarely."""
        from agents_ledger.ledger.maintenance import audit

        now = now_ms()
        if self._audited_at is None or now - self._audited_at > AUDIT_EVERY_MS:
            findings = self.db.read(partial(audit.audit, engine=self.db.engine, quick=True))
            self._broken = findings[0] if findings else None
            self._audited_at = now
        return self._broken

    def recover(self) -> tuple[str, ...]:
        """Fail the turns of writers that died; their ids."""
        with self._guard:
            return self._recover()

    @property
    def is_recovery_due(self) -> bool:
        """Whether writers are looked for that died: before the first write, and from time to time
        in a process that lives long, such as a server that was started again at once."""
        if self._recovered_at is None:
            return True
        return abs(now_ms() - self._recovered_at) > self.db.limits.recovery_pause_ms

    def recover_if_due(self) -> None:
        if self.is_recovery_due:
            with self._guard:
                if self.is_recovery_due:
                    self._recover()

    def _recover(self) -> tuple[str, ...]:
        failed = live.recover(self.db)
        if self._notary is None:
            self.watch_evidence()
        self._finish_redactions()
        self._recovered_at = now_ms()
        return failed

    def watch_evidence(self) -> None:
        """Do in the background what evidence needs, if anything: as the ledger is set up now."""
        from agents_ledger.ledger.evidence import notary

        if self._notary is not None:
            self._notary.close()
        self._notary = notary.needed(self)

    def wrote(self) -> None:
        """Called after a write that does not concern the word index."""
        if self._notary is not None:
            self._notary.written()

    def _finish_redactions(self) -> None:
        """What a process that died had removed may still be in free pages."""
        if self.db.read(lambda tx: tx.run("unscrubbed_redactions")):
            from agents_ledger.ledger.maintenance.redaction.redactions import Redactions

            with suppress(StoreUnavailable):
                Redactions(self).finish()

    def index_is_due(self) -> bool:
        """Called after every write: whether to check what waits for the index."""
        self._writes += 1
        self.wrote()
        is_due = self._writes % self.db.limits.index_writes == 0
        if self._filler is not None:
            self._filler.written = True
            if is_due:
                self._fill()
        return is_due

    def _fill(self) -> None:
        if self._filler is not None:
            self._filler.wake()

    def index(self, *, least: int | None = None, steps: int | None = None) -> None:
        """Index at most `steps` batches of what waits, if at least `least` turns do."""
        # The turns are stored already, so the caller's write succeeded; indexing is retried later.
        with suppress(StoreUnavailable):
            index_queue.catch_up(self.db, least=least or self.db.limits.index_turns, steps=steps)
        self._fill()

    def index_in_background(self) -> None:
        """Index everything that waits in a thread, while others write."""
        if self._indexer is not None and self._indexer.is_alive():
            return
        self._indexer = threading.Thread(
            target=self._index_all, name="agents-ledger-index", daemon=True
        )
        self._indexer.start()

    def _index_all(self) -> None:
        with suppress(LedgerError):  # the rest is indexed later
            while not self._closed and self.db.write(index_queue.put_in):
                pass

    def import_sessions(self, request: ImportRequest | Mapping[str, Any]) -> ImportResponse:
        # Here and below higher layers are imported: what is archived is derived by the importers.
        from agents_ledger.importers.requests import import_sessions
        from agents_ledger.ledger.ledger import Ledger

        return import_sessions(Ledger(self), request)

    def import_chunk(self, chunk: ImportChunk | Mapping[str, Any]) -> ChunkResponse:
        from agents_ledger.importers.requests import import_chunk
        from agents_ledger.ledger.ledger import Ledger

        return import_chunk(Ledger(self), chunk)

    def derive_again(self, families: Sequence[tuple[str, str]]) -> None:
        """Derive families of archived files again, each named with its source."""
        if families:
            from agents_ledger.importers.rederiving import derive_again
            from agents_ledger.ledger.ledger import Ledger

            derive_again(Ledger(self), families)

    def renamings(
        self,
        families: Sequence[tuple[str, str]],
        edits: Mapping[int, Sequence[Edit]],
        *,
        compares_steps: bool = False,
    ) -> list[Renaming | None]:
        """What the ids of families would stand for if their files were overwritten so; None for
        a family that would give another tree, or other kinds of steps if these are compared."""
        if not families:
            return []
        from agents_ledger.importers.rederiving import renamings
        from agents_ledger.ledger.ledger import Ledger

        return renamings(Ledger(self), families, edits, compares_steps=compares_steps)

    def records_of_turns(
        self, families: Sequence[tuple[str, str]], turn_ids: frozenset[str]
    ) -> dict[int, TurnRecords]:
        """Which records some turns are made of, by the archived file they are in."""
        if not families:
            return {}
        from agents_ledger.importers.rederiving import records_of_turns
        from agents_ledger.ledger.ledger import Ledger

        return records_of_turns(Ledger(self), families, turn_ids)

    def embed(self, embedder: Embedder, *, behind: bool) -> int:
        from agents_ledger.ledger.search.vectors import Filler, embed

        self.recover_if_due()
        if not behind:
            return embed(self.db, embedder)
        with self._guard:
            if self._filler is not None:
                self._filler.stop()
            self._filler = Filler(self.db, embedder)
        return 0

    def rebuild_index(self) -> int:
        from agents_ledger.ledger.search import index as indexing

        self.recover_if_due()
        self.db.write(indexing.forget_all)
        index_queue.catch_up(self.db)
        return int(self.db.read(lambda tx: tx.run("indexed_count", limit=1 << 62))[0][0])

    def summarise(self) -> int:
        from agents_ledger.ledger.reports import daily_totals

        self.recover_if_due()
        return daily_totals.summarise(self.db)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._indexer is not None:
            # Both threads write: the database may only be closed when they have ended.
            self._indexer.join()
        if self._filler is not None:
            self._filler.stop()
        try:
            # Recovery precedes the first write, so this process has written and may leave turns
            # waiting.
            if self._recovered_at is not None:
                with suppress(LedgerError):
                    index_queue.catch_up(
                        self.db, least=index_queue.CLOSE_FROM, steps=index_queue.CLOSE_STEPS
                    )
            live.retire(self.db)
            if self._notary is not None:
                with suppress(LedgerError):  # leaves that wait are sequenced by the next to write
                    self._notary.close()
        finally:
            self.db.close()
