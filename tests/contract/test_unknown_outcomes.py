"""A commit whose outcome is unknown: the same call again is stored once, whatever it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, cast

import pytest

from agents_ledger import (
    Ask,
    AsyncLedger,
    AsyncQueue,
    Conflict,
    HeadMoved,
    Ledger,
    Message,
    OutcomeUnknown,
    Queue,
    ToolCall,
    Usage,
)
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.sessions.queue_entries import ClaimEnding
from agents_ledger.store.database import CommitCallback, Database, Work
from tests.contract.test_async_ledger import Forgotten
from tests.raw import Raw

T = TypeVar("T")


class Unsure:
    """A database that does what it is told, or not, and when asked to says that nobody knows."""

    def __init__(self, db: Database) -> None:
        self.forgets: list[str] = []  # stored or lost, for each of the next writes
        self._db = db

    def write(self, work: Work[Any]) -> Any:
        how = self.forgets.pop(0) if self.forgets else ""
        result = None if how == "lost" else self._db.write(work)
        if how:
            raise OutcomeUnknown("the commit failed")
        return result

    def submit(self, work: Work[Any], answer: CommitCallback) -> Any:
        how = self.forgets.pop(0) if self.forgets else ""
        if how == "lost":
            return self._db.submit(lambda tx: None, Forgotten(answer))
        return self._db.submit(work, Forgotten(answer) if how else answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@pytest.fixture(params=["stored", "lost"])
def unsure(request: pytest.FixtureRequest, db: Database) -> tuple[Unsure, Callable[[], None]]:
    """A database, and how to let it forget the outcome of its next write."""
    database = Unsure(db)
    return database, lambda: database.forgets.append(request.param)


@pytest.fixture
def forgetful(
    unsure: tuple[Unsure, Callable[[], None]],
) -> Iterator[tuple[Ledger, Callable[[], None]]]:
    """A ledger, and how to let it forget the outcome of its next write."""
    database, forget = unsure
    with Ledger(Core(cast(Database, database))) as ledger:
        ledger.record("main", "q", "r")
        yield ledger, forget


def test_every_verb_of_a_live_turn_is_stored_once(
    forgetful: tuple[Ledger, Callable[[], None]],
) -> None:
    ledger, forget = forgetful

    def twice(verb: Callable[[], T]) -> T:
        forget()
        with pytest.raises(OutcomeUnknown):
            verb()
        return verb()

    turn = ledger.turn("main", "q")
    twice(lambda: turn.stream("ha"))
    turn.stream("ha")
    twice(lambda: turn.stream("ha"))
    assert ledger.partial_text(turn.id) == "hahaha"
    said = twice(lambda: turn.message("hahaha", streamed=True))
    assert turn.message("hahaha").id != said.id  # said twice, and both are known to be stored
    call = twice(lambda: turn.tool_call("Task", {"of": 1}))
    assert turn.tool_call("Task", {"of": 1}).id != call.id
    twice(lambda: call.spawn("worker"))
    twice(lambda: call.complete({"n": 2}))
    twice(lambda: turn.stream("so"))
    twice(
        lambda: turn.respond(
            Message("assistant", thinking="hm"),
            usage=Usage(input_tokens=1, output_tokens=2),
            model="m",
            permissions_used={"tools": {"Task": 1}},
        )
    )

    stored = ledger.get_turn("main")
    assert stored.id == turn.id
    assert [m.content for m in stored.messages] == ["q", "hahaha", "hahaha", "so"]
    assert [(c.status, c.result_json) for c in stored.tool_calls] == [
        ("completed", '{"n":2}'),
        ("cancelled", None),
    ]
    assert [m.sequence for m in stored.messages] == [0, 1, 2, 5]
    assert [c.sequence for c in stored.tool_calls] == [3, 4]
    assert ledger.session("worker").spawn_tool_call_id == call.id


def test_a_failure_said_again_changes_nothing_and_other_words_are_a_conflict(
    forgetful: tuple[Ledger, Callable[[], None]], raw: Raw
) -> None:
    ledger, forget = forgetful
    turn = ledger.turn("main", "q")
    forget()
    with pytest.raises(OutcomeUnknown):
        turn.fail("no")
    turn.fail("no")
    before = raw.dump()

    with pytest.raises(Conflict, match="is sealed"):
        turn.fail("other")
    with pytest.raises(Conflict, match="is sealed"):
        turn.fail("no", usage=Usage(input_tokens=1))
    with pytest.raises(Conflict, match="is sealed"):
        turn.respond("r")
    assert raw.dump() == before
    assert ledger.get_turn(turn.id).error == "no"


@pytest.mark.parametrize(
    "other",
    [{"usage": Usage(input_tokens=1)}, {"model": "m"}, {"provider": "p"}, {"permissions_used": []}],
    ids=lambda other: next(iter(other)),
)
def test_an_answer_said_again_with_anything_else_is_a_conflict(
    ledger: Ledger, raw: Raw, other: dict[str, Any]
) -> None:
    turn = ledger.turn("main", "q")
    turn.respond("r")
    before = raw.dump()

    turn.respond("r")
    with pytest.raises(Conflict, match="is sealed"):
        turn.respond("r", **other)
    with pytest.raises(Conflict, match="is sealed"):
        turn.respond(Message("assistant", "r", thinking="hm"))

    assert raw.dump() == before


def test_an_answer_beside_the_head_says_so_again(
    forgetful: tuple[Ledger, Callable[[], None]],
) -> None:
    ledger, forget = forgetful
    turn = ledger.turn("main", "q")
    ledger.record("main", "meanwhile", "r")
    forget()
    with pytest.raises(OutcomeUnknown):
        turn.respond("r")

    with pytest.raises(HeadMoved) as caught:
        turn.respond("r")

    assert caught.value.turn_id == turn.id
    assert caught.value.found == ledger.head("main")
    assert ledger.get_turn(turn.id).status == "completed"


def on(unsure: Unsure, act: Callable[[AsyncQueue], Awaitable[T]]) -> T:
    async def within() -> T:
        return await act(AsyncQueue(await AsyncLedger(lambda: Core(cast(Database, unsure)))))

    return asyncio.run(within())


def test_a_call_that_is_awaited_again_is_stored_once(
    unsure: tuple[Unsure, Callable[[], None]],
) -> None:
    database, forget = unsure

    async def within() -> tuple[str, ...]:
        ledger = await AsyncLedger(lambda: Core(cast(Database, database)))
        turn = await ledger.turn("main", "q")
        call = turn.tool_call("Read", {"n": 1})
        forget()
        with pytest.raises(OutcomeUnknown):
            await call
        await call
        await call.complete(1)
        forget()
        with pytest.raises(OutcomeUnknown):
            await turn.message("m")
        await turn.message("m")
        await turn.respond("r")
        stored = await ledger.get_turn(turn.id)
        return (*(m.content or "" for m in stored.messages), *(c.id for c in stored.tool_calls))

    said = asyncio.run(within())

    assert said[:3] == ("q", "m", "r")
    assert len(said) == 4


def test_a_line_goes_on_though_the_outcome_of_every_write_was_unknown(
    unsure: tuple[Unsure, Callable[[], None]], ledger: Ledger
) -> None:
    database, forget = unsure
    ledger.record("main", "q", "r")

    async def act(lines: AsyncQueue) -> list[str]:
        answered = []
        for number in range(3):
            forget()
            await lines.enqueue("main", Ask((Message("user", f"q{number}"),)), id=f"e{number}")
        forget()
        claim = await lines.claim()
        while claim is not None:
            [entry] = claim.entries
            forget()
            turn = await lines.begin(claim, f"answers {entry.id}")
            if entry.id == "e1":
                await lines.enqueue("main", Ask((Message("user", "steer"),)), mode="steer", id="s")
                forget()
                assert [taken.id for taken in await lines.steer(turn, "main")] == ["s"]
            work = turn.state.respond("r", usage=Usage())
            forget()
            _, claim = await lines.seal(claim, turn, ClaimEnding((work,), "done", go_on=True))
            answered.append(turn.id)
        return answered

    answered = on(database, act)

    turns = ledger.thread("main").turns[1:]
    assert [turn.id for turn in turns] == answered
    assert [turn.query[0].content for turn in turns] == [f"answers e{n}" for n in range(3)]
    assert {entry.status for entry in Queue(ledger).entries(everything=True)} == {"done"}
    assert ledger.live_turns() == ()


def test_steps_that_are_added_again_are_stored_once(
    forgetful: tuple[Ledger, Callable[[], None]],
) -> None:
    ledger, forget = forgetful
    turn = ledger.turn("main", "q")
    call = ToolCall("Read", "{}", status="running", id="c1")
    done = ToolCall("Read", "{}", '"text"', id="c1")

    verbs: tuple[Callable[[], None], ...] = (
        lambda: turn.add(Message("assistant", "let me look"), call),
        lambda: turn.add(Message("tool", tool_call_id="c1"), done),
        lambda: turn.respond("so", steps=[Message("assistant", "hm")]),
    )
    for verb in verbs:
        forget()
        with pytest.raises(OutcomeUnknown):
            verb()
        verb()

    stored = ledger.get_turn("main")
    assert [m.content for m in stored.messages] == ["q", "let me look", None, "hm", "so"]
    assert [(c.status, c.result_json) for c in stored.tool_calls] == [("completed", '"text"')]
    assert stored.tool_calls[0].message_id == stored.messages[1].id
    assert ledger.audit() == ()


def test_steps_that_are_added_again_with_more_are_all_stored(
    forgetful: tuple[Ledger, Callable[[], None]],
) -> None:
    ledger, forget = forgetful
    turn = ledger.turn("main", "q")
    steps = (Message("assistant", "let me look"), ToolCall("Read", "{}", '"a"', id="c1"))
    forget()
    with pytest.raises(OutcomeUnknown):
        turn.add(*steps)

    turn.add(*steps, Message("assistant", "once more"), ToolCall("Read", "{}", '"b"', id="c2"))
    turn.respond("so")

    stored = ledger.get_turn("main")
    assert [m.content for m in stored.messages] == ["q", "let me look", "once more", "so"]
    assert [call.id for call in stored.tool_calls] == ["c1", "c2"]
    assert ledger.audit() == ()
