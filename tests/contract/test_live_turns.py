"""Live turns: durable from the first word, sealed with the last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from agents_ledger import (
    Conflict,
    HeadMoved,
    Ledger,
    Message,
    NotFound,
    OutcomeUnknown,
    Refused,
    Session,
    ToolCall,
    Usage,
    new_id,
)
from agents_ledger.ledger.core import Core
from agents_ledger.store.database import Database, Work
from tests.builders import A_USAGE, a_detailed_message, a_full_turn, a_message, chain
from tests.raw import Raw


def test_a_live_turn_is_pending_then_streaming_then_completed(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    other = open_ledger()
    seen: list[str] = []

    with ledger.turn("main", "q") as turn:
        seen.append(other.get_turn(turn.id).status)
        turn.stream("an")
        seen.append(other.get_turn(turn.id).status)
        turn.stream("swer")
        turn.respond()
    seen.append(other.get_turn(turn.id).status)

    assert seen == ["pending", "streaming", "completed"]


def test_everything_said_at_its_begin_is_durable_at_once(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    head = chain(ledger, "main", 1)[0]
    said = a_full_turn()
    for later in ("steps", "response", "usage", "completed_at"):
        del said[later]

    turn = ledger.turn("main", parent=head, **said)

    stored = open_ledger().get_turn(turn.id)
    assert stored.parent_turn_id == head
    assert [m.content for m in stored.query] == ["first", "second", "third"]
    assert stored.query[0].files == said["query"][0].files
    assert (stored.model, stored.role, stored.workspace_path) == (
        "claude-opus-5",
        "manager",
        "/home/me/project",
    )
    assert (stored.completed_at, stored.response) == (None, None)
    assert ledger.head("main") == head
    turn.fail("over")


def test_a_completed_live_turn_is_like_a_recorded_one(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "main", 1)
    with ledger.turn("main", "q", model="m", thread_key="k", system_prompt="s") as turn:
        turn.message("I look.")
        with turn.tool_call("Read", {"path": "a"}, id="c", tool_number=3) as call:
            call.complete({"text": "x"})
        turn.respond(
            a_detailed_message("r", role="assistant"),
            usage=A_USAGE,
            model="better",
            provider="p",
            permissions_used=["read"],
        )

    stored = ledger.get_turn("main")
    assert [type(step).__name__ for step in stored.steps] == [
        "Message",
        "Message",
        "ToolCall",
        "Message",
    ]
    assert stored.response is not None
    assert stored.response.codeblocks == a_detailed_message("r").codeblocks
    [stored_call] = stored.tool_calls
    assert (stored_call.status, stored_call.result_json) == ("completed", '{"text":"x"}')
    assert stored_call.message_id == stored.messages[1].id
    assert (stored.model, stored.provider, stored.permissions_used) == ("better", "p", '["read"]')
    assert (stored.total_tokens, stored.tool_call_count) == (42, 1)
    thread = ledger.thread("main")
    assert (thread.model, thread.total_tokens, thread.thread_key) == ("better", 42, "k")
    assert raw.one("SELECT count(*) FROM live_turns") == 0
    assert raw.one("SELECT count(*) FROM segments") == 1


def test_an_exception_in_the_block_fails_the_turn_and_keeps_what_was_recorded(
    ledger: Ledger,
) -> None:
    head = chain(ledger, "main", 1)[0]

    turn = ledger.turn("main", "q")

    def use_it() -> None:
        with turn:
            turn.message("I divide.")
            turn.tool_call("Divide")
            turn.stream("the result is ")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        use_it()

    stored = ledger.get_turn(turn.id)
    assert (stored.status, stored.error) == ("failed", "ZeroDivisionError: division by zero")
    assert [m.content for m in stored.messages] == ["q", "I divide.", "the result is "]
    assert stored.messages[-1].metadata_json == '{"partial":true}'
    assert stored.response is None
    assert [(c.status, c.error) for c in stored.tool_calls] == [("cancelled", "no result recorded")]
    assert stored.completed_at is not None
    assert ledger.head("main") == head
    assert ledger.live_turns() == ()


def test_leaving_the_block_without_a_response_fails_the_turn(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        turn.stream("half of an ans")

    stored = ledger.get_turn(turn.id)
    assert (stored.status, stored.error) == ("failed", "no response recorded")
    assert [m.content for m in stored.messages] == ["q", "half of an ans"]
    assert ledger.head("main") is None


def test_a_turn_can_be_failed_with_a_reason_and_what_it_cost(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        turn.fail("rate limited", usage=Usage(7))

    stored = ledger.get_turn(turn.id)
    assert (stored.status, stored.error, stored.total_tokens) == ("failed", "rate limited", 7)
    assert ledger.thread(turn.id).total_tokens == 7


@pytest.mark.parametrize(
    "verb",
    [
        lambda turn, call: turn.message("late"),
        lambda turn, call: turn.tool_call("Late"),
        lambda turn, call: turn.stream("late"),
        lambda turn, call: turn.respond("late"),
        lambda turn, call: turn.fail("late"),
        lambda turn, call: call.complete("late"),
        lambda turn, call: call.fail("late"),
        lambda turn, call: call.spawn("late"),
    ],
    ids=["message", "tool_call", "stream", "respond", "fail", "complete", "call.fail", "spawn"],
)
@pytest.mark.parametrize("end", ["respond", "fail"])
def test_every_verb_after_the_seal_is_a_conflict(
    ledger: Ledger, raw: Raw, verb: Callable[..., object], end: str
) -> None:
    turn = ledger.turn("main", "q")
    call = turn.tool_call("Early")
    getattr(turn, end)("over")
    before = raw.dump()

    with pytest.raises(Conflict, match=f"turn {turn.id} is sealed") as caught:
        verb(turn, call)

    assert caught.value.hint
    assert raw.dump() == before


@pytest.mark.parametrize(
    ("verb", "why"),
    [
        (lambda turn, call: turn.stream(None), "a piece of the answer is None"),
        (lambda turn, call: turn.fail(ValueError("no")), "the error of a turn is ValueError"),
        (lambda turn, call: call.fail(ValueError("no")), "the error of a tool call is ValueError"),
        (lambda turn, call: turn.tool_call("Read", id=call.id), "has a tool call 'c' already"),
    ],
    ids=["stream", "fail", "call.fail", "id"],
)
def test_a_step_that_cannot_be_stored_is_refused_in_words(
    ledger: Ledger, raw: Raw, verb: Callable[..., object], why: str
) -> None:
    with ledger.turn("main", "q") as turn:
        call = turn.tool_call("Read", id="c")
        before = raw.dump()

        with pytest.raises(Refused, match=why) as caught:
            verb(turn, call)

        assert caught.value.hint
        assert raw.dump() == before
        call.complete("1")
        turn.respond("r")


def test_a_call_ends_once(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        call = turn.tool_call("Read", id="c")
        call.complete("1")

        with pytest.raises(Conflict, match=r"tool call c .* is finished already"):
            call.fail("no")

        turn.respond("r")

    assert ledger.get_turn("main").tool_calls[0].status == "completed"


def test_a_call_ends_as_its_block_ends(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        with pytest.raises(OSError, match="gone"), turn.tool_call("A"):
            raise OSError("gone")
        with turn.tool_call("B") as call:
            call.fail("no", {"partial": 1})
        with turn.tool_call("C") as call:
            call.cancel()
        with turn.tool_call("D") as call:
            call.reject("not allowed")
        turn.tool_call("E")
        turn.respond("r")

    calls = ledger.get_turn("main").tool_calls
    assert [(c.tool_name, c.status, c.error, c.result_json) for c in calls] == [
        ("A", "failed", "OSError: gone", None),
        ("B", "failed", "no", '{"partial":1}'),
        ("C", "cancelled", None, None),
        ("D", "rejected", "not allowed", None),
        ("E", "cancelled", "no result recorded", None),
    ]
    assert all(call.completed_at for call in calls)


def test_each_of_600_calls_is_seen_by_others_as_it_happens(
    ledger: Ledger, open_ledger: Callable[[], Ledger], raw: Raw
) -> None:
    other = open_ledger()

    with ledger.turn("main", "q") as turn:
        for number in range(600):
            call = turn.tool_call("Read", {"number": number}, id=f"c{number}")
            count = "SELECT count(*) FROM tool_calls"
            assert raw.one(f"{count} WHERE status = 'running'") == 1
            call.complete(number)
            assert raw.one(f"{count} WHERE status = 'completed'") == number + 1
            if number % 100 == 0:
                seen = other.get_turn(turn.id).tool_calls
                assert (len(seen), seen[-1].result_json) == (number + 1, str(number))
        turn.respond("r")

    stored = other.get_turn("main")
    assert stored.tool_call_count == 600
    assert [c.id for c in stored.tool_calls] == [f"c{number}" for number in range(600)]


def test_others_see_the_text_of_a_live_turn_as_it_streams_in(
    ledger: Ledger, open_ledger: Callable[[], Ledger], raw: Raw
) -> None:
    other = open_ledger()

    with ledger.turn("main", "q") as turn:
        assert other.partial_text(turn.id) == ""
        turn.stream("Two ")
        assert other.partial_text(turn.id) == "Two "
        turn.stream("fixes.")
        assert other.partial_text(turn.id) == "Two fixes."
        assert other.live_turns() == (turn.id,)
        turn.respond()

    response = other.get_turn("main").response
    assert response is not None
    assert (response.content, response.metadata_json) == ("Two fixes.", None)
    assert other.partial_text(turn.id) == ""
    assert raw.one("SELECT count(*) FROM partial_texts") == 0


def test_a_response_replaces_what_was_streamed_and_keeps_its_own_words(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        turn.stream("draft")
        turn.respond("final")
    with ledger.turn("main", "q") as turn:
        turn.stream("streamed")
        turn.respond(Message("assistant", thinking="hm", metadata_json="{}"))

    first, second = (turn.response for turn in ledger.thread("main").turns)
    assert first is not None
    assert first.content == "final"
    assert second is not None
    assert (second.content, second.thinking, second.metadata_json) == ("streamed", "hm", "{}")


def test_an_answer_is_kept_when_the_head_moved_meanwhile(ledger: Ledger) -> None:
    root = chain(ledger, "main", 1)[0]
    turn = ledger.turn("main", "q")
    other = ledger.record("main", "quicker", "r")

    with pytest.raises(HeadMoved, match=f"turn {turn.id} was stored") as caught, turn:
        turn.respond("paid for", usage=A_USAGE)

    assert caught.value.turn_id == turn.id
    assert (caught.value.expected, caught.value.found) == (root, other.id)
    stored = ledger.get_turn(turn.id)
    assert (stored.status, stored.parent_turn_id) == ("completed", root)
    assert stored.response is not None
    assert stored.response.content == "paid for"
    assert ledger.head("main") == other.id
    assert ledger.fork(turn.id, label="mine").thread_id == turn.id


def test_a_turn_of_a_session_merged_meanwhile_is_kept_beside_the_one_that_stayed(
    ledger: Ledger,
) -> None:
    mine = chain(ledger, "channel", 1)[0]
    head = chain(ledger, "person", 2)[-1]
    turn = ledger.turn("channel", "q")
    ledger.merge("channel", "person")

    with pytest.raises(HeadMoved) as caught, turn:
        turn.respond("r")

    assert (caught.value.expected, caught.value.found) == (mine, head)
    assert ledger.head("channel") == head
    assert ledger.head("channel", exact=True) == mine
    assert ledger.get_turn(turn.id).status == "completed"


def test_a_live_turn_begins_only_where_its_caller_expects(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "main", 2)
    before = raw.dump()

    with pytest.raises(HeadMoved):
        ledger.turn("main", "q", parent=None)

    assert raw.dump() == before


def test_an_id_in_use_begins_no_live_turn(ledger: Ledger) -> None:
    turn_id = new_id()
    ledger.record("main", "q", "r", id=turn_id)

    with pytest.raises(Conflict, match=f"turn {turn_id} exists already"):
        ledger.turn("main", "q", id=turn_id)


def test_nothing_hangs_on_a_turn_before_it_is_sealed(ledger: Ledger) -> None:
    turn = ledger.turn("main", "q")

    with pytest.raises(Refused, match="still being written"):
        ledger.fork(turn.id)
    with pytest.raises(Refused, match="still being written"):
        ledger.move("main", turn.id)
    with pytest.raises(Refused, match="still being written"):
        ledger.create_session(Session("new", turn.id))

    turn.respond("r")
    assert ledger.fork(turn.id, label="now").thread_id == turn.id


def test_a_refused_message_leaves_the_turn_usable(ledger: Ledger) -> None:
    with ledger.turn("main", a_message(id="taken")) as turn:
        with pytest.raises(Refused):
            turn.message(Message("assistant", "a", id="taken"))
        with pytest.raises(Refused, match="role is one of"):
            turn.message(Message("narrator", "a"))  # type: ignore[arg-type]
        with pytest.raises(Refused, match="assistant's message"):
            turn.respond(a_message())
        turn.tool_call("Read").complete("1")
        turn.respond("r")

    assert ledger.get_turn("main").tool_calls[0].message_id is None


def test_tools_may_run_in_parallel_within_a_turn(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:

        def use(number: int) -> None:
            with turn.tool_call("Read", id=f"c{number}") as call:
                call.complete(number)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        turn.respond("r")

    stored = ledger.get_turn("main")
    assert {(c.id, c.result_json) for c in stored.tool_calls} == {
        (f"c{number}", str(number)) for number in range(8)
    }
    assert sorted(step.sequence for step in stored.steps) == list(range(10))


def test_several_live_turns_on_one_session_make_one_chain_and_branches(ledger: Ledger) -> None:
    turns = [ledger.turn("main", f"q{number}") for number in range(3)]

    turns[1].respond("first")
    for late in (turns[0], turns[2]):
        with pytest.raises(HeadMoved):
            late.respond("late")

    assert ledger.head("main") == turns[1].id
    assert {turn.id for turn in ledger.roots()} == {turn.id for turn in turns}


def test_what_was_streamed_by_a_turn_that_is_not_there_is_nothing(ledger: Ledger) -> None:
    with pytest.raises(NotFound):
        ledger.partial_text("no-such-turn")


class Forgetful:
    """A database that stores what it is told and then says that it may not have."""

    def __init__(self, db: Database) -> None:
        self.forgets = False
        self._db = db

    def write(self, work: Work[Any]) -> Any:
        result = self._db.write(work)
        if self.forgets:
            self.forgets = False
            raise OutcomeUnknown("the commit failed")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@pytest.fixture
def forgetful(db: Database) -> Iterator[tuple[Forgetful, Ledger]]:
    """A ledger that loses the outcome of a commit when told to."""
    database = Forgetful(db)
    with Ledger(Core(cast(Database, database))) as ledger:
        ledger.record("main", "q", "r")
        yield database, ledger


def test_a_recording_of_unknown_outcome_is_stored_once(
    forgetful: tuple[Forgetful, Ledger],
) -> None:
    database, ledger = forgetful
    database.forgets = True

    with pytest.raises(OutcomeUnknown) as caught:
        ledger.record("main", "paid", "for")
    turn_id = caught.value.turn_id
    assert turn_id is not None
    again = ledger.record("main", "paid", "for", id=turn_id)

    assert again.depth == 2
    assert ledger.head("main") == turn_id


def test_a_begin_of_unknown_outcome_can_be_made_again(
    forgetful: tuple[Forgetful, Ledger],
) -> None:
    database, ledger = forgetful
    database.forgets = True

    with pytest.raises(OutcomeUnknown) as caught:
        ledger.turn("main", "q")
    turn_id = caught.value.turn_id
    assert turn_id is not None
    with pytest.raises(Conflict, match="exists already"):
        ledger.turn("main", "other", id=turn_id)
    with ledger.turn("main", "q", id=turn_id) as turn:
        turn.tool_call("Read").complete(1)
        turn.respond("r")

    assert ledger.head("main") == turn_id
    assert ledger.live_turns() == ()


def test_a_response_of_unknown_outcome_is_not_taken_for_a_conflict(
    forgetful: tuple[Forgetful, Ledger],
) -> None:
    database, ledger = forgetful
    turn = ledger.turn("main", "q")

    def respond() -> None:
        with turn, turn.tool_call("Read") as call:
            database.forgets = True
            call.complete("1")

    with pytest.raises(OutcomeUnknown):
        respond()
    assert ledger.get_turn(turn.id).status == "failed"

    again = ledger.turn("main", "q")

    def respond_again() -> None:
        with again:
            database.forgets = True
            again.respond("r")

    with pytest.raises(OutcomeUnknown):
        respond_again()
    assert ledger.head("main") == again.id


def test_steps_are_added_as_a_whole(ledger: Ledger, open_ledger: Callable[[], Ledger]) -> None:
    other = open_ledger()
    turn = ledger.turn("main", "q")

    turn.add(
        Message("assistant", "two of them"),
        ToolCall("Read", '{"n":1}', '"one"', id="a"),
        ToolCall("Read", '{"n":2}', status="running", id="b"),
    )
    seen = other.get_turn(turn.id)
    assert [(c.id, c.status) for c in seen.tool_calls] == [("a", "completed"), ("b", "running")]
    assert {c.message_id for c in seen.tool_calls} == {seen.messages[1].id}

    with pytest.raises(Refused):
        turn.add(Message("assistant", "kept?"), Message(cast(Any, "robot")))
    assert len(other.get_turn(turn.id).messages) == 2

    turn.add(ToolCall("Read", "{}", error="gone", status="failed", id="b"))
    with pytest.raises(Conflict, match="finished already"):
        turn.add(Message("assistant", "again"), ToolCall("Read", "{}", '"two"', id="b"))
    assert len(other.get_turn(turn.id).messages) == 2
    turn.respond("done", steps=[Message("assistant", "both read")])

    stored = other.get_turn("main")
    assert [m.content for m in stored.messages] == ["q", "two of them", "both read", "done"]
    assert [(c.status, c.error) for c in stored.tool_calls] == [
        ("completed", None),
        ("failed", "gone"),
    ]


def test_a_session_knows_its_unfinished_turn(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    other = open_ledger()
    assert other.unfinished("main") is None
    turn = ledger.turn("main", "q")

    growing = other.unfinished("main")
    assert growing is not None
    assert growing.id == turn.id

    turn.respond("r")
    assert other.unfinished("main") is None
    failing = ledger.turn("main", "q")
    failing.fail("no")
    assert other.unfinished("main") is None


@pytest.mark.parametrize("response", [None, ""])
def test_an_answer_must_be_given_or_streamed(ledger: Ledger, response: str | None) -> None:
    turn = ledger.turn("main", "What changed?")
    if response is None:
        with pytest.raises(Refused, match="the response is None, and no text was streamed"):
            turn.respond(response)
        turn.fail("the model sent no text")
    else:
        turn.respond(response)

    assert ledger.get_turn(turn.id).status == ("failed" if response is None else "completed")
