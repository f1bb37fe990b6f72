"""Recording many turns at once: those that waited for the same commit are written table by table.

A turn by itself takes ten statements, between which the interpreter and the database evict each
other from the processor's caches. So turns that simply extend their session's thread are written
together, and all others one by one. If anything fails, the group commit runs each by itself, which
shows the failing one. Measured: twice the rate with 64 writers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace as Row
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import asdict, replace

from agents_ledger.ledger.evidence import leaves
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads as sessions
from agents_ledger.ledger.sessions.heads import Pointer
from agents_ledger.ledger.turns import recording
from agents_ledger.ledger.turns.recording import PreparedTurn
from agents_ledger.ledger.turns.threads import TurnPlace
from agents_ledger.model.errors import Conflict
from agents_ledger.model.ids import now_ms
from agents_ledger.model.turns import Turn, to_json
from agents_ledger.store import rows
from agents_ledger.store.database import ServerCall, Transaction

_POINTER = len(Pointer._fields)
_PLACE = len(TurnPlace.__struct_fields__)


class RecordTurn:
    """The work that records a turn, by itself or together with others."""

    __slots__ = ("prepared",)

    def __init__(self, prepared: PreparedTurn) -> None:
        self.prepared = prepared

    def __call__(self, tx: Transaction) -> Turn:
        return recording.record(tx, self.prepared)

    def together(self, tx: Transaction, works: Sequence[RecordTurn], /) -> list[Turn | None]:
        """The recorded turns; None for works that have to run by themselves."""
        written = _write(tx, list(_extensions(tx, works)))
        return [written.get(work.prepared.id) for work in works]

    def is_simple(self) -> bool:
        """Whether the turn completed, and changes nothing of its session or thread."""
        new = self.prepared.new
        return not (
            self.prepared.chosen
            or new.system_prompt is not None
            or new.status != "completed"
            or new.compaction is not None
            or new.config is not None
            or new.thread_key is not None
            or any(call.spawned_session_label is not None for call in self.prepared.turn.tool_calls)
        )

    @property
    def key(self) -> str:
        return self.prepared.new.session

    def call(self, works: Sequence[RecordTurn], /) -> ServerCall | None:
        """record_turns() of functions.postgres.sql for the works it can do."""
        from agents_ledger.ledger.turns import server_recording

        return server_recording.record([work.prepared for work in works])

    def repeat(self, tx: Transaction, /) -> Turn:
        """Record the turn, unless it is recorded already."""
        # First the lock, which a call that is still under way holds.
        sessions.find(tx, self.prepared.new.session)
        return recording.record(tx, self.prepared._replace(chosen=True))


class _Extension(NamedTuple):
    """A turn that extends its session's thread, and the place of the parent."""

    prepared: PreparedTurn
    session: Pointer
    place: TurnPlace
    has_children: bool


def _extensions(tx: Transaction, works: Sequence[RecordTurn]) -> Iterator[_Extension]:
    """The first simple turn of each head that needs no fork."""
    names = list(dict.fromkeys(work.prepared.new.session for work in works))
    # Other names may be stored escaped, and would not be found by the JSON list of names.
    if not all(name.isprintable() for name in names):
        return
    pointers = {row[0]: row[1:] for row in tx.run("standing_sessions", ids=to_json(names))}
    heads = set()
    for work in works:
        row = pointers.get(work.prepared.new.session)
        if row is None:
            continue
        session = Pointer(*row[:_POINTER])
        # Several works of one batch may want the same head. The first takes it, the others have to
        # see the new head and run by themselves.
        is_first = session.thread_id not in heads
        heads.add(session.thread_id)
        if is_first and work.is_simple() and work.prepared.new.parent in (UNSET, session.thread_id):
            place = TurnPlace(*row[_POINTER : _POINTER + _PLACE])
            yield _Extension(work.prepared, session, place, bool(row[-1]))


def _write(tx: Transaction, extensions: Sequence[_Extension]) -> dict[str, Turn]:
    """Write all that recording.record() writes, table by table; returns the turns by id."""
    if not extensions:
        return {}
    turns = [
        replace(
            extension.prepared.turn,
            parent_turn_id=extension.session.thread_id,
            depth=extension.place.depth + 1,
        )
        for extension in extensions
    ]
    tx.run_many(
        "insert_turn",
        [
            Row(**rows.turn_row(turn, extension.prepared.request_hash))
            for turn, extension in zip(turns, extensions, strict=True)
        ],
    )
    recording.write_messages(tx, [message for turn in turns for message in turn.messages])
    calls = [call for turn in turns for call in turn.tool_calls]
    if calls:
        tx.run_many("insert_tool_call", calls)
    parents = [
        Row(id=extension.session.thread_id)
        for extension in extensions
        if not extension.has_children
    ]
    if parents:
        tx.run_many("mark_native_parent", parents)
    places = [
        recording.place_below(extension.place, extension.prepared, extension.session)
        for extension in extensions
    ]
    rows_of_places = [
        Row(turn_id=turn.id, **asdict(place)) for turn, place in zip(turns, places, strict=True)
    ]
    if tx.run_many("insert_place", rows_of_places) != len(places):
        # Undoes the batch: run one by one, the turn that finds its place taken opens a segment.
        raise Conflict("a turn took another's place while both were written")
    index_queue.written(tx, turns)
    now = now_ms()
    sessions.move_heads(
        tx,
        [
            (extension.session.label, extension.session.thread_id, extension.prepared.id)
            for extension in extensions
        ],
        at=now,
    )
    leaves.add_all(tx, list(_leaves(extensions, turns, places, now)))
    return {turn.id: turn for turn in turns}


def _leaves(
    extensions: Sequence[_Extension], turns: Sequence[Turn], places: Sequence[TurnPlace], now: int
) -> Iterator[leaves.Leaf]:
    for extension, turn, place in zip(extensions, turns, places, strict=True):
        covered = recording.covered_place(turn, place, extension.session.label, now)
        sealed = extension.prepared.seal or leaves.seal(turn)
        yield leaves.turn_leaf(turn.id, sealed, covered)
