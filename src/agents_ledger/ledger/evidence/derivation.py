"""Compares imported turns with what their source records give when they are derived again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.evidence import stored_content
from agents_ledger.ledger.evidence.canonical import TurnContent
from agents_ledger.model.evidence.verification import EvidenceFinding
from agents_ledger.store.database import Transaction
from agents_ledger.store.tables import copying

TURNS_AT_ONCE = 200
_SOURCES = ("source_files", "source_blocks")


def copy_sources(core: Core, new: Core) -> None:
    """Copy the source records of a ledger into a new one, as if nothing had been derived yet."""

    def fill(reading: Transaction, writing: Transaction) -> None:
        copying.copy(reading, writing, tables=_SOURCES)
        writing.run("derive_all_again")

    core.db.read(lambda reading: new.db.restore(partial(fill, reading)))


def differences(core: Core, derived: Core) -> tuple[EvidenceFinding, ...]:
    """How imported turns differ from those of a ledger that was derived from their records. Turns
    that were continued here are left out: they do not grow with their source any more."""
    return core.db.read(lambda tx: derived.db.read(lambda other: tuple(_differences(tx, other))))


def _differences(tx: Transaction, other: Transaction) -> Iterator[EvidenceFinding]:
    after = ""
    while rows := tx.run("imported_turns", after=after, limit=TURNS_AT_ONCE):
        ids = [row[0] for row in rows]
        after = ids[-1]
        stored = stored_content.read_turns(tx, ids)
        derived = stored_content.read_turns(other, ids)
        for turn_id in ids:
            if turn_id not in derived:
                yield EvidenceFinding("inserted", "turn", turn_id, "no source record has it")
            elif _comparable(stored[turn_id].content) != _comparable(derived[turn_id].content):
                detail = "its source records give another"
                yield EvidenceFinding("changed", "turn", turn_id, detail)
    yield from _missing(tx, other)


def _missing(tx: Transaction, other: Transaction) -> Iterator[EvidenceFinding]:
    after = ""
    while rows := other.run("imported_turns", after=after, limit=TURNS_AT_ONCE):
        ids = [row[0] for row in rows]
        after = ids[-1]
        known = stored_content.read_turns(tx, ids)
        for turn_id in ids:
            if turn_id not in known:
                detail = "its source records have it"
                yield EvidenceFinding("removed", "turn", turn_id, detail)


def _comparable(content: TurnContent) -> object:
    """A turn's content; what hangs on its messages in no order."""
    details = {
        message_id: [sorted(rows, key=repr) for rows in details]
        for message_id, details in content.details.items()
    }
    return content.turn, list(content.messages), list(content.calls), details, content.compaction
