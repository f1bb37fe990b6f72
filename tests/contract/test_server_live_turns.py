"""Live turns that are begun, continued and sealed in one call of the server each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from agents_ledger import Conflict, Ledger, Message, MessageCodeblock, ToolCall, Usage
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.turns import recording
from agents_ledger.ledger.turns.live_state import LiveState
from agents_ledger.store.database import UNDONE, ServerWork
from agents_ledger.store.postgres.call_queue import LEADERS
from agents_ledger.store.postgres.engine import PostgresDatabase
from tests.builders import chain
from tests.server_calls import ODD, begun, called, queueing, rows, together, transactions, work

LIVE: list[dict[str, Any]] = [
    {},
    {"id": "chosen-live", "system_prompt": f"be kind {ODD}", "tools_available": ["Read"]},
    {"model": "m", "provider": "p", "workspace_path": ODD, "persona_id": "other"},
]


@pytest.fixture
def db(database: Callable[[], PostgresDatabase]) -> PostgresDatabase:
    return database()


@pytest.fixture
def ledger(db: PostgresDatabase) -> Ledger:
    return Ledger(Core(db))


def live_states() -> list[LiveState]:
    return [
        LiveState(
            recording.recording(f"s{number}", ["q", ODD], None, dict(fields), live=True), "a writer"
        )
        for number, fields in enumerate(LIVE)
    ]


def rounds(live: Sequence[LiveState]) -> Iterator[list[Any]]:
    """The works of all live turns, verb by verb."""
    yield [state.begin() for state in live]
    yield [state.stream(f"so {ODD}") for state in live]
    for state in live:
        state.streamed()
    yield [state.stream("far") for state in live]
    streamed = [state.message(Message("assistant", ODD), streamed=True) for state in live]
    yield [each for _, each in streamed]
    for state, (message, _) in zip(live, streamed, strict=True):
        state.committed(message, streamed=True)
    calls = [state.call("Read", {"path": ODD}, "", 3) for state in live]
    yield [state.start(call) for state, call in zip(live, calls, strict=True)]
    yield [
        state.finish(call, "failed", result_json='"x"', error=ODD)
        for state, call in zip(live, calls, strict=True)
    ]
    several = [
        state.steps([Message("assistant", "hm"), ToolCall("Bash", status="running", id="b")])
        for state in live
    ]
    yield [state.add(steps) for state, steps in zip(live, several, strict=True)]
    for state, steps in zip(live, several, strict=True):
        state.added(steps)
    yield [state.add(state.steps([ToolCall("Bash", "{}", '"y"', id="b")])) for state in live]
    yield [state.stream(ODD) for state in live]
    yield [state.start(state.call("Edit", None, "left open", None)) for state in live]


USAGE = Usage(7, None, 3, 2, 1)
# Each seals all live turns of a run.
SEALINGS: dict[str, Callable[[LiveState], Any]] = {
    "text": lambda state: state.respond("the answer", usage=USAGE, model="m2", provider="p2"),
    "streamed": lambda state: state.respond(None, usage=Usage(), permissions_used={"a": 1}),
    "streamed_message": lambda state: state.respond(
        Message("assistant", thinking=ODD, metadata_json='{"a":1}'), usage=USAGE
    ),
    "message": lambda state: state.respond(
        Message("assistant", ODD, id=f"answer-{state.id}"), usage=Usage(0, 0)
    ),
    "steps": lambda state: state.respond(
        "done",
        usage=USAGE,
        steps=state.steps(
            [
                Message("assistant", "last"),
                ToolCall("Grep", "{}", '"found"', status="completed", id="grep"),
                ToolCall("Edit", "{}", '"edited"', id="left open"),
            ]
        ),
    ),
}


@pytest.mark.parametrize("ending", SEALINGS)
def test_live_turns_are_the_same_rows_in_calls_and_in_statements(
    database: Callable[[], PostgresDatabase], ending: str
) -> None:
    by_call, by_statement = database(), database()
    roots = [work(f"s{number}", usage=Usage(5, 6), model="m0") for number in range(len(LIVE))]
    for db in (by_call, by_statement):
        begun(db, roots)
    live = live_states()

    def sealing() -> Iterator[tuple[list[Any], list[str]]]:
        for works in rounds(live):
            yield works, ["completed_at"]
        # The closing message is as old as the end of its turn.
        yield [SEALINGS[ending](state) for state in live], ["completed_at", "created_at"]

    for works, clocked in sealing():
        assert called(by_call, *works) == [None] * len(LIVE)
        for each in works:
            assert by_statement.write_alone(each) is None
        assert rows(by_call, *clocked) == rows(by_statement, *clocked)

    for db in (by_call, by_statement):
        ledger = Ledger(Core(db))
        assert ledger.audit() == ()
        heads = {state.prepared.new.session: state.id for state in live}
        assert {name: ledger.head(name) == head for name, head in heads.items()} == dict.fromkeys(
            heads, True
        )


def test_sealed_turns_follow_or_fork_alike_in_calls_and_in_statements(
    database: Callable[[], PostgresDatabase],
) -> None:
    by_call, by_statement = database(), database()
    roots = [work("main"), work("moved")]
    states = [
        LiveState(recording.recording(name, "q", None, {}, live=True), "a writer")
        for name in ("main", "fork", "moved", "main")
    ]
    late = work("moved")
    for db in (by_call, by_statement):
        begun(db, roots)
        Ledger(Core(db)).fork("main", label="fork")
        begun(db, [cast(Any, state.begin()) for state in states])
        db.write_alone(late)
    sealings = [cast(ServerWork, state.respond("r", usage=USAGE)) for state in states]

    outcomes = called(by_call, *sealings)
    assert outcomes.pop() is UNDONE  # the second of its session
    outcomes += called(by_call, sealings[-1])
    alone = [by_statement.write_alone(sealing) for sealing in sealings]

    for moved in (outcomes, alone):
        assert [error and (error.label, error.found) for error in moved] == [
            None,
            None,
            ("moved", late.prepared.id),
            ("main", states[0].id),
        ]
    clocked = ("completed_at", "created_at")
    assert rows(by_call, *clocked) == rows(by_statement, *clocked)
    for db in (by_call, by_statement):
        assert Ledger(Core(db)).audit() == ()


def test_turns_that_cannot_be_sealed_in_a_call_are_left(
    db: PostgresDatabase, ledger: Ledger
) -> None:
    chain(ledger, "main", 1)
    with ledger.turn("main", "q") as turn:
        state = turn.state
        other = LiveState(state.prepared, "another writer")
        answer = Message("assistant", "r", codeblocks=(MessageCodeblock("x"),))
        finished = turn.tool_call("Read")
        finished.complete("1")
        steps = state.steps([ToolCall("Read", "{}", '"other"', id=finished.id)])
        before = rows(db)

        for each in (
            other.respond("r", usage=Usage()),
            state.respond(answer, usage=Usage()),
            state.respond("r", usage=Usage(), steps=steps),  # the call has another outcome
            state.respond("r", usage=Usage(1 << 70)),
        ):
            assert called(db, cast(ServerWork, each)) == [UNDONE]
        assert rows(db) == before
        turn.respond(answer)
    assert called(db, cast(ServerWork, state.respond("r", usage=Usage()))) == [UNDONE]
    with pytest.raises(Conflict):
        turn.respond("late")
    assert ledger.audit() == ()


def test_a_turn_whose_sealing_was_lost_is_sealed_once(db: PostgresDatabase, ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    turn = ledger.turn("main", "q")
    turn.message("step")
    lost = cast(Any, turn.state.respond("r", usage=USAGE))
    assert called(db, lost) == [None]
    before = rows(db)

    assert db.write_alone(lost.repeat) is None

    assert rows(db) == before
    assert ledger.head("main") == turn.id


def test_turns_that_are_sealed_together_share_a_transaction(
    db: PostgresDatabase, ledger: Ledger
) -> None:
    names = [f"s{n}" for n in range(32)]
    for name in names:
        chain(ledger, name, 1)
    turns = [ledger.turn(name, "q") for name in names]

    with queueing(db, len(turns)):
        together(*(lambda turn=turn: turn.respond("r") for turn in turns))

    assert transactions(db, "turns", "parent_turn_id IS NOT NULL") <= LEADERS
    assert [ledger.head(name) for name in names] == [turn.id for turn in turns]
    assert ledger.audit() == ()


def test_steps_of_a_live_turn_that_cannot_be_added_are_left(
    db: PostgresDatabase, ledger: Ledger
) -> None:
    chain(ledger, "main", 1)
    with ledger.turn("main", "q") as turn:
        call = turn.tool_call("Read")
        call.complete("1")
        before = rows(db)
        state = turn.state
        other = LiveState(state.prepared, "another writer")

        for each in (
            state.finish(call.call, "failed", error="no"),  # it has another outcome
            state.message(Message("assistant", codeblocks=(MessageCodeblock("x"),)))[1],
            state.start(call.call),  # it has started
            other.message("m")[1],
        ):
            assert called(db, cast(ServerWork, each)) == [UNDONE]
        assert rows(db) == before
        turn.respond("r")
    with pytest.raises(Conflict):
        turn.message("late")


@pytest.mark.parametrize(
    "verb",
    [
        lambda turn: turn.state.message("m")[1],
        lambda turn: turn.state.start(turn.state.call("Read", None, "", None)),
        lambda turn: turn.state.stream("text"),
        lambda turn: turn.state.finish(turn.tool_call("Read").call, "completed"),
    ],
    ids=["message", "start", "stream", "finish"],
)
def test_steps_whose_answer_was_lost_are_not_added_twice(
    db: PostgresDatabase, ledger: Ledger, verb: Callable[[Any], Any]
) -> None:
    chain(ledger, "main", 1)
    with ledger.turn("main", "q") as turn:
        lost = verb(turn)
        assert called(db, lost) == [None]
        before = rows(db)

        db.write_alone(lost.repeat)

        assert rows(db) == before
        turn.respond("r")


def test_a_live_turn_whose_beginning_was_lost_is_begun_once(
    db: PostgresDatabase, ledger: Ledger
) -> None:
    chain(ledger, "main", 1)
    prepared = recording.recording("main", "q", None, {}, live=True)
    lost = LiveState(prepared, db.writer().id).begin()
    assert called(db, cast(ServerWork, lost)) == [None]
    before = rows(db)

    db.write_alone(cast(Any, lost).repeat)

    assert rows(db) == before
    assert ledger.live_turns() == (prepared.id,)


def test_steps_of_many_live_turns_share_a_transaction(db: PostgresDatabase, ledger: Ledger) -> None:
    names = [f"s{n}" for n in range(32)]
    for name in names:
        chain(ledger, name, 1)
    turns = [ledger.turn(name, "q") for name in names]

    with queueing(db, len(turns)):
        together(*(lambda turn=turn: turn.message("step") for turn in turns))

    assert transactions(db, "messages", "content = 'step'") <= LEADERS
    for turn in turns:
        turn.respond("r")
    assert ledger.audit() == ()
