"""Recording many turns at once: those that waited together are written table by table.

By itself a turn takes ten statements, and between them the interpreter and the database push each
other out of the processor's caches. So turns that simply go on where their session stands are
written together; all others are left to be done by themselves. If anything fails, the group commit
does each by itself, which tells whose fault it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace as Row
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import asdict, replace

from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads as sessions
from agents_ledger.ledger.sessions.heads import Pointer
from agents_ledger.ledger.turns import recording
from agents_ledger.ledger.turns.recording import PreparedTurn
from agents_ledger.ledger.turns.threads import TurnPlace
from agents_ledger.model.errors import Conflict
from agents_ledger.model.turns import Turn, to_json
from agents_ledger.store import rows
from agents_ledger.store.database import Transaction

_POINTER = len(Pointer._fields)
_PLACE = len(TurnPlace.__struct_fields__)


class RecordTurn:
    """A turn to be recorded, by itself or together with others."""

    __slots__ = ("prepared",)

    def __init__(self, prepared: PreparedTurn) -> None:
        self.prepared = prepared

    def __call__(self, tx: Transaction) -> Turn:
        """By itself."""
        return recording.record(tx, self.prepared)

    def together(self, tx: Transaction, works: Sequence[RecordTurn], /) -> list[Turn | None]:
        """The turns of those that could be; None for the others."""
        written = _write(tx, list(_standing(tx, works)))
        return [written.get(work.prepared.id) for work in works]

    def is_simple(self) -> bool:
        """Whether it is a finished turn that says nothing of its session, its thread or others."""
        new = self.prepared.new
        return not (
            self.prepared.chosen
            or new.status != "completed"
            or new.compaction is not None
            or new.config is not None
            or new.system_prompt is not None
            or new.thread_key is not None
            or any(call.spawned_session_label is not None for call in self.prepared.turn.tool_calls)
        )


class _Standing(NamedTuple):
    """A turn, and where the session stands that goes on with it."""

    prepared: PreparedTurn
    session: Pointer
    place: TurnPlace
    has_children: bool


def _standing(tx: Transaction, works: Sequence[RecordTurn]) -> Iterator[_Standing]:
    """Of each session, and of sessions at the same turn, the first to go on, if it is simple and
    the session can go on without a fork."""
    names = list(dict.fromkeys(work.prepared.new.session for work in works))
    if not all(name.isprintable() for name in names):  # others are stored in another form
        return
    found = {row[0]: row[1:] for row in tx.run("standing_sessions", ids=to_json(names))}
    heads = set()
    for work in works:
        row = found.get(work.prepared.new.session)
        if row is None:
            continue
        session = Pointer(*row[:_POINTER])
        is_first = session.thread_id not in heads
        heads.add(session.thread_id)
        if is_first and work.is_simple() and work.prepared.new.parent in (UNSET, session.thread_id):
            place = TurnPlace(*row[_POINTER : _POINTER + _PLACE])
            yield _Standing(work.prepared, session, place, bool(row[-1]))


def _write(tx: Transaction, standing: Sequence[_Standing]) -> dict[str, Turn]:
    """All that recording.record() writes, table by table; the turns by their ids."""
    if not standing:
        return {}
    turns = [
        replace(
            each.prepared.turn,
            parent_turn_id=each.session.thread_id,
            depth=each.place.depth + 1,
        )
        for each in standing
    ]
    tx.run_many(
        "insert_turn",
        [
            Row(**rows.turn_row(turn, each.prepared.request_hash))
            for turn, each in zip(turns, standing, strict=True)
        ],
    )
    recording.write_messages(tx, [message for turn in turns for message in turn.messages])
    calls = [call for turn in turns for call in turn.tool_calls]
    if calls:
        tx.run_many("insert_tool_call", calls)
    parents = [Row(id=each.session.thread_id) for each in standing if not each.has_children]
    if parents:
        tx.run_many("mark_native_parent", parents)
    places = [
        Row(
            turn_id=turn.id,
            **asdict(recording.place_below(each.place, each.prepared, each.session)),
        )
        for turn, each in zip(turns, standing, strict=True)
    ]
    if tx.run_many("insert_place", places) != len(places):
        raise Conflict("a turn took another's place while both were written")
    index_queue.written(tx, turns)
    sessions.move_heads(
        tx, [(each.session.label, each.session.thread_id, each.prepared.id) for each in standing]
    )
    return {turn.id: turn for turn in turns}
