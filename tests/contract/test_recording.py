"""Recording: a finished turn is stored with all its parts, or not at all."""

from __future__ import annotations

import msgspec
import pytest

from agents_ledger import (
    Conflict,
    HeadMoved,
    Ledger,
    Message,
    MessageFile,
    NameTaken,
    Refused,
    ToolCall,
    Usage,
    new_id,
)
from tests.builders import A_USAGE, a_call, a_full_turn, a_message, chain
from tests.raw import Raw


def test_a_question_and_its_answer_become_a_completed_turn(ledger: Ledger) -> None:
    recorded = ledger.record("main", "What is a turn?", "One exchange.")

    turn = ledger.get_turn(recorded.id)
    assert turn == recorded
    assert turn.status == "completed"
    assert [(m.role, m.source, m.content) for m in turn.query] == [
        ("user", "human", "What is a turn?")
    ]
    assert turn.response is not None
    assert (turn.response.role, turn.response.content) == ("assistant", "One exchange.")
    assert ledger.head("main") == turn.id


def test_every_part_of_a_turn_comes_back_as_it_was_recorded(ledger: Ledger) -> None:
    recorded = ledger.record("main", **a_full_turn())

    assert ledger.get_turn(recorded.id) == recorded
    assert ledger.thread("main").turns == (recorded,)


def test_a_query_may_be_several_messages_each_with_its_source(ledger: Ledger) -> None:
    query: list[str | Message] = [
        a_message("a", source="human"),
        a_message("b", source="cron"),
        "c",
    ]

    turn = ledger.record("main", query, "answer")

    stored = ledger.get_turn(turn.id)
    assert [(m.content, m.source) for m in stored.query] == [
        ("a", "human"),
        ("b", "cron"),
        ("c", "human"),
    ]
    assert msgspec.json.decode(stored.query_message_ids or "") == [m.id for m in stored.query]


def test_messages_and_calls_share_one_order(ledger: Ledger) -> None:
    steps: list[Message | ToolCall] = [
        a_message("think", role="assistant"),
        a_call("A"),
        a_call("B"),
        a_message("c"),
    ]

    turn = ledger.get_turn(ledger.record("main", "q", "r", steps=steps).id)

    assert [step.sequence for step in turn.steps] == [0, 1, 2, 3, 4, 5]
    assert [s.content if isinstance(s, Message) else s.tool_name for s in turn.steps] == [
        "q",
        "think",
        "A",
        "B",
        "c",
        "r",
    ]


def test_a_call_belongs_to_the_assistant_message_before_it(ledger: Ledger) -> None:
    steps: list[Message | ToolCall] = [a_message("I read.", role="assistant"), a_call()]

    turn = ledger.record("main", "q", "r", steps=steps)

    assert turn.tool_calls[0].message_id == turn.messages[1].id


def test_turns_may_repeat_the_call_ids_of_a_provider(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.record("main", "q", "r", steps=[a_call(id="call_0")])

    assert [turn.tool_calls[0].id for turn in ledger.thread("main").turns] == ["call_0"] * 2


def test_recording_marks_the_parent_and_moves_the_head_with_a_line_of_history(
    ledger: Ledger,
) -> None:
    first = ledger.record("main", "a", "b")
    second = ledger.record("main", "c", "d")

    assert second.parent_turn_id == first.id
    assert second.depth == 2
    assert ledger.get_turn(first.id).has_children
    assert not ledger.get_turn(second.id).has_children
    assert [move.thread_id for move in ledger.history("main")] == [second.id, first.id]


def test_a_failed_turn_is_kept_and_does_not_move_the_head(ledger: Ledger) -> None:
    first = ledger.record("main", "a", "b")

    failed = ledger.record(
        "main",
        "c",
        status="failed",
        error="no answer",
        usage=A_USAGE,
        steps=[ToolCall("Bash", status="running")],
    )

    stored = ledger.get_turn(failed.id)
    assert (stored.status, stored.error) == ("failed", "no answer")
    assert stored.parent_turn_id == first.id
    assert stored.tool_calls[0].status == "cancelled"
    assert ledger.head("main") == first.id
    assert len(ledger.history("main")) == 1


def test_a_total_not_said_is_input_and_output(ledger: Ledger) -> None:
    turn = ledger.record("main", "q", "r", usage=Usage(input_tokens=3, output_tokens=4))

    assert ledger.get_turn(turn.id).total_tokens == 7


def test_the_same_call_with_the_same_id_again_changes_nothing(ledger: Ledger, raw: Raw) -> None:
    turn_id = new_id()
    said = a_full_turn(id=turn_id, config=None)
    first = ledger.record("main", **said)
    before = raw.dump()

    again = ledger.record("main", **said)

    assert again == first
    assert raw.dump() == before


def test_a_retry_succeeds_after_the_session_went_on(ledger: Ledger) -> None:
    turn_id = new_id()
    ledger.record("main", "q", "r", id=turn_id, parent=None)
    later = ledger.record("main", "q2", "r2")

    again = ledger.record("main", "q", "r", id=turn_id, parent=None)

    assert again.id == turn_id
    assert again.has_children
    assert ledger.head("main") == later.id


@pytest.mark.parametrize(
    "other",
    [
        {"query": "another"},
        {"response": "another"},
        {"session": "another"},
        {"model": "another"},
        {"usage": Usage(1)},
        {"steps": [a_call()]},
    ],
    ids=lambda other: next(iter(other)),
)
def test_an_id_used_for_other_content_is_a_conflict(
    ledger: Ledger, raw: Raw, other: dict[str, object]
) -> None:
    said: dict[str, object] = {"session": "main", "query": "q", "response": "r", "id": new_id()}
    ledger.record(**said)  # type: ignore[arg-type]
    before = raw.dump()

    with pytest.raises(Conflict, match=f"turn {said['id']} is recorded already, with other"):
        ledger.record(**{**said, **other})  # type: ignore[arg-type]

    assert raw.dump() == before


def test_a_late_writer_is_told_that_the_head_moved_and_leaves_nothing(
    ledger: Ledger, raw: Raw
) -> None:
    root = ledger.record("main", "a", "b")
    theirs = ledger.record("main", "c", "d", parent=root.id)
    before = raw.dump()

    with pytest.raises(HeadMoved, match=f"is at {theirs.id}, not at {root.id}") as caught:
        ledger.record("main", "e", "f", parent=root.id)

    assert (caught.value.expected, caught.value.found) == (root.id, theirs.id)
    assert caught.value.turn_id is None
    assert raw.dump() == before


def test_a_writer_that_expects_an_empty_session_is_told_of_its_head(ledger: Ledger) -> None:
    [head] = chain(ledger, "main", 1)

    with pytest.raises(HeadMoved, match=f"is at {head}, and no longer empty"):
        ledger.record("main", "a", "b", parent=None)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"status": "failed"}, "a failed turn says why"),
        ({"error": "but completed"}, "a failed turn says why"),
        ({"status": "pending"}, "completed or failed, not 'pending'"),
        ({"role": "boss"}, "one of manager, unified, worker, not 'boss'"),
        ({"steps": [ToolCall("Bash", status="running")]}, "of a completed turn is running"),
        ({"steps": [ToolCall("Bash", status="odd")]}, "status is one of .* not 'odd'"),  # type: ignore[arg-type]
        ({"steps": [ToolCall("")]}, "needs the name of its tool"),
        ({"steps": ["text"]}, "consists of messages and tool calls, not str"),
        ({"steps": [a_message(role="narrator")]}, "role is one of .* not 'narrator'"),
        ({"steps": [a_call(id="x"), a_call(id="x")]}, "has a tool call 'x' already"),
        ({"steps": "text"}, "steps are a list of messages and tool calls, not 'text'"),
        ({"query": {"role": "user", "content": "q"}}, "a query is text, a message, or a list"),
        ({"query": b"q"}, "a query is text, a message, or a list"),
        ({"response": a_message(role="user")}, "response is an assistant's message, not a user's"),
        ({"usage": Usage(1 << 70)}, "too large|out of range"),
        ({"colour": "blue"}, "no field 'colour'"),
        ({"id": 'a "quoted" id'}, "cannot be an id"),
        ({"id": ""}, "cannot be an id"),
        ({"id": 5}, "an id is 5"),
        (
            {"query": [a_message(id="m"), a_message(id="m")]},
            "there is a message with this id already",
        ),
        ({"session": None}, "the name of a session is None"),
        ({"session": ""}, "label has 1 to 512 characters"),
        ({"session": "x" * 513}, "label has 1 to 512 characters"),
    ],
)
def test_what_no_ledger_can_hold_is_refused_in_words(
    ledger: Ledger, raw: Raw, said: dict[str, object], why: str
) -> None:
    chain(ledger, "main", 1)
    before = raw.dump()

    with pytest.raises(Refused, match=why):
        ledger.record(**{"session": "main", "query": "q", **said})  # type: ignore[arg-type]

    assert raw.dump() == before


def test_a_system_prompt_is_stored_once_and_holds_until_another_is_said(
    ledger: Ledger, raw: Raw
) -> None:
    first = ledger.record("main", "a", "b", system_prompt="Be brief.")
    second = ledger.record("main", "c", "d", system_prompt="Be brief.")
    third = ledger.record("main", "e", "f")
    fourth = ledger.record("main", "g", "h", system_prompt="Be long.")

    prompts = [ledger.system_prompt(t.id) for t in (first, second, third, fourth)]
    assert prompts == ["Be brief.", "Be brief.", "Be brief.", "Be long."]
    assert raw.one("SELECT count(*) FROM system_prompts") == 2


def test_a_file_named_twice_in_a_message_counts_once(ledger: Ledger) -> None:
    file = MessageFile("read", "a.py")
    turn = ledger.record("main", a_message(files=(file, file)), "r")

    assert ledger.get_turn(turn.id).messages[0].files == (file,)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"usage": Usage(input_tokens=-1)}, "input_tokens is -1"),
        ({"usage": Usage(cached_input_tokens=1.5)}, "cached_input_tokens is 1.5"),  # type: ignore[arg-type]
        ({"usage": Usage(total_tokens="7")}, "total_tokens is '7'"),  # type: ignore[arg-type]
        ({"usage": Usage(output_tokens=True)}, "output_tokens is True"),
        ({"usage": {"input_tokens": 1}}, "a turn's usage is a Usage, not {'input_tokens': 1}"),
        ({"started_at": -1}, "started_at is -1"),
        ({"started_at": 1.5}, "started_at is 1.5"),
        ({"started_at": 253_370_764_800_000}, "started_at is 253370764800000"),
        ({"started_at": 1_795_052_633}, "started_at is 1795052633, which is in early 1970"),
        ({"completed_at": 10**30}, "completed_at is 1000"),
        ({"completed_at": "now"}, "completed_at is 'now'"),
        ({"started_at": 2000, "completed_at": 1999}, "1999, before started_at, which is 2000"),
        ({"query": None}, "a query is text, a message, or a list of these, not None"),
        ({"query": 5}, "a list of these, not 5"),
        ({"steps": a_call()}, "steps are a list of messages and tool calls, not ToolCall"),
    ],
)
def test_a_turn_with_impossible_values_is_refused(
    ledger: Ledger, raw: Raw, said: dict[str, object], why: str
) -> None:
    before = raw.dump()

    with pytest.raises(Refused, match=why):
        ledger.record("main", **{"query": "q", "response": "r", **said})  # type: ignore[arg-type]

    assert raw.dump() == before


def test_a_live_turn_is_not_sealed_with_impossible_tokens(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        with pytest.raises(Refused, match="output_tokens is -5"):
            turn.respond("r", usage=Usage(output_tokens=-5))
        turn.respond("r", usage=Usage(output_tokens=5))

    assert ledger.get_turn("main").output_tokens == 5


def test_a_turn_never_ends_before_it_begins(ledger: Ledger) -> None:
    past = ledger.record("main", "q", "r", completed_at=1000)
    future = ledger.record("main", "q", "r", started_at=250_000_000_000_000)
    instant = ledger.record("main", "q", "r", started_at=5000, completed_at=5000)

    assert (past.started_at, past.completed_at) == (1000, 1000)
    assert future.completed_at == future.started_at
    assert (instant.started_at, instant.completed_at) == (5000, 5000)


@pytest.mark.finding("spec-5")
def test_messages_and_calls_of_a_backdated_turn_have_its_times(ledger: Ledger) -> None:
    turn = ledger.record(
        "main",
        "q",
        "r",
        steps=[
            Message("assistant", "hm"),
            ToolCall("Read", "{}", status="completed"),
            ToolCall("Read", "{}", status="completed", started_at=1200, completed_at=1300),
        ],
        started_at=1000,
        completed_at=2000,
    )

    turn = ledger.get_turn(turn.id)
    assert [message.created_at for message in turn.messages] == [1000, 2000, 2000]
    assert [(c.started_at, c.completed_at) for c in turn.tool_calls] == [(2000, 2000), (1200, 1300)]


@pytest.mark.finding("spec-10")
def test_a_thread_key_belongs_to_one_thread(ledger: Ledger) -> None:
    first = ledger.record("main", "q", "r", thread_key="dm:alice")
    second = ledger.record("other", "q", "r")

    for session in ("main", "other", "new"):
        with pytest.raises(NameTaken, match="a thread with the key 'dm:alice' already"):
            ledger.record(session, "q", "r", thread_key="dm:alice")
    with (
        pytest.raises(NameTaken, match="dm:alice"),
        ledger.turn("other", "q", thread_key="dm:alice"),
    ):
        pass
    with ledger.turn("other", "q", thread_key="dm:bob") as turn:
        turn.respond("r")

    assert (ledger.head("main"), ledger.head("other")) == (first.id, turn.id)
    assert ledger.get_turn(turn.id).parent_turn_id == second.id
    assert {session.label for session in ledger.sessions()} == {"main", "other"}
    assert ledger.audit() == ()
