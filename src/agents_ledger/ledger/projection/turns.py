"""The rows of projected turns: inserted, rewritten in place, and placed in the tree."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from types import SimpleNamespace as Row
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import structs

from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording, threads
from agents_ledger.ledger.turns.threads import TurnPlace
from agents_ledger.model.errors import Conflict
from agents_ledger.model.ids import as_id
from agents_ledger.model.imports.sources import DerivedTurn
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, ToolCall, Turn, Usage, to_json
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import ids_of, in_batches

S = TypeVar("S", Message, ToolCall)
ROW_BYTES = 500  # of a message or call besides its content
RETIRED = "its records belong to another turn now"


class StoredTurn(NamedTuple):
    fingerprint: bytes
    parent_id: str | None
    projected: bool
    frozen: bool
    answer: str | None  # the record that answered it, "" if none did; None: it is pending


class TurnSource(NamedTuple):
    """A turn, and a file it was derived from."""

    turn_id: str
    file_id: int


class Change(NamedTuple):
    derived: DerivedTurn
    turn: Turn
    stored: StoredTurn | None
    owner: str | None = None  # label of the session that is the parent of its subagents
    is_gone: Callable[[Transaction, str], bool] = lambda *_: False  # will it be retired?
    rederived: bool = False  # whether its files were derived before

    @property
    def lost_answer(self) -> str | None:
        """The record that answered it before, if it is pending again."""
        answer = self.stored.answer if self.stored is not None else None
        if answer is None or self.turn.status != "pending":
            return None
        return _record(answer, self.turn.id)


_EMPTY = DerivedTurn("", None, b"", frozenset(), (), lambda: Turn(""))


def stored_turns(tx: Transaction, turn_ids: Sequence[str]) -> dict[str, StoredTurn]:
    stored: dict[str, StoredTurn] = {}
    for ids in in_batches(turn_ids):
        rows = tx.run("known_turns", ids=ids)
        for turn_id, fingerprint, parent_id, projected, frozen, answer in rows:
            stored[turn_id] = StoredTurn(
                bytes(fingerprint or b""), parent_id, bool(projected), bool(frozen), answer
            )
    return stored


def is_due(turn: DerivedTurn, stored: StoredTurn | None) -> bool:
    """Whether a turn must be written. Turns recorded here, and frozen ones, never are."""
    if stored is None:
        return True
    same = stored.fingerprint == turn.fingerprint and stored.parent_id == turn.parent_id
    return stored.projected and not stored.frozen and not same


def write_batch(tx: Transaction, changes: Sequence[Change]) -> list[Turn]:
    """Write the turns that are still new or changed: another import may have written some.

    Returns the new turns that were stored whole; the caller has to index their words.
    """
    tx.run("lock_projection")
    # Read again under the lock: what `changes()` read was in another transaction.
    stored = stored_turns(tx, [change.turn.id for change in changes])
    due = [
        change._replace(stored=stored.get(change.turn.id))
        for change in changes
        if is_due(change.derived, stored.get(change.turn.id))
    ]
    has_frozen = bool(tx.run("has_frozen"))
    changes = _rename_frozen_records(tx, _keep_above_frozen(tx, due)) if has_frozen else due
    rewritten = [change.turn.id for change in changes if change.stored is not None]
    if rewritten:
        tx.defer_references()
    for turn_id in rewritten:
        _clear_turn(tx, turn_id)
    _write_rows(tx, changes)
    whole = _write_steps(tx, changes)
    _place_all(tx, changes)
    if has_frozen:
        _keep_on_threads(tx, changes)
    tx.run_many(
        "insert_turn_source",
        [
            TurnSource(change.turn.id, file_id)
            for change in changes
            for file_id in sorted(change.derived.file_ids)
        ],
    )
    _move_heads_to_answers(tx, due)
    new = [change.turn for change in changes if change.stored is None and whole]
    new_ids = {turn.id for turn in new}
    index_queue.grown(tx, [c.turn.id for c in changes if c.turn.id not in new_ids])
    return new


def _keep_above_frozen(tx: Transaction, changes: Sequence[Change]) -> list[Change]:
    """A turn that waited for an answer above a frozen one stays there, although its source now has
    it below: the frozen turn keeps its parent."""
    parents = {change.turn.id: change.derived.parent_id for change in changes}

    def is_below_itself(change: Change) -> bool:
        seen = {change.turn.id}
        above = change.derived.parent_id
        while above in parents and above not in seen:
            seen.add(above)
            above = parents[above]
        return above in seen or (above is not None and threads.on_thread(tx, change.turn.id, above))

    settled: list[Change] = []
    for change in changes:
        stored, derived, turn = change.stored, change.derived, change.turn
        if stored and stored.parent_id != derived.parent_id and is_below_itself(change):
            parents[turn.id] = stored.parent_id
            derived = structs.replace(derived, parent_id=stored.parent_id)
            turn = structs.replace(turn, parent_turn_id=stored.parent_id)
        settled.append(change._replace(derived=derived, turn=turn))
    return settled


def _rename_frozen_records(tx: Transaction, changes: Sequence[Change]) -> Sequence[Change]:
    """A record of a frozen turn stays there: a turn that has it now stores it by another id."""
    held: set[str] = set()
    for ids in in_batches(m.id for change in changes for m in change.turn.messages):
        held |= {row[0] for row in tx.run("frozen_records", ids=ids)}
    if not held:
        return changes
    return [change._replace(turn=_renamed(change.turn, held)) for change in changes]


def _suffix(turn_id: str) -> str:
    return f"~{turn_id}"


def _record(message_id: str, turn_id: str) -> str:
    """The id that the source gave a message of a turn."""
    return message_id.removesuffix(_suffix(turn_id))


def _renamed(turn: Turn, held: Container[str]) -> Turn:
    new_ids = {m.id: as_id(m.id + _suffix(turn.id)) for m in turn.messages if m.id in held}
    if not new_ids:
        return turn
    query_ids = msgspec.json.decode(turn.query_message_ids or "[]")
    return structs.replace(
        turn,
        query_message_ids=to_json([new_ids.get(id_, id_) for id_ in query_ids]),
        response_message_id=new_ids.get(turn.response_message_id or "", turn.response_message_id),
        messages=tuple(structs.replace(m, id=new_ids.get(m.id, m.id)) for m in turn.messages),
        tool_calls=tuple(
            structs.replace(call, message_id=new_ids.get(call.message_id or "", call.message_id))
            for call in turn.tool_calls
        ),
    )


def _keep_on_threads(tx: Transaction, changes: Sequence[Change]) -> None:
    """Let a compaction that names turns outside its thread summarise the whole thread.

    Its source may know of more history than the thread has, because a frozen turn keeps its parent
    when its source's past becomes known later.
    """
    for change in changes:
        compaction = change.turn.compaction
        if compaction is None:
            continue
        bounds = (compaction.summarized_through_turn_id, compaction.first_kept_turn_id)
        if not all(threads.on_thread(tx, turn_id, change.turn.id) for turn_id in bounds if turn_id):
            tx.run("summarise_all", turn_id=change.turn.id, through=change.derived.parent_id)


def _write_rows(tx: Transaction, changes: Sequence[Change]) -> None:
    """Write the rows of the turns, and mark their parents: new ones with their row."""
    parents = {change.derived.parent_id for change in changes} - {None}
    new: list[Row] = []
    for change in changes:
        if change.stored is None and change.turn.compaction is None:
            new.append(Row(**_new_row(change, parents)))
            continue
        # Its compaction may refer to the turns collected so far.
        tx.run_many("insert_turn", new)
        new = []
        write_row(tx, change, parents)
    tx.run_many("insert_turn", new)
    parents.difference_update(change.turn.id for change in changes if change.stored is None)
    tx.run_many("mark_parent", [Row(id=parent_id) for parent_id in sorted(map(str, parents))])


def write_row(tx: Transaction, change: Change, parents: Container[str | None] = ()) -> None:
    """Write the row of a turn. `parents`: turns that have children."""
    turn = change.turn
    if change.stored is not None:
        tx.run("rewrite_turn", **_row(change))
    # Guards hold record and turn to each other: the record comes before a new turn's row, and after
    # a rewritten one's, which may only now have become a compaction.
    if turn.compaction is not None:
        tx.run(
            "insert_compaction", **structs.asdict(structs.replace(turn.compaction, turn_id=turn.id))
        )
    if change.stored is None:
        tx.run("insert_turn", **_new_row(change, parents))
    elif change.stored.parent_id not in (None, change.derived.parent_id):
        tx.run("unmark_childless", id=change.stored.parent_id)


def _new_row(change: Change, parents: Container[str | None]) -> dict[str, object]:
    return _row(change) | {"projected": 1, "has_children": int(change.turn.id in parents)}


def _row(change: Change) -> dict[str, object]:
    turn = change.turn
    row: dict[str, object] = {name: getattr(turn, name) for name in _ROW_FIELDS}
    row["tool_call_count"] = turn.tool_call_count or len(turn.tool_calls)
    row["request_hash"] = change.derived.fingerprint
    row["parent_turn_id"] = change.derived.parent_id
    return row


_ROW_FIELDS = frozenset(Turn.__struct_fields__) - {
    "parent_turn_id",
    "has_children",
    "tool_call_count",
    "projected",
    "depth",
    "messages",
    "tool_calls",
    "compaction",
}


def _clear_turn(tx: Transaction, turn_id: str) -> None:
    for statement in ("delete_turn_files", "delete_turn_lints", "delete_turn_codeblocks"):
        tx.run(statement, turn_id=turn_id)
    most = tx.limits.deleted_steps
    for statement in ("delete_turn_calls", "delete_turn_messages"):
        while tx.change(statement, turn_id=turn_id, limit=most) == most:
            pass
    tx.run("delete_turn_compaction", turn_id=turn_id)


def _write_steps(tx: Transaction, changes: Sequence[Change]) -> bool:
    """Write messages and calls. False if some turns share messages: the last turn has them then."""
    once, rederived = _have_own_messages(changes), any(change.rederived for change in changes)
    for messages in _at_once((change.turn.messages for change in changes), tx.limits):
        if rederived:
            _forget_details(tx, messages)
        recording.write_messages(tx, messages, statement="project_message")
    of_turn = {change.turn.id: change for change in changes}
    children: set[str] = set()
    for calls in _at_once((change.turn.tool_calls for change in changes), tx.limits):
        linked = [
            call
            if call.spawned_session_label is None
            else _linked(tx, call, of_turn[call.turn_id], children)
            for call in calls
        ]
        tx.run_many("insert_tool_call", linked)
    return once


def _forget_details(tx: Transaction, messages: Sequence[Message]) -> None:
    """Delete what belongs to messages in the turns that they are taken from."""
    for ids in in_batches(message.id for message in messages):
        if taken := [row[0] for row in tx.run("detailed_messages", ids=ids)]:
            for statement in ("forget_files", "forget_lints", "forget_codeblocks"):
                tx.run(statement, ids=ids_of(taken))


def _have_own_messages(changes: Sequence[Change]) -> bool:
    if len(changes) == 1:
        return True
    ids = [message.id for change in changes for message in change.turn.messages]
    return len(set(ids)) == len(ids)


def _at_once(of_turns: Iterable[Sequence[S]], limits: LedgerLimits) -> Iterator[list[S]]:
    """Steps that are written together. The steps of a large turn are read from disk while they are
    iterated, and so are written in pieces."""
    held: list[S] = []
    for steps in of_turns:
        if isinstance(steps, tuple):
            held += steps
            continue
        letters = 0
        for step in steps:
            held.append(step)
            letters += ROW_BYTES + step.letters
            if letters > limits.step_chars:
                yield held
                held, letters = [], 0
    yield held


def _linked(tx: Transaction, call: ToolCall, change: Change, children: set[str]) -> ToolCall:
    """The call with its subagent's session, created or linked.

    A session has one spawning call: a second call that names it, in a turn that forked midway, is
    not linked. `children`: the sessions of calls that are still to be written; this one is added.
    """
    child, owner = str(call.spawned_session_label), change.owner
    pointer = heads.find(tx, child, exact=True) or heads.find(tx, child)
    if pointer is not None:  # it may have another label
        child = pointer.label
        call = structs.replace(call, spawned_session_label=child)
    if owner is None or child == owner or child in children:
        return structs.replace(call, spawned_session_label=None)
    if pointer is not None:
        spawner = heads.get(tx, child, exact=True).parent_turn_id
        if spawner is not None:
            has_call = bool(tx.run("spawning_call", turn_id=spawner, label=child))
            if has_call and not change.is_gone(tx, spawner):
                return structs.replace(call, spawned_session_label=None)
            # The call that spawned it belongs to another turn now, or is about to be retired.
            tx.run("unlink_subagent", label=child)
    parent = heads.find(tx, owner, exact=True) or heads.existing(tx, owner)  # or renamed
    origin = heads.get(tx, parent.label, exact=True).origin
    subagent = Session(child, origin=origin, created_at=call.started_at)
    heads.spawn(tx, subagent, parent, call.turn_id, call.id)
    children.add(child)
    return call


def _place_all(tx: Transaction, changes: Sequence[Change]) -> None:
    """Place new turns, and place changed ones again with all their descendants.

    A descendant of a changed turn may have a new parent too, which is placed only now: so all are
    removed first, and placed from the top down.
    """
    new = {change.turn.id: change.turn for change in changes if change.stored is None}
    parents = {turn.id: turn.parent_turn_id for turn in new.values()}  # not placed yet
    prompts = {change.turn.id: change.derived.system_prompt_hash for change in changes}
    for change in changes:
        if change.stored is not None:
            below: dict[str, str | None] = dict(tx.run("subtree", turn_id=change.turn.id))
            # Deepest first: a segment goes with its last turn, and the segments that hang on it go
            # before.
            for turn_id in reversed(below):
                prompts[turn_id] = _remove_place(tx, turn_id)
            parents |= below
    replaced = [turn_id for turn_id in parents if turn_id not in new]
    placing = _Placing(tx)
    for start in tuple(parents):
        path: list[str] = []
        at: str | None = start
        while at is not None and at in parents:
            path.append(at)
            at = parents[at]
        for turn_id in reversed(path):
            del parents[turn_id]
            placing.put(new.get(turn_id) or _metrics(tx, turn_id), prompts[turn_id])
    placing.flush()
    _freeze_parents(tx, replaced)


def _freeze_parents(tx: Transaction, turn_ids: Sequence[str]) -> None:
    """Freeze the parents of turns recorded here at their new places."""
    for ids in in_batches(turn_ids):
        for (parent_id,) in tx.run("parents_of_ours", ids=ids):
            threads.freeze(tx, threads.place_of(tx, parent_id))


def _remove_place(tx: Transaction, turn_id: str) -> str | None:
    """Remove a turn's place; returns the hash of the system prompt in force there."""
    removed: tuple[int, str | None] = tx.run("delete_place", turn_id=turn_id)[0]
    tx.run("delete_empty_segment", id=removed[0])
    return removed[1]


class _Placing:
    """Places turns, parents first. The rows of turns that extend a segment are written together."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._places: dict[str, TurnPlace] = {}
        # By turn placed here: whether its segment ends with it, so that a child may extend it.
        self._free: dict[str, bool] = {}
        self._rows: list[Row] = []

    def put(self, turn: Turn, prompt_hash: str | None) -> None:
        usage = Usage(
            turn.input_tokens,
            turn.output_tokens,
            turn.cached_input_tokens,
            turn.cache_write_tokens,
            turn.reasoning_tokens,
            turn.total_tokens or 0,
        )
        place = threads.below(
            self._place_of(turn.parent_turn_id),
            usage=usage,
            model=turn.model,
            provider=turn.provider,
            persona_id="main",
            system_prompt_hash=prompt_hash,
            thread_key=None,
            compaction_turn_id=turn.id if turn.turn_type == "compaction" else None,
        )
        join, parent_id = turn.status == "completed", turn.parent_turn_id or ""
        free = self._free.get(parent_id)
        if join and free:
            self._free[parent_id] = False
            self._rows.append(Row(turn_id=turn.id, **structs.asdict(place)))
        else:
            place = threads.put(self._tx, turn.id, place, join=join and free is None)
        self._places[turn.id] = place
        self._free[turn.id] = True
        if len(self._places) == self._tx.limits.held_places:
            self.flush()

    def flush(self) -> None:
        if self._tx.run_many("insert_place", self._rows) != len(self._rows):
            raise Conflict("a turn took another's place while both were written")
        self._places.clear()
        self._free.clear()
        self._rows.clear()

    def _place_of(self, turn_id: str | None) -> TurnPlace:
        if turn_id is None:
            return threads.ABOVE_ROOT
        if turn_id not in self._places:
            self._places[turn_id] = threads.place_of(self._tx, turn_id)
        return self._places[turn_id]


def _metrics(tx: Transaction, turn_id: str) -> Turn:
    """A stored turn, as far as its place depends on it."""
    parent_id, status, turn_type, model, provider, *tokens = tx.run("turn_metrics", id=turn_id)[0]
    turn = Turn(turn_id, parent_id, turn_type, status, model=model, provider=provider)
    return structs.replace(turn, **dict(zip(Usage.__struct_fields__, tokens, strict=True)))


def retire(tx: Transaction, gone: set[str]) -> int:
    """Delete turns whose records now belong to other turns; returns how many.

    Heads and moves are redirected to those. A turn that is still referred to stays, emptied and
    with an error that says so. Frozen turns stay as they are.
    """
    deleted = 0
    stored = stored_turns(tx, sorted(gone))
    due = [turn_id for turn_id in gone if stored[turn_id].projected and not stored[turn_id].frozen]
    if due:
        tx.defer_references()
    # Deepest first: a turn that still has children counts as named and would stay, emptied.
    for turn_id in sorted(due, key=lambda turn_id: -threads.place_of(tx, turn_id).depth):
        _clear_turn(tx, turn_id)
        for ids in in_batches([turn_id]):
            tx.run("unlink_lost_subagents", ids=ids)
        if (successor := _successor(tx, turn_id, gone)) is not None:
            heads.lead_heads(tx, turn_id, successor)
        if tx.run("turn_is_named", turn_id=turn_id)[0][0]:
            tx.run("empty_turn", id=turn_id, error=RETIRED)
            _place_all(tx, [Change(_EMPTY, Turn(turn_id), stored[turn_id])])
            index_queue.grown(tx, [turn_id])
            continue
        _remove_place(tx, turn_id)
        index_queue.gone(tx, turn_id)
        tx.run("delete_turn_sources", turn_id=turn_id)
        tx.run("delete_repeated_records", turn_id=turn_id)
        tx.run("delete_bus_turn", turn_id=turn_id)
        tx.run("delete_turn", id=turn_id)
        deleted += 1
        if stored[turn_id].parent_id is not None:
            tx.run("unmark_childless", id=stored[turn_id].parent_id)
    return deleted


def _successor(tx: Transaction, turn_id: str, gone: Container[str]) -> str | None:
    """The turn that has another's answer now, or else its query, or the record it is named after.

    If none is left because another file holds the session anew: the turn of the same depth there.
    """
    query_ids, answer = tx.run("ends_of_turn", id=turn_id)[0]
    message_ids = [answer or "", *msgspec.json.decode(query_ids or "[]"), turn_id]
    successors = _owners(tx, turn_id, [_record(id_, turn_id) for id_ in message_ids])
    depth = threads.place_of(tx, turn_id).depth
    for (head,) in tx.run("heads_told_anew", turn_id=turn_id):
        same_depth = min(depth, threads.place_of(tx, head).depth)
        successors.append(str(threads.above(tx, head, same_depth)))
    return next((successor for successor in successors if successor not in gone), None)


def _owners(tx: Transaction, turn_id: str, records: Sequence[str]) -> list[str]:
    """The answered turns that have these records of a turn now, in the order of the records."""
    owners: dict[str, str] = {}
    for ids in in_batches(records):
        owners |= dict(tx.run("answered_with_records", turn_id=turn_id, ids=ids))
    return [owners[record] for record in records if record in owners]


def _move_heads_to_answers(tx: Transaction, changes: Sequence[Change]) -> None:
    """Redirect what refers to turns that are pending again to the turns that have their answers."""
    lost = {c.turn.id: answer for c in changes if (answer := c.lost_answer) is not None}
    if not lost:
        return
    answered = (c.turn for c in changes if c.turn.status != "pending")
    owners = {message.id: turn.id for turn in answered for message in turn.messages}
    for turn_id, answer in lost.items():
        successors = [owners[answer]] if answer in owners else _owners(tx, turn_id, [answer])
        for successor in successors:
            heads.lead_heads(tx, turn_id, successor)
