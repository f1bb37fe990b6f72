"""What the ledger remembers of import requests: answers given, and parts still waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from agents_ledger.ledger.core import Core
from agents_ledger.model.ids import now_ms
from agents_ledger.store.database import Transaction
from agents_ledger.store.rows import to_session

STALE_MS = 7 * 24 * 3600 * 1000  # parts of an upload nobody went on with


class Answered(NamedTuple):
    """A request that was answered."""

    source: str
    mode: str
    request_hash: str
    response_json: str


class Imported(NamedTuple):
    """What is known of a session of a source."""

    fingerprint: str
    label: str
    head: str | None


class Part(Struct, frozen=True):
    """One part of an upload, in the order of its columns."""

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


def answered(core: Core, key: str) -> Answered | None:
    """The answer given to a request of this key."""
    rows = core.db.read(lambda tx: tx.run("import_request", key=key))
    return Answered(*rows[0]) if rows else None


def answer(
    core: Core, key: str, given: Answered, run_id: str, written: Sequence[tuple[str, str]]
) -> Answered:
    """Remember the answer to a request. Of two at once the first stands: that one is returned.

    `written`: provider and session id of every session this run wrote.
    """

    def work(tx: Transaction) -> Answered:
        new = tx.run(
            "insert_import_request", key=key, run_id=run_id, now=now_ms(), **given._asdict()
        )
        if not new:
            return Answered(*tx.run("import_request", key=key)[0])
        for provider, session_id in written:
            tx.run(
                "note_import_run",
                run_id=run_id,
                source=given.source,
                provider=provider,
                session_id=session_id,
            )
        return given

    core.recover_once()
    return core.db.write(work)


def imported(core: Core, source: str, provider: str, session_id: str) -> Imported | None:
    """What is known of a session of a source."""
    rows = core.db.read(
        lambda tx: tx.run("session_import", source=source, provider=provider, session_id=session_id)
    )
    return Imported(*rows[0]) if rows else None


def adoptable(core: Core, hint: str, persona_id: str, label: str) -> bool:
    """Whether a session named by a hint may take what would else stand under `label`. One that
    another session of a source stands under may not: it would be overwritten."""

    def work(tx: Transaction) -> bool:
        if tx.run("session", key=label) or tx.run("imported_under", label=hint):
            return False
        found = tx.run("session_exactly", key=hint)
        hinted = to_session(found[0]) if found else None
        return hinted is not None and (hinted.status, hinted.persona_id) == ("active", persona_id)

    return core.db.read(work)


# -- parts of an upload -----------------------------------------------------------------------


def parts(core: Core, source: str, upload_id: str) -> tuple[Part, ...]:
    """The parts of an upload that have come, in order."""
    rows = core.db.read(lambda tx: tx.run("chunks", source=source, upload_id=upload_id))
    return tuple(Part(*row) for row in rows)


def stage(core: Core, source: str, upload_id: str, part: Part) -> None:
    """Keep a part until the others have come; drop what waited too long."""

    def work(tx: Transaction) -> None:
        now = now_ms()
        tx.run("delete_old_chunks", before=now - STALE_MS)
        tx.run("insert_chunk", source=source, upload_id=upload_id, now=now, **structs.asdict(part))

    core.recover_once()
    core.db.write(work)


def unstage(core: Core, source: str, upload_id: str) -> None:
    """Drop the parts of an upload that was read."""
    core.db.write(lambda tx: tx.run("delete_chunks", source=source, upload_id=upload_id))
