"""The rows of projected turns: written, rewritten in place, and put where they stand."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from types import SimpleNamespace as Row
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import structs

from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording, threads
from agents_ledger.ledger.turns.threads import Place
from agents_ledger.model.errors import Conflict
from agents_ledger.model.ids import as_id
from agents_ledger.model.imports.sources import DerivedTurn
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, ToolCall, Turn, Usage, to_json
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import ids_of, in_batches

S = TypeVar("S", Message, ToolCall)
LETTERS_AT_ONCE = 1 << 20  # of a large turn
CLEARED = 100  # messages or calls, at once
ROW_BYTES = 500  # that a message or a call takes besides its content
PLACES = 1000  # remembered at once: a tree may be of any size
RETIRED = "its records belong to another turn now"


class Known(NamedTuple):
    """What is stored of a turn."""

    fingerprint: bytes
    parent_id: str | None
    projected: bool
    frozen: bool
    answer: str | None  # the record that answered it, "" if none did; None: it waits


class TurnSource(NamedTuple):
    """A turn, and a file it was derived from."""

    turn_id: str
    file_id: int


class Change(NamedTuple):
    """A turn to be written."""

    derived: DerivedTurn
    turn: Turn
    known: Known | None
    owner: str | None = None  # the session that subagents it spawns answer to
    is_gone: Callable[[Transaction, str], bool] = lambda *_: False  # a turn that is told no more
    again: bool = False  # whether files of it were derived before

    @property
    def lost_answer(self) -> str | None:
        """The record that answered it before; None, if it is not one that waits again."""
        answer = self.known.answer if self.known is not None else None
        if answer is None or self.turn.status != "pending":
            return None
        return _record(answer, self.turn.id)


_NOTHING = DerivedTurn("", None, b"", frozenset(), (), lambda: Turn(""))


def known_now(tx: Transaction, turn_ids: Sequence[str]) -> dict[str, Known]:
    """What is stored of these turns."""
    known: dict[str, Known] = {}
    for ids in in_batches(turn_ids):
        found = tx.run("known_turns", ids=ids)
        for turn_id, fingerprint, parent_id, projected, frozen, answer in found:
            known[turn_id] = Known(
                bytes(fingerprint or b""), parent_id, bool(projected), bool(frozen), answer
            )
    return known


def is_due(turn: DerivedTurn, stored: Known | None) -> bool:
    """Whether a turn is to be written. Turns of ours, and frozen ones, are not."""
    if stored is None:
        return True
    same = stored.fingerprint == turn.fingerprint and stored.parent_id == turn.parent_id
    return stored.projected and not stored.frozen and not same


def write_batch(tx: Transaction, changes: Sequence[Change]) -> list[Turn]:
    """Write the turns that are new or changed now: another import may have written some. The new
    ones, if they stand as they were given: they are still to be put into the word index."""
    tx.run("lock_projection")
    known = known_now(tx, [change.turn.id for change in changes])
    changes = [
        change._replace(known=known.get(change.turn.id))
        for change in changes
        if is_due(change.derived, known.get(change.turn.id))
    ]
    told, has_frozen = changes, bool(tx.run("has_frozen"))
    if has_frozen:
        changes = _beside_frozen(tx, told)
    known_before = [change.turn.id for change in changes if change.known is not None]
    if known_before:
        tx.defer_references()
    for turn_id in known_before:
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
    _lead_to_answers(tx, told)
    new = [change.turn for change in changes if change.known is None and whole]
    at_hand = {turn.id for turn in new}
    index_queue.changed(tx, [c.turn.id for c in changes if c.turn.id not in at_hand])
    return new


def _beside_frozen(tx: Transaction, changes: Sequence[Change]) -> list[Change]:
    """What a frozen turn holds stays there: in a turn that has it now, it goes by another id."""
    held: set[str] = set()
    for ids in in_batches(m.id for change in changes for m in change.turn.messages):
        held |= {row[0] for row in tx.run("frozen_records", ids=ids)}
    if not held:
        return list(changes)
    return [change._replace(turn=_renamed(change.turn, held)) for change in changes]


def _mark(turn_id: str) -> str:
    return f"~{turn_id}"


def _record(message_id: str, turn_id: str) -> str:
    """What a source calls a message of a turn."""
    return message_id.removesuffix(_mark(turn_id))


def _renamed(turn: Turn, held: Container[str]) -> Turn:
    names = {m.id: as_id(m.id + _mark(turn.id)) for m in turn.messages if m.id in held}
    if not names:
        return turn
    asked = msgspec.json.decode(turn.query_message_ids or "[]")
    return structs.replace(
        turn,
        query_message_ids=to_json([names.get(each, each) for each in asked]),
        response_message_id=names.get(turn.response_message_id or "", turn.response_message_id),
        messages=tuple(structs.replace(m, id=names.get(m.id, m.id)) for m in turn.messages),
        tool_calls=tuple(
            structs.replace(call, message_id=names.get(call.message_id or "", call.message_id))
            for call in turn.tool_calls
        ),
    )


def _keep_on_threads(tx: Transaction, changes: Sequence[Change]) -> None:
    """A compaction summarised what is above it. Its source may know more than that: a frozen turn
    is not hung on a past that comes to light later. Then it is all that is there."""
    for change in changes:
        made = change.turn.compaction
        if made is None:
            continue
        named = (made.summarized_through_turn_id, made.first_kept_turn_id)
        if not all(threads.on_thread(tx, each, change.turn.id) for each in named if each):
            tx.run("summarise_all", turn_id=change.turn.id, through=change.derived.parent_id)


def _write_rows(tx: Transaction, changes: Sequence[Change]) -> None:
    """Write the turns' own rows, and mark their parents: new ones with their row."""
    parents = {change.derived.parent_id for change in changes} - {None}
    new: list[Row] = []
    for change in changes:
        if change.known is None and change.turn.compaction is None:
            new.append(Row(**_new_row(change, parents)))
            continue
        tx.run_many("insert_turn", new)  # what its compaction names is among them
        new = []
        write_row(tx, change, parents)
    tx.run_many("insert_turn", new)
    parents.difference_update(change.turn.id for change in changes if change.known is None)
    tx.run_many("mark_parent", [Row(id=parent_id) for parent_id in sorted(map(str, parents))])


def write_row(tx: Transaction, change: Change, parents: Container[str | None] = ()) -> None:
    """Write a turn's own row. `parents`: turns that have children."""
    turn = change.turn
    if change.known is not None:
        tx.run("rewrite_turn", **_row(change))
    if turn.compaction is not None:  # a new turn after its record, a known one before it
        tx.run(
            "insert_compaction", **structs.asdict(structs.replace(turn.compaction, turn_id=turn.id))
        )
    if change.known is None:
        tx.run("insert_turn", **_new_row(change, parents))
    elif change.known.parent_id not in (None, change.derived.parent_id):
        tx.run("unmark_childless", id=change.known.parent_id)


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
    for statement in ("delete_turn_calls", "delete_turn_messages"):
        while tx.change(statement, turn_id=turn_id, limit=CLEARED) == CLEARED:
            pass
    tx.run("delete_turn_compaction", turn_id=turn_id)


def _write_steps(tx: Transaction, changes: Sequence[Change]) -> bool:
    """Whether every turn has all its messages: of those that several have, the last one counts."""
    once, again = _have_own_messages(changes), any(change.again for change in changes)
    for messages in _at_once(change.turn.messages for change in changes):
        if again:
            _forget_details(tx, messages)
        recording.write_messages(tx, messages, statement="project_message")
    of_turn = {change.turn.id: change for change in changes}
    children: set[str] = set()
    for calls in _at_once(change.turn.tool_calls for change in changes):
        linked = [
            call
            if call.spawned_session_label is None
            else _linked(tx, call, of_turn[call.turn_id], children)
            for call in calls
        ]
        tx.run_many("insert_tool_call", linked)
    return once


def _forget_details(tx: Transaction, messages: Sequence[Message]) -> None:
    """What hangs on a message in the turn that it is taken from stays behind."""
    for ids in in_batches(message.id for message in messages):
        if taken := [row[0] for row in tx.run("detailed_messages", ids=ids)]:
            for statement in ("forget_files", "forget_lints", "forget_codeblocks"):
                tx.run(statement, ids=ids_of(taken))


def _have_own_messages(changes: Sequence[Change]) -> bool:
    if len(changes) == 1:
        return True
    ids = [message.id for change in changes for message in change.turn.messages]
    return len(set(ids)) == len(ids)


def _at_once(of_turns: Iterable[Sequence[S]]) -> Iterator[list[S]]:
    """Steps of turns that are written together. Those of a large turn are in memory only while
    somebody looks at them: of these only some."""
    held: list[S] = []
    for steps in of_turns:
        if isinstance(steps, tuple):
            held += steps
            continue
        letters = 0
        for step in steps:
            held.append(step)
            letters += ROW_BYTES + step.letters
            if letters > LETTERS_AT_ONCE:
                yield held
                held, letters = [], 0
    yield held


def _linked(tx: Transaction, call: ToolCall, change: Change, children: set[str]) -> ToolCall:
    """The call with its subagent's session, made or linked. A session has one spawning call: a
    second that names it, in a turn branched off half way, does not link. `children`: the sessions
    linked to calls that are still to be written; this one's is added."""
    child, owner = str(call.spawned_session_label), change.owner
    named = heads.find(tx, child, exact=True) or heads.find(tx, child)
    if named is not None:  # it may be known under another label
        child = named.label
        call = structs.replace(call, spawned_session_label=child)
    if owner is None or child == owner or child in children:
        return structs.replace(call, spawned_session_label=None)
    if named is not None:
        known = heads.get(tx, child, exact=True)
        spawner = known.parent_turn_id
        if spawner is not None:
            has_call = bool(tx.run("spawning_call", turn_id=spawner, label=child))
            if has_call and not change.is_gone(tx, spawner):
                return structs.replace(call, spawned_session_label=None)
            tx.run("unlink_subagent", label=child)  # by a call that is in another turn now
    parent = heads.existing(tx, owner, exact=True)
    made = Session(child, created_at=call.started_at)
    heads.spawn(tx, made, parent, call.turn_id, call.id)
    children.add(child)
    return call


def _place_all(tx: Transaction, changes: Sequence[Change]) -> None:
    """Put new turns, and put changed ones again with all that stands below them.

    A turn below a changed one may have got a new parent too, one that is put only now: so all are
    taken away first, and put from the top down.
    """
    new = {change.turn.id: change.turn for change in changes if change.known is None}
    parents = {turn.id: turn.parent_turn_id for turn in new.values()}  # of what is still to be put
    prompts = {change.turn.id: change.derived.system_prompt_hash for change in changes}
    for change in changes:
        if change.known is not None:
            below: dict[str, str | None] = dict(tx.run("subtree", turn_id=change.turn.id))
            for turn_id in reversed(below):
                prompts[turn_id] = _take_away(tx, turn_id)
            parents |= below
    put_again = [turn_id for turn_id in parents if turn_id not in new]
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
    _freeze_again(tx, put_again)


def _freeze_again(tx: Transaction, turn_ids: Sequence[str]) -> None:
    """What turns of ours among these stand on is frozen where it stands now."""
    for ids in in_batches(turn_ids):
        for (parent_id,) in tx.run("parents_of_ours", ids=ids):
            threads.freeze(tx, threads.place_of(tx, parent_id))


def _take_away(tx: Transaction, turn_id: str) -> str | None:
    """Take a turn from its place; the hash of the system prompt that was in force there."""
    taken: tuple[int, str | None] = tx.run("delete_place", turn_id=turn_id)[0]
    tx.run("delete_empty_segment", id=taken[0])
    return taken[1]


class _Placing:
    """Puts turns, parents first. Of those that simply go on the rows are written together."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._places: dict[str, Place] = {}
        self._free: dict[str, bool] = {}  # by turn put here: whether none stands behind it yet
        self._rows: list[Row] = []

    def put(self, turn: Turn, prompt_hash: str | None) -> None:
        """Give a turn its place below its parent."""
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
        if len(self._places) == PLACES:
            self.flush()

    def flush(self) -> None:
        """Write what waits, and forget where turns were put."""
        if self._tx.run_many("insert_place", self._rows) != len(self._rows):
            raise Conflict("a turn took another's place while both were written")
        self._places.clear()
        self._free.clear()
        self._rows.clear()

    def _place_of(self, turn_id: str | None) -> Place:
        if turn_id is None:
            return threads.ABOVE_ROOT
        if turn_id not in self._places:
            self._places[turn_id] = threads.place_of(self._tx, turn_id)
        return self._places[turn_id]


def _metrics(tx: Transaction, turn_id: str) -> Turn:
    """What a stored turn adds to its thread."""
    parent_id, status, turn_type, model, provider, *tokens = tx.run("turn_metrics", id=turn_id)[0]
    turn = Turn(turn_id, parent_id, turn_type, status, model=model, provider=provider)
    return structs.replace(turn, **dict(zip(Usage.__struct_fields__, tokens, strict=True)))


def retire(tx: Transaction, gone: set[str]) -> int:
    """Take away turns whose records are now understood to belong to other turns, and return how
    many. What names them names those: heads, and lines of the history.

    One that is named still stays, empty, and says so. What is frozen stays as it is.
    """
    taken = 0
    known = known_now(tx, sorted(gone))
    due = [turn_id for turn_id in gone if known[turn_id].projected and not known[turn_id].frozen]
    if due:
        tx.defer_references()
    for turn_id in sorted(due, key=lambda each: -threads.place_of(tx, each).depth):
        _clear_turn(tx, turn_id)
        for ids in in_batches([turn_id]):
            tx.run("unlink_lost_subagents", ids=ids)
        if (heir := _heir(tx, turn_id, gone)) is not None:
            heads.lead_heads(tx, turn_id, heir)
        if tx.run("turn_is_named", turn_id=turn_id)[0][0]:
            tx.run("empty_turn", id=turn_id, error=RETIRED)
            _place_all(tx, [Change(_NOTHING, Turn(turn_id), known[turn_id])])
            index_queue.changed(tx, [turn_id])
            continue
        _take_away(tx, turn_id)
        index_queue.gone(tx, turn_id)
        tx.run("delete_turn_sources", turn_id=turn_id)
        tx.run("delete_repeated_records", turn_id=turn_id)
        tx.run("delete_bus_turn", turn_id=turn_id)
        tx.run("delete_turn", id=turn_id)
        taken += 1
        if known[turn_id].parent_id is not None:
            tx.run("unmark_childless", id=known[turn_id].parent_id)
    return taken


def _heir(tx: Transaction, turn_id: str, gone: Container[str]) -> str | None:
    """The turn that has the answer of another now, or else what was asked, or what the turn is
    named after. Where these are told no more, as another file tells the session anew: the one as
    deep on the thread of that."""
    asked, answer = tx.run("ends_of_turn", id=turn_id)[0]
    named = [answer or "", *msgspec.json.decode(asked or "[]"), turn_id]
    heirs = _owners(tx, turn_id, [_record(each, turn_id) for each in named])
    depth = threads.place_of(tx, turn_id).depth
    for (head,) in tx.run("heads_told_anew", turn_id=turn_id):
        as_deep = min(depth, threads.place_of(tx, head).depth)
        heirs.append(str(threads.above(tx, head, as_deep)))
    return next((heir for heir in heirs if heir not in gone), None)


def _owners(tx: Transaction, turn_id: str, records: Sequence[str]) -> list[str]:
    """The answered turns that have these records of a turn now, in their order."""
    owners: dict[str, str] = {}
    for ids in in_batches(records):
        owners |= dict(tx.run("answered_with_records", turn_id=turn_id, ids=ids))
    return [owners[record] for record in records if record in owners]


def _lead_to_answers(tx: Transaction, changes: Sequence[Change]) -> None:
    """What names turns that wait again names the turns that have their answers now."""
    lost = {c.turn.id: answer for c in changes if (answer := c.lost_answer) is not None}
    if not lost:
        return
    answered = (c.turn for c in changes if c.turn.status != "pending")
    owners = {message.id: turn.id for turn in answered for message in turn.messages}
    for turn_id, answer in lost.items():
        heirs = [owners[answer]] if answer in owners else _owners(tx, turn_id, [answer])
        for heir in heirs:
            heads.lead_heads(tx, turn_id, heir)
