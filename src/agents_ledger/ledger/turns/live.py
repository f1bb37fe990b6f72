"""Live turns: durable while they are written, sealed at the end.

The first commit creates the turn, pending, at its place in the thread. Then each tool call and
message is committed as it happens. The last commit seals it: response, usage, the sums at its
place, head and history in one transaction.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from agents_ledger.ledger.evidence import leaves
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.sessions.heads import Pointer
from agents_ledger.ledger.turns import recording, threads, unfinished
from agents_ledger.ledger.turns.recording import PreparedTurn
from agents_ledger.model.errors import Conflict, HeadMoved, Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import (
    Message,
    ToolCall,
    Turn,
    TurnStatus,
    Usage,
)
from agents_ledger.store.database import Database, Transaction

NO_RESPONSE = "no response recorded"
WRITER_DIED = "the process that wrote this turn died"
PARTIAL = '{"partial":true}'


class LiveKey(NamedTuple):
    turn_id: str
    writer_id: str
    session: str = ""  # the key it was begun with


class LiveSteps(NamedTuple):
    """What is committed together of a turn that is being written."""

    messages: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    outcomes: tuple[ToolCall, ...] = ()  # of calls that the turn has already
    is_streamed: bool = False  # the message replaces the partial text
    piece: tuple[int, str] | None = None  # of the answer: its number and text
    again: bool = False  # they may be stored: an earlier commit had an unknown outcome


NO_STEPS = LiveSteps()


class Sealing(NamedTuple):
    status: TurnStatus
    error: str | None = None
    response: Message | None = None
    usage: Usage = Usage()
    model: str | None = None
    provider: str | None = None
    permissions_used: str | None = None
    steps: LiveSteps = NO_STEPS  # the last ones before the response
    message_id: str = ""  # of the closing message, if that has none


def begin(tx: Transaction, prepared: PreparedTurn, writer_id: str) -> None:
    """Create the turn, pending. It cannot have children before it is sealed."""
    new = prepared.new
    if prepared.chosen and _begun(tx, prepared, writer_id):
        return
    session = heads.writable(tx, new.session, persona_id=new.persona_id or "main")
    parent_id = recording.expected_parent(session, new)
    turn, place = recording.write_turn(tx, prepared, session, parent_id)
    # Behind its parent, if that is free: where it stays once it is completed.
    threads.put(tx, prepared.id, place, join=True)
    index_queue.recorded(tx, turn)
    tx.run("insert_writer", id=writer_id)
    tx.run(
        "insert_live_turn",
        turn_id=prepared.id,
        writer_id=writer_id,
        session_label=session.label,
    )


def _begun(tx: Transaction, prepared: PreparedTurn, writer_id: str) -> bool:
    """Whether an earlier attempt of the same call began the turn."""
    rows = tx.run("turn_request", id=prepared.id)
    if not rows:
        return False
    same = bytes(rows[0][0] or b"") == prepared.request_hash
    if same and tx.run("live_turn", turn_id=prepared.id, writer_id=writer_id):
        return True
    raise Conflict(f"turn {prepared.id} exists already", "Use a new id for a live turn.")


def _session_of(tx: Transaction, live: LiveKey) -> str:
    """The label of a live turn's session. Conflict if this writer may not write the turn."""
    rows = tx.run("live_turn", turn_id=live.turn_id, writer_id=live.writer_id)
    if not rows:
        raise Conflict(f"turn {live.turn_id} is sealed", "Begin a new turn.")
    return str(rows[0][0])


def add_steps(tx: Transaction, live: LiveKey, steps: LiveSteps) -> None:
    """Commit messages, calls and outcomes of calls, or a piece of the answer."""
    _session_of(tx, live)
    _write_steps(tx, live, steps)


def _write_steps(tx: Transaction, live: LiveKey, steps: LiveSteps) -> None:
    messages, calls = steps.messages, steps.calls
    # Only steps whose commit had an unknown outcome are looked for; others save the statements.
    if steps.again:
        # A repeated call may have more steps than the one whose outcome is unknown.
        messages = tuple(m for m in messages if not tx.run("message_turn", id=m.id))
        calls = tuple(c for c in calls if not tx.run("call_outcome", turn_id=c.turn_id, id=c.id))
    if messages and steps.is_streamed:
        tx.run("delete_partials", turn_id=live.turn_id)
    recording.write_messages(tx, messages)
    if calls:
        tx.run_many("insert_tool_call", calls)
    for call in steps.outcomes:
        _write_outcome(tx, live, call)
    if steps.piece is not None:
        _write_piece(tx, live, *steps.piece, again=steps.again)


def _write_outcome(tx: Transaction, live: LiveKey, call: ToolCall) -> None:
    """The outcome of a call. Repeating it changes nothing."""
    outcome = {"status": call.status, "result_json": call.result_json, "error": call.error}
    key = {"turn_id": live.turn_id, "id": call.id}
    finished = tx.change("finish_tool_call", **key, **outcome, completed_at=now_ms())
    if not finished and tuple(outcome.values()) not in [
        row[:3] for row in tx.run("call_outcome", **key)
    ]:
        raise Conflict(f"tool call {call.id} of turn {live.turn_id} is finished already")


def _write_piece(tx: Transaction, live: LiveKey, number: int, text: str, *, again: bool) -> None:
    if again and len(tx.run("partials", turn_id=live.turn_id)) > number:
        return
    tx.run("mark_streaming", turn_id=live.turn_id)
    tx.run("insert_partial", turn_id=live.turn_id, content=text)


def spawn(tx: Transaction, live: LiveKey, call_id: str, child: Session) -> Session:
    """Create or link the session of a subagent that a call starts. Repeating it changes nothing."""
    parent = heads.existing(tx, _session_of(tx, live), exact=True)
    call = tx.run("call_outcome", turn_id=live.turn_id, id=call_id)
    if call and call[0][3] == child.label:
        return heads.get(tx, child.label, exact=True)
    heads.spawn(tx, child, parent, live.turn_id, call_id)
    linked = tx.change("spawn_from_call", turn_id=live.turn_id, id=call_id, label=child.label)
    if not linked:
        raise Refused(f"tool call {call_id} spawned another session already")
    return heads.get(tx, child.label, exact=True)


def partial_text(tx: Transaction, turn_id: str) -> str:
    return "".join(row[0] for row in tx.run("partials", turn_id=turn_id))


def seal(tx: Transaction, live: LiveKey, sealing: Sealing) -> HeadMoved | None:
    """Seal a turn, after its last steps. Repeating it changes nothing.

    If the session's head moved meanwhile, the turn is stored all the same; the HeadMoved to raise
    after the commit is returned.
    """
    try:
        label = _session_of(tx, live)
    except Conflict:
        # Sealed already. If it ended just as this call wants, an earlier attempt was committed and
        # only its answer was lost.
        if not _ended_so(threads.exact_turn(tx, live.turn_id), sealing):
            raise
        return beside_head(tx, live)
    # Lock the session before anything else, as recording does: on a server two writers of one
    # session would otherwise deadlock. A merged session continues as the one it was merged into.
    session = heads.existing(tx, label)
    _write_steps(tx, live, sealing.steps)
    turn_id, now = live.turn_id, now_ms()
    parent_id, persona_id, prompt_hash, thread_key, model, provider, own_segment = tx.run(
        "live_parent", turn_id=turn_id
    )[0]
    model, provider = sealing.model or model, sealing.provider or provider
    response = _write_closing(tx, turn_id, sealing, now)
    # A sealed turn never changes again: a call still open then could never get its outcome.
    tx.run("close_tool_calls", turn_id=turn_id, completed_at=now)
    usage = sealing.usage
    answered = sealing.status == "completed" and response is not None
    tx.run(
        "seal_turn",
        id=turn_id,
        status=sealing.status,
        completed_at=now,
        error=sealing.error,
        model=model,
        provider=provider,
        response_message_id=response.id if answered and response else None,
        permissions_used=sealing.permissions_used,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total,
    )
    tx.run("delete_partials", turn_id=turn_id)
    tx.run("delete_live_turn", turn_id=turn_id)
    # The sums at its place were provisional: usage and model are known only now.
    place = threads.below(
        threads.place_of(tx, parent_id),
        usage=usage,
        model=model,
        provider=provider,
        persona_id=persona_id,
        system_prompt_hash=prompt_hash,
        thread_key=thread_key,
        compaction_turn_id=None,
    )
    completed = sealing.status == "completed"
    threads.settle(tx, turn_id, own_segment, place, failed=not completed)
    index_queue.grown(tx, [turn_id])
    moved = None
    if completed:
        moved = _follow(tx, session, parent_id, turn_id, now)
    elif parent_id is None:
        unfinished.failed_first(tx, session.label, turn_id)
    moved_label = session.label if completed and moved is None else None
    leaves.add(tx, leaves.stored_turn_leaf(tx, turn_id, moved_label, now))
    return moved


def _follow(
    tx: Transaction, session: Pointer, parent_id: str | None, turn_id: str, at: int
) -> HeadMoved | None:
    """Move the head to a sealed turn, unless another writer was first. The turn is stored in any
    case, because the answer was paid for; the caller may fork from it."""
    if session.thread_id != parent_id:
        return HeadMoved(session.label, parent_id, session.thread_id, turn_id)
    heads.move_head(tx, session.label, from_=parent_id, to=turn_id, reason="record", at=at)
    return None


def _ended_so(turn: Turn, sealing: Sealing) -> bool:
    """Whether a sealed turn ended like this. Fields that were not passed are not compared."""
    response = sealing.response
    stored = None if turn.response is None else _plain(turn.response)
    return (
        (turn.status, turn.error) == (sealing.status, sealing.error)
        and turn.usage == replace(sealing.usage, total_tokens=sealing.usage.total)
        and sealing.model in (None, turn.model)
        and sealing.provider in (None, turn.provider)
        and sealing.permissions_used in (None, turn.permissions_used)
        and (response is None or _plain(response, turn.response) == stored)
    )


def _plain(message: Message, stored: Message | None = None) -> Message:
    """A message without the fields that the ledger fills in, and with the streamed text."""
    content = message.content
    if content is None and stored is not None:
        content = stored.content
    return replace(message, id="", turn_id="", sequence=0, created_at=0, content=content)


def beside_head(tx: Transaction, live: LiveKey) -> HeadMoved | None:
    """HeadMoved, if a completed turn never became its session's head."""
    turn = threads.exact_turn(tx, live.turn_id)
    if turn.status != "completed" or tx.run("was_head", turn_id=turn.id):
        return None
    session = heads.existing(tx, live.session)
    return HeadMoved(session.label, turn.parent_turn_id, session.thread_id, turn.id)


def closing_message(sealing: Sealing) -> Message:
    """The response, or else the message that the streamed text becomes: partial if the turn failed.
    Without content, it takes the streamed text."""
    metadata = None if sealing.status == "completed" else PARTIAL
    message = sealing.response or Message("assistant", metadata_json=metadata)
    return message if message.id else replace(message, id=sealing.message_id)


def _write_closing(tx: Transaction, turn_id: str, sealing: Sealing, now: int) -> Message | None:
    message = closing_message(sealing)
    if message.content is None:
        streamed = partial_text(tx, turn_id)
        if not streamed and sealing.response is None:
            return None
        message = replace(message, content=streamed or None)
    last = tx.run("last_sequence", turn_id=turn_id)[0][0]
    message = recording.fill_message(message, turn_id, (-1 if last is None else last) + 1, now)
    recording.write_messages(tx, (message,))
    return message


def live_turns(tx: Transaction, key: str | None = None) -> tuple[str, ...]:
    """The ids of turns that are not sealed and have a writer, of one session or all."""
    label = None if key is None else heads.get(tx, key).label
    return tuple(row[0] for row in tx.run("live_turns", label=label))


def reason_of(error: BaseException) -> str:
    """The error of a turn or call in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# -- after a crash ----------------------------------------------------------------------------


def recover(db: Database) -> tuple[str, ...]:
    """Fail the turns whose writer is dead; returns their ids."""
    db.remove_dead_writers()
    writers = db.read(lambda tx: tx.run("other_writers", id=""))
    # Before db.writer(): a process that finds nothing to recover needs no lock file or lease.
    if not writers:
        return ()
    me = db.writer()
    dead = [
        (writer_id, seen_at)
        for writer_id, seen_at, unseen_ms in writers
        if writer_id != me.id and db.is_dead(writer_id, unseen_ms)
    ]
    failed: list[str] = []
    for writer_id, seen_at in dead:
        failed += db.write(partial(fail_all, writer_id=writer_id, seen_at=seen_at))
        # After the commit: without its lock file the writer would count as alive for a day, should
        # the commit fail.
        me.forget(writer_id)
    return tuple(failed)


def fail_all(tx: Transaction, writer_id: str, seen_at: int) -> list[str]:
    """Fail the turns of a dead writer, unless it was seen again meanwhile."""
    # Looked at again under a lock of its row: a writer that renews its lease now keeps its turns.
    if not tx.run("writer_unseen_since", id=writer_id, seen_at=seen_at):
        return []
    failed = []
    for turn_id, label in tx.run("writer_turns", writer_id=writer_id):
        seal(tx, LiveKey(turn_id, writer_id), Sealing("failed", WRITER_DIED))
        unfinished.remember(tx, label, turn_id)
        failed.append(turn_id)
    tx.run("settle_claims", writer_id=writer_id)
    if tx.run("writer_left", writer_id=writer_id)[0][0]:
        from agents_ledger.ledger import tasks  # only ledgers with tasks need it

        tasks.fail_all(tx, writer_id)
    tx.run("delete_writer", id=writer_id)
    return failed


def retire(db: Database) -> None:
    """Remove this process from the list of writers, unless it leaves turns unfinished."""
    me = db.known_writer()
    if me is not None:
        left = db.write(partial(_retire, writer_id=me.id))
        if not left:
            me.forget(me.id)


def _retire(tx: Transaction, writer_id: str) -> bool:
    left = bool(tx.run("writer_left", writer_id=writer_id)[0][0])
    if not left:
        tx.run("settle_claims", writer_id=writer_id)
        tx.run("delete_writer", id=writer_id)
    return left
