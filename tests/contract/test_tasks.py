"""Tasks: what is saved is kept as it is, and is a session with turns at the same time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from agents_ledger import (
    AsyncLedger,
    Conflict,
    Ledger,
    NotFound,
    Refused,
    Session,
    Task,
    TaskCall,
    TaskMessage,
)
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.tasks import Tasks
from agents_ledger.store.database import Database
from tests.raw import Raw
from tests.statements import Meddled, fail_each_statement
from tests.tasking import a_talk, a_task, calls, says, shape, tasks_of

# -- saving -----------------------------------------------------------------------------------


def test_what_was_saved_is_read_back(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls())

    assert tasks.get("t1") == a_task()
    assert tasks.messages("t1").messages == (
        says("m1", "user", "Hello", 1100),
        says("m2", "assistant", "Hi", 1200),
    )
    assert tasks.calls("t1") == (calls(),)
    assert tasks.get("nobody") is None
    assert tasks.messages("nobody").total == 0
    assert tasks.calls("nobody") == ()


def test_saving_the_same_again_changes_nothing(ledger: Ledger, raw: Raw) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls())
    before = raw.dump()

    tasks.save(a_task(), says("m1", "user", "Hello", 1100), calls())

    assert raw.dump() == before


CHANGES: list[Task | TaskMessage | TaskCall] = [
    a_task(system_prompt="Be long."),
    a_task(created_at=1),
    a_task(parent_task_id="t2"),
    says("m1", "user", "Goodbye", 1100),
    says("m1", "assistant", "Hello", 1100),
    says("m1", "user", "Hello", 1101),
    says("m1", "user", "Hello", 1100, task_id="t2"),
    calls(task_id="t2", start_message_id="n1"),
    calls(ability_name="mem:archive"),
    calls(parameters="{}"),
    calls(created_at=1),
    calls(start_message_id="m1"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_what_does_not_change_is_refused(
    ledger: Ledger, raw: Raw, change: Task | TaskMessage | TaskCall
) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls(), a_task("t2"), says("n1", "user", "Hello", 1100, task_id="t2"))
    before = raw.dump()

    with pytest.raises(Conflict, match=f"{change.id} is saved already"):
        tasks.save(change)

    assert raw.dump() == before


def test_status_and_time_of_a_task_change(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    for status, word in [
        ("success", "completed"),
        ("failed: Maximum iterations reached", "failed"),
        ("error", "failed"),
        ("cancelled", "cancelled"),
        ("done", "completed"),
        (None, "running"),
    ]:
        tasks.save(a_task(completion_status=status, updated_at=2000))

        assert tasks.get("t1") == a_task(completion_status=status, updated_at=2000)
        assert ledger.session("task:t1").task_status == word


def test_a_call_goes_from_pending_to_its_end(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls())
    tasks.save(calls(status="in_progress", updated_at=1600))
    tasks.save(calls(status="in_progress", details='{"at":1}', updated_at=1700))
    tasks.save(says("m3", "assistant", "Done.", 1800))
    done = calls(status="completed", details='{"n":2}', updated_at=1800, end_message_id="m3")
    tasks.save(done)

    assert tasks.calls("t1") == (done,)
    [call] = ledger.get_turn("task:t1").tool_calls
    assert (call.status, call.result_json, call.completed_at) == ("completed", '{"n":2}', 1800)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("in_progress", "pending"),
        ("completed", "in_progress"),
        ("completed", "failed"),
        ("failed", "completed"),
        ("failed", "pending"),
    ],
)
def test_a_call_never_goes_back(ledger: Ledger, raw: Raw, first: str, then: str) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls(status=first))
    before = raw.dump()

    with pytest.raises(Conflict, match=f"is {first}, and does not become {then}"):
        tasks.save(calls(status=then))

    assert raw.dump() == before


MISSING: list[tuple[Task | TaskMessage | TaskCall, str]] = [
    (a_task("t2", parent_task_id="t9"), "no task 't9'"),
    (says("m9", "user", "x", 1, task_id="t9"), "no task 't9'"),
    (calls(task_id="t9"), "no task 't9'"),
    (calls(start_message_id="m9"), "no message 'm9'"),
    (calls(end_message_id="m9"), "no message 'm9'"),
    (calls(start_message_id="n1"), "no message 'n1'"),
]


@pytest.mark.parametrize(("entity", "what"), MISSING, ids=[what for _, what in MISSING])
def test_what_is_named_must_be_there(
    ledger: Ledger, raw: Raw, entity: Task | TaskMessage | TaskCall, what: str
) -> None:
    tasks = a_talk(ledger)
    tasks.save(a_task("t3"), says("n1", "user", "elsewhere", 1100, task_id="t3"))
    before = raw.dump()

    with pytest.raises(NotFound, match=what):
        tasks.save(entity)

    assert raw.dump() == before


@pytest.mark.parametrize(
    "entity",
    [
        a_task("has space"),
        a_task("x" * 201),
        a_task("nul\0"),
        a_task(completion_status="null"),
        says("has space", "user", "x", 1),
        calls("has space"),
        calls(ability_name=""),
        a_task(created_at=-1),
        a_task(updated_at=1 << 50),
        says("m9", "user", "x", 1 << 60),
        calls(created_at=-1),
    ],
)
def test_what_cannot_be_an_id_or_status_is_refused(
    ledger: Ledger, raw: Raw, entity: Task | TaskMessage | TaskCall
) -> None:
    tasks = a_talk(ledger)
    before = raw.dump()

    with pytest.raises(Refused):
        tasks.save(entity)

    assert raw.dump() == before


def test_a_label_that_is_taken_keeps_the_task_out(ledger: Ledger) -> None:
    ledger.create_session("task:t1")

    with pytest.raises(Conflict, match="there is a session 'task:t1' already"):
        tasks_of(ledger).save(a_task())

    assert tasks_of(ledger).get("t1") is None


def test_any_text_is_kept(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    text = "nul \0, lone \ud800, \x1a and \U0001f600"
    tasks.save(
        says("m3", "assistant", text, 1300),
        calls(parameters=text, details=text, status="completed"),
    )

    assert tasks.messages("t1").messages[-1].content == text
    assert tasks.calls("t1")[0].details == text
    turn = ledger.get_turn("task:t1")
    assert turn.messages[-1].content == text


# -- asking -----------------------------------------------------------------------------------


@pytest.fixture
def several(ledger: Ledger) -> Tasks:
    """Five tasks: two ended, two below the first."""
    tasks = tasks_of(ledger)
    tasks.save(
        a_task("a", created_at=10),
        a_task("b", created_at=20, completion_status="success"),
        a_task("c", created_at=30, completion_status="failed: no", parent_task_id="a"),
        a_task("d", created_at=40, parent_task_id="a"),
        a_task("e", created_at=40),
    )
    return tasks


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "edcba"),
        ({"completion_status": "null"}, "eda"),
        ({"completion_status": "success"}, "b"),
        ({"completion_status": "nonsense"}, ""),
        ({"parent_task_id": "a"}, "dc"),
        ({"parent_task_id": "a", "completion_status": "null"}, "d"),
        ({"parent_task_id": "a", "completion_status": "failed: no"}, "c"),
        ({"from_time": 20, "to_time": 30}, "cb"),
        ({"from_time": 20, "completion_status": "null"}, "ed"),
        ({"to_time": 30, "parent_task_id": "a"}, "c"),
        ({"from_time": 0}, "edcba"),
        ({"to_time": 0}, ""),
    ],
)
def test_tasks_are_found_by_every_filter_newest_first(
    several: Tasks, asked: dict[str, Any], expected: str
) -> None:
    page = several.query(**asked)

    assert "".join(task.id for task in page.tasks) == expected
    assert page.total == len(expected)


def test_pages_follow_each_other_and_tell_the_total(several: Tasks) -> None:
    pages = [several.query(limit=2, offset=offset) for offset in (0, 2, 4, 6)]

    assert [[task.id for task in page.tasks] for page in pages] == [
        ["e", "d"], ["c", "b"], ["a"], [],
    ]  # fmt: skip
    assert {page.total for page in pages} == {5}
    assert several.query(limit=0).tasks == ()


def test_messages_stand_by_time_then_in_the_order_they_came(ledger: Ledger) -> None:
    tasks = tasks_of(ledger)
    tasks.save(a_task())
    for name, at in [("z", 5), ("y", 5), ("x", 3), ("w", 5)]:
        tasks.save(says(name, "user", name, at))

    assert [m.id for m in tasks.messages("t1").messages] == ["x", "z", "y", "w"]
    part = tasks.messages("t1", limit=2, offset=1)
    assert ([m.id for m in part.messages], part.total) == (["z", "y"], 4)


def test_calls_of_one_status_are_found(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls("c1"), calls("c2", status="in_progress"), calls("c3", created_at=1))

    assert [call.id for call in tasks.calls("t1")] == ["c3", "c1", "c2"]
    assert [call.id for call in tasks.calls("t1", "in_progress")] == ["c2"]
    assert [call.id for call in tasks.calls("t1", "pending")] == ["c3", "c1"]
    tasks.save(calls("c2", status="failed"))


# -- the task is a session --------------------------------------------------------------------


def test_a_users_message_begins_a_turn_once_somebody_answered(ledger: Ledger) -> None:
    tasks = tasks_of(ledger)
    tasks.save(a_task())
    for number, (role, content) in enumerate(
        [
            ("system", "You help."),
            ("user", "One"),
            ("user", "and two?"),
            ("assistant", "Looking."),
            ("system", "Hurry."),
            ("assistant", "Three."),
            ("user", "Thanks."),
            ("assistant", "Welcome."),
        ]
    ):
        tasks.save(says(f"m{number}", role, content, 100 + number))

    assert shape(ledger, "task:t1") == [
        ("completed", ["You help.", "One", "and two?", "Looking.", "Hurry.", "Three."]),
        ("completed", ["Thanks.", "Welcome."]),
    ]
    first, second = ledger.thread("task:t1").turns
    assert [m.content for m in first.query] == ["You help.", "One", "and two?"]
    assert first.response
    assert first.response.content == "Three."
    assert second.parent_turn_id == first.id
    assert ledger.system_prompt("task:t1") == "Be brief."
    assert ledger.session("task:t1").origin_session_id == "t1"


def test_a_question_without_an_answer_is_a_pending_turn_and_no_head(ledger: Ledger) -> None:
    tasks = tasks_of(ledger)
    tasks.save(a_task(), says("m1", "user", "Anybody?", 1))

    [turn] = ledger.roots()
    assert (turn.status, turn.completed_at) == ("pending", None)
    assert ledger.head("task:t1") is None

    tasks.save(says("m2", "assistant", "Me.", 2))
    assert ledger.head("task:t1") == turn.id


@pytest.mark.parametrize(
    ("completion", "error"),
    [("success", "no response recorded"), ("failed: out of money", "failed: out of money")],
)
def test_a_task_that_ends_without_an_answer_fails_its_last_turn(
    ledger: Ledger, completion: str, error: str
) -> None:
    tasks = tasks_of(ledger)
    tasks.save(a_task(), says("m1", "user", "Anybody?", 1))
    tasks.save(a_task(completion_status=completion))

    [turn] = ledger.roots()
    assert (turn.status, turn.error) == ("failed", error)

    tasks.save(a_task())
    assert ledger.get_turn(turn.id).status == "pending"


def test_a_call_stands_behind_the_message_that_announced_it(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls("c1"), says("m3", "assistant", "Done", 1300), calls("c2"))

    turn = ledger.get_turn("task:t1")
    assert [step.id for step in turn.steps] == ["task:m1", "task:m2", "c1", "c2", "task:m3"]
    assert {call.message_id for call in turn.tool_calls} == {"task:m2"}
    assert turn.tool_call_count == 2


def test_a_call_under_way_in_an_answered_turn_is_given_up_until_its_outcome_comes(
    ledger: Ledger,
) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls(status="in_progress"))
    [running] = ledger.get_turn("task:t1").tool_calls
    tasks.save(calls(status="failed", details='{"error":"timed out"}', updated_at=1700))
    [failed] = ledger.get_turn("task:t1").tool_calls

    assert (running.status, running.source_status) == ("cancelled", "in_progress")
    assert (failed.status, failed.error, failed.source_status) == ("failed", "timed out", None)


def test_a_task_is_found_by_its_words_as_it_grows(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls(parameters='{"key":"umbrella"}'))
    tasks.save(says("m3", "assistant", "A lighthouse.", 1300))
    turn_id = ledger.head("task:t1")

    for word in ("hello", "umbrella", "lighthouse"):
        [hit] = ledger.search(word).hits
        assert (hit.turn_id, hit.session_label) == (turn_id, "task:t1")


def test_a_subtask_is_a_subagent(ledger: Ledger) -> None:
    tasks_of(ledger).save(a_task("a"), a_task("b", parent_task_id="a"))

    child = ledger.session("task:b")
    assert (child.is_subagent, child.parent_session_label) == (True, "task:a")


def test_any_order_of_arrival_ends_in_the_same_turns(
    new_address: Callable[[], str],
) -> None:
    said = [
        says("m1", "user", "One", 1),
        says("m2", "assistant", "Two", 2),
        says("m3", "user", "Three", 3),
        says("m4", "assistant", "Four", 4),
    ]
    with Ledger.open(new_address()) as ledger:
        tasks = tasks_of(ledger)
        found = set()
        for number, order in enumerate(itertools.permutations(said)):
            name = f"t{number}"
            tasks.save(a_task(name))
            for message in order:
                tasks.save(structs.replace(message, id=f"{name}.{message.id}", task_id=name))
            found.add(str(shape(ledger, f"task:{name}")))
            assert [m.id[-2:] for m in tasks.messages(name).messages] == ["m1", "m2", "m3", "m4"]

        assert found == {str([("completed", ["One", "Two"]), ("completed", ["Three", "Four"])])}
        assert ledger.audit() == ()


def test_a_late_message_regroups_and_the_history_follows(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    first = ledger.head("task:t1")
    tasks.save(says("m0", "user", "Before all", 1))

    assert shape(ledger, "task:t1") == [("completed", ["Before all", "Hello", "Hi"])]
    [turn] = ledger.roots()
    assert turn.id != first
    assert {move.thread_id for move in ledger.history("task:t1")} == {turn.id}


def test_a_task_can_be_forked_and_goes_on_beside_the_fork(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    ledger.fork("task:t1", label="mine")
    ledger.record("mine", "And now?", "Ours.")
    tasks.save(says("m3", "assistant", "More of the same answer", 1300))
    tasks.save(says("m4", "user", "Next", 1400), says("m5", "assistant", "Sure", 1500))

    assert shape(ledger, "mine") == [
        ("completed", ["Hello", "Hi"]),
        ("completed", ["And now?", "Ours."]),
    ]
    assert shape(ledger, "task:t1") == [
        ("completed", ["Hello", "Hi"]),
        ("completed", ["More of the same answer"]),
        ("completed", ["Next", "Sure"]),
    ]


def test_a_task_continued_by_us_keeps_our_head_and_follows_beside_it(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    ours = ledger.record("task:t1", "I take over.", "Fine.")
    tasks.save(says("m3", "user", "Still there?", 1300), says("m4", "assistant", "Yes", 1400))

    assert ledger.head("task:t1") == ours.id
    assert shape(ledger, "task:t1~source")[-1] == ("completed", ["Still there?", "Yes"])
    assert ledger.session("task:t1").source_has_more


def test_a_call_that_ends_after_its_turn_was_frozen_is_kept_and_said(ledger: Ledger) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls(status="in_progress"))
    ledger.record("task:t1", "I take over.", "Fine.")
    tasks.save(calls(status="completed", details="1", updated_at=1700))
    tasks.save(calls("c2"))

    assert [call.status for call in tasks.calls("t1")] == ["completed", "pending"]
    assert ledger.session("task:t1").source_has_more


def test_a_long_turn_grows_without_being_rewritten(db: Database) -> None:
    statements, database = Meddled.over(db)
    with Ledger(Core(database)) as ledger:
        tasks = a_talk(ledger)
        ran = []
        for number in range(40):
            tasks.save(says(f"x{number}", "assistant", "more", 2000 + number))
            ran.append(len(statements.ran))
        tasks.save(calls(start_message_id="x39"))
        tasks.save(calls(start_message_id="x39", status="completed"))

    assert len(set(ran)) == 1
    assert "delete_turn_messages" not in statements.ran


def test_writers_of_one_task_and_forks_of_it_at_once_lose_nothing(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    handles = [ledger, open_ledger()]
    a_talk(ledger)

    def write(number: int) -> None:
        own = handles[number % 2]
        for step in range(8):
            said = says(f"x{number}-{step}", "assistant", "x", 2000 + step)
            tasks_of(own).save(said)
            if step % 4 == 0:
                fork = own.fork("task:t1", label=f"fork-{number}-{step}")
                own.record(fork.label, "And now?", "Ours.")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))

    assert tasks_of(ledger).messages("t1").total == 2 + 4 * 8


# What happens to a task, in order: a4 an answer that says it was given at 4, q2 a question at 2, f
# a fork at the head, r1 a turn of ours on the fork 1.
MIXED = (
    "a4 a4 a3 f a1 f a2 a1 r1 a1 a5 f r2 a4 a0 a6",
    "a6 a0 a3 f a7 a3 a3 f f q6 a4 r0 a6 f a1 r1 f q1 r3 f q7 f a5",
)


@pytest.mark.parametrize("happening", MIXED)
def test_late_messages_find_a_turn_below_those_that_ours_stand_on(
    ledger: Ledger, happening: str
) -> None:
    a_talk(ledger)
    forks = 0
    for number, event in enumerate(happening.split()):
        kind, which = event[0], event[1:]
        if kind == "f":
            ledger.fork("task:t1", label=f"fork-{forks}")
            forks += 1
        elif kind == "r":
            ledger.record(f"fork-{which}", "And now?", "Ours.")
        else:
            role = "user" if kind == "q" else "assistant"
            tasks_of(ledger).save(says(f"x{number}", role, "x", 2000 + int(which)))
        assert ledger.audit() == ()


# -- all or nothing ---------------------------------------------------------------------------


def test_a_batch_is_one_transaction(ledger: Ledger, raw: Raw) -> None:
    before = raw.dump()
    with pytest.raises(NotFound), ledger.batch() as batch:
        batch.save(a_task(), says("m1", "user", "Hello", 1), calls(start_message_id="m9"))
    with suppress(ZeroDivisionError), ledger.batch() as batch:
        batch.save(a_task())
        raise ZeroDivisionError
    assert raw.dump() == before

    with ledger.batch() as batch:
        batch.save(a_task(), says("m1", "user", "Hello", 1), says("m2", "assistant", "Hi", 2))
        batch.save(calls(status="in_progress"), says("m3", "assistant", "Done", 3))
        batch.save(calls(status="completed", end_message_id="m3"))

    assert shape(ledger, "task:t1") == [("completed", ["Hello", "Hi", "Done"])]
    lines = [(move.reason, move.computed) for move in ledger.history("task:t1")]
    assert lines == [("import", False), ("import", True)]


def test_an_empty_batch_and_a_stranger_in_it(ledger: Ledger) -> None:
    with ledger.batch():
        pass
    with pytest.raises(Refused, match="not a Session"), ledger.batch() as batch:
        batch.save(Session("x"))  # type: ignore[arg-type]


def test_a_batch_can_be_awaited(address: str) -> None:
    async def save() -> None:
        async with AsyncLedger.open(address) as ledger:
            async with ledger.batch() as batch:
                batch.save(a_task(), says("m1", "user", "Hello", 1))
                batch.save(calls(start_message_id="m1", status="in_progress"))
            with suppress(ZeroDivisionError):
                async with ledger.batch() as batch:
                    batch.save(a_task("t2"))
                    raise ZeroDivisionError
            async with ledger.batch() as batch:
                batch.save(calls(start_message_id="m1", status="failed"))

    asyncio.run(save())

    with Ledger.open(address) as ledger:
        assert [task.id for task in tasks_of(ledger).query().tasks] == ["t1"]


def test_a_save_that_fails_at_any_statement_leaves_nothing(db: Database, raw: Raw) -> None:
    statements, database = Meddled.over(db)
    with Ledger(Core(database)) as ledger:
        tasks = a_talk(ledger)
        for entities in (
            (a_task("t2"), says("n1", "user", "x", 1, task_id="t2")),
            (says("m3", "assistant", "grown", 1300),),
            (calls(),),
            (calls(status="in_progress"),),
            (says("m0", "user", "regrouped", 1),),
            (calls(status="completed"), a_task(completion_status="success")),
        ):
            before = raw.dump()

            def check(failed: str, before: dict[str, Any] = before) -> None:
                # seen_at is renewed apart
                assert {**raw.dump(), "writers": before["writers"]} == before, failed

            ran = fail_each_statement(statements, partial(tasks.save, *entities), check)
            assert ran[-1] == "COMMIT"
