"""Import requests: the answers given to them, and the chunks of unfinished uploads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from agents_ledger.ledger.core import Core
from agents_ledger.model.ids import now_ms
from agents_ledger.store.database import Transaction
from agents_ledger.store.rows import to_session

STALE_MS = 7 * 24 * 3600 * 1000  # after which an unfinished upload is abandoned


class AnsweredRequest(NamedTuple):
    source: str
    mode: str
    request_hash: str
    response_json: str


class SessionImport(NamedTuple):
    fingerprint: str
    label: str
    head: str | None


class UploadChunk(Struct, frozen=True):
    """The columns of a chunk, in their order."""

    chunk_index: int
    chunk_total: int
    mode: str
    run_id: str
    idempotency_key: str
    source_provider: str
    source_session_id: str
    source_session_fingerprint: str
    encoding: str
    payload: str
    persona_id: str | None


class ImportRequests:
    def __init__(self, core: Core) -> None:
        self._core = core

    def answered(self, key: str) -> AnsweredRequest | None:
        """The answer given to the request of an idempotency key."""
        rows = self._core.db.read(lambda tx: tx.run("import_request", key=key))
        return AnsweredRequest(*rows[0]) if rows else None

    def answer(
        self, key: str, answer: AnsweredRequest, run_id: str, written: Sequence[tuple[str, str]]
    ) -> AnsweredRequest:
        """Store the answer to a request; of two concurrent answers the first wins and is returned.

        `written`: provider and session id of every session this run wrote.
        """

        def work(tx: Transaction) -> AnsweredRequest:
            inserted = tx.run(
                "insert_import_request", key=key, run_id=run_id, now=now_ms(), **answer._asdict()
            )
            if not inserted:
                return AnsweredRequest(*tx.run("import_request", key=key)[0])
            for provider, session_id in written:
                tx.run(
                    "note_import_run",
                    run_id=run_id,
                    source=answer.source,
                    provider=provider,
                    session_id=session_id,
                )
            return answer

        self._core.recover_if_due()
        return self._core.db.write(work)

    def imported(self, source: str, provider: str, session_id: str) -> SessionImport | None:
        rows = self._core.db.read(
            lambda tx: tx.run(
                "session_import", source=source, provider=provider, session_id=session_id
            )
        )
        return SessionImport(*rows[0]) if rows else None

    def adoptable(self, hint: str, persona_id: str, label: str) -> bool:
        """Whether an import may go into the session of a hint instead of a new one at `label`.

        A session that holds another import is refused: it would be overwritten.
        """

        def work(tx: Transaction) -> bool:
            if tx.run("session", key=label) or tx.run("imported_under", label=hint):
                return False
            rows = tx.run("session_exactly", key=hint)
            hinted = to_session(rows[0]) if rows else None
            return hinted is not None and (hinted.status, hinted.persona_id) == (
                "active",
                persona_id,
            )

        return self._core.db.read(work)

    # -- chunks of an upload ------------------------------------------------------------------

    def chunks(self, source: str, upload_id: str) -> tuple[UploadChunk, ...]:
        """The chunks of an upload received so far, in order."""
        rows = self._core.db.read(lambda tx: tx.run("chunks", source=source, upload_id=upload_id))
        return tuple(UploadChunk(*row) for row in rows)

    def stage(self, source: str, upload_id: str, chunk: UploadChunk) -> None:
        """Store a chunk until the upload is complete; abandoned uploads are deleted."""

        def work(tx: Transaction) -> None:
            now = now_ms()
            tx.run("delete_old_chunks", before=now - STALE_MS)
            fields = structs.asdict(chunk)
            tx.run("insert_chunk", source=source, upload_id=upload_id, now=now, **fields)

        self._core.recover_if_due()
        self._core.db.write(work)

    def unstage(self, source: str, upload_id: str) -> None:
        self._core.db.write(lambda tx: tx.run("delete_chunks", source=source, upload_id=upload_id))
