"""Tasks after a crash: calls under way failed, nothing runs twice; and messages that stream in."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agents_ledger import Conflict, Ledger, NotFound, Refused
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.maintenance.copying import copy
from tests.contract.test_recovery import LEASE_MS, database, handle, kill
from tests.raw import Raw
from tests.tasking import a_talk, a_task, calls, says, shape, tasks_of

__all__ = ["handle"]  # a fixture

WRITER = """
import sys
from agents_ledger import Ledger
from tests.tasking import a_task, calls, says, tasks_of

ledger = Ledger.open(sys.argv[1])
tasks = tasks_of(ledger)
tasks.save(a_task(), says("m1", "user", "Find it.", 1), says("m2", "assistant", "Looking.", 2))
tasks.save(calls("c1", status="completed", details='{"n":1}'))
tasks.save(calls("c2", status="in_progress"), calls("c3"))
tasks.save(a_task("t2"), says("n1", "user", "And this?", 1, task_id="t2"))
tasks.stream("t2", "n2").write("half an ans")
print("writing", flush=True)
sys.stdin.readline()
"""


@contextmanager
def crashed(address: str) -> Iterator[None]:
    """Another process died in the middle of a call and of a message."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        kill(process, address)
        yield


def test_a_call_whose_process_died_is_failed_and_a_message_says_so(
    address: str, handle: Callable[[], Ledger]
) -> None:
    with crashed(address):
        ledger = handle()
        tasks = tasks_of(ledger)
        assert [call.status for call in tasks.calls("t1")] == [
            "completed", "in_progress", "pending",
        ]  # fmt: skip

        ledger.recover()

    done, failed, waiting = tasks.calls("t1")
    assert (done.status, waiting.status) == ("completed", "pending")
    assert (failed.status, failed.details) == (
        "failed",
        '{"error":"Process crashed during execution"}',
    )
    last = tasks.messages("t1").messages[-1]
    assert (last.id, last.role) == (failed.end_message_id, "assistant")
    assert last.content == "✗ mem:retrieve failed due to process crash"
    by_id = {call.id: call for call in ledger.get_turn("task:t1").tool_calls}
    assert (by_id["c2"].status, by_id["c2"].error) == ("failed", "Process crashed during execution")


def test_a_task_is_resumed_and_nothing_runs_twice(
    address: str, handle: Callable[[], Ledger]
) -> None:
    with crashed(address):
        tasks = tasks_of(handle())
        tasks.save(says("m9", "user", "Where were we?", 1 << 47))  # recovers by itself

        [active, other] = tasks.query(completion_status="null").tasks
        assert {active.id, other.id} == {"t1", "t2"}
        assert tasks.calls("t1", "in_progress") == ()
        with pytest.raises(Conflict, match="c2 is failed, and does not become completed"):
            tasks.save(calls("c2", status="completed"))
        tasks.save(calls("c3", status="in_progress"))
        tasks.save(calls("c3", status="completed"), a_task(completion_status="success"))

    assert tasks_of(handle()).calls("t1")[-1].status == "completed"


def test_recovering_twice_says_it_once(address: str, handle: Callable[[], Ledger]) -> None:
    with crashed(address):
        ledger = handle()
        ledger.recover()
        ledger.recover()
        handle().recover()

    assert tasks_of(ledger).messages("t1").total == 3


def test_what_streamed_in_is_kept_with_the_failed_turn_and_is_no_message(
    address: str, handle: Callable[[], Ledger]
) -> None:
    with crashed(address):
        ledger = handle()
        tasks = tasks_of(ledger)
        assert tasks.partial_text("t2") == "half an ans"
        [turn] = [turn for turn in ledger.roots() if turn.status == "streaming"]
        assert ledger.partial_text(turn.id) == "half an ans"

        ledger.recover()

    assert [m.id for m in tasks.messages("t2").messages] == ["n1"]
    failed = ledger.get_turn(turn.id)
    assert (failed.status, failed.error) == ("failed", "the process that wrote this turn died")
    assert [(m.content, m.metadata_json) for m in failed.messages] == [
        ("And this?", None),
        ("half an ans", '{"partial":true}'),
    ]
    tasks.save(says("n3", "assistant", "This.", 1 << 47, task_id="t2"))
    assert shape(ledger, "task:t2") == [("completed", ["And this?", "half an ans", "This."])]
    with pytest.raises(Conflict, match="saved already"):
        tasks.save(says("n2", "assistant", "half an ans", 1, task_id="t2"))


def test_a_call_of_a_process_that_lives_is_left_alone(
    address: str, handle: Callable[[], Ledger]
) -> None:
    first, second = handle(), handle()
    tasks = a_talk(first)
    tasks.save(calls(status="in_progress"))
    time.sleep(LEASE_MS / 1000 * 1.5)

    second.recover()
    assert tasks_of(second).calls("t1", "in_progress")

    tasks.save(calls(status="completed"))


def test_a_call_taken_over_by_another_process_is_its_own(
    address: str, handle: Callable[[], Ledger]
) -> None:
    left = Ledger(Core(database(address)))
    a_talk(left).save(calls(status="in_progress"))
    ledger = handle()
    ledger.recover()
    tasks_of(ledger).save(calls(status="in_progress", details='{"by":"me"}'))
    left.close()
    time.sleep(LEASE_MS / 1000 * 1.5)

    handle().recover()

    assert tasks_of(ledger).calls("t1", "in_progress")
    tasks_of(ledger).save(calls(status="failed"))


def test_a_call_left_open_by_a_closed_handle_is_failed_by_the_next(
    address: str, handle: Callable[[], Ledger]
) -> None:
    left = Ledger(Core(database(address)))
    a_talk(left).save(calls(status="in_progress"))
    left.close()
    time.sleep(LEASE_MS / 1000 * 1.5)

    ledger = handle()
    ledger.recover()

    assert [call.status for call in tasks_of(ledger).calls("t1")] == ["failed"]


def test_a_handle_without_open_calls_leaves_no_writer_behind(ledger: Ledger, raw: Raw) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls(status="in_progress"))
    tasks.save(calls(status="completed"))
    with tasks.stream("t1") as stream:
        stream.write("x")
    ledger.close()

    assert raw.execute("SELECT id FROM writers") == []


def test_in_a_copy_the_calls_under_way_are_failed(
    ledger: Ledger, address: str, new_address: Callable[[], str]
) -> None:
    tasks = a_talk(ledger)
    tasks.save(calls(status="in_progress"))
    with tasks.stream("t1", "m3") as stream:
        stream.write("so far")
        other = new_address()

        copy(address, other)

        with Ledger.open(other) as copied:
            assert [call.status for call in tasks_of(copied).calls("t1")] == ["failed"]
            assert tasks_of(copied).messages("t1").total == 3
            tasks_of(copied).save(says("m9", "user", "Go on.", 1 << 47))
            assert copied.audit() == ()
    tasks.save(calls(status="completed"))


# -- messages that stream in ------------------------------------------------------------------


def test_a_message_counts_when_it_is_complete(ledger: Ledger) -> None:
    tasks = tasks_of(ledger)
    tasks.save(a_task(), says("m1", "user", "Tell me.", 1))
    stream = tasks.stream("t1", "m2")
    stream.write("Once ")
    stream.write("upon a time")

    assert tasks.partial_text("t1") == "Once upon a time"
    assert tasks.messages("t1").total == 1
    assert [turn.status for turn in ledger.roots()] == ["streaming"]

    message = stream.finish()

    assert tasks.messages("t1").messages[-1] == message
    assert (message.id, message.role, message.content) == ("m2", "assistant", "Once upon a time")
    assert message.timestamp > 1_700_000_000_000
    assert tasks.partial_text("t1") == ""
    assert shape(ledger, "task:t1") == [("completed", ["Tell me.", "Once upon a time"])]


def test_a_stream_left_by_an_error_keeps_what_came_as_partial(ledger: Ledger) -> None:
    tasks = tasks_of(ledger)
    tasks.save(a_task(), says("m1", "user", "Tell me.", 1))
    for text in ("Once", ""):
        with suppress(ZeroDivisionError), tasks.stream("t1") as stream:
            if text:
                stream.write(text)
            raise ZeroDivisionError

    [turn] = ledger.roots()
    assert turn.status == "failed"
    assert [m.content for m in ledger.get_turn(turn.id).messages] == ["Tell me.", "Once"]
    assert tasks.messages("t1").total == 1


def test_a_stream_is_its_writers_alone_and_ends_once(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    tasks = a_talk(ledger)
    stream = tasks.stream("t1", "m3")

    with pytest.raises(Conflict, match="does not stream from here"):
        tasks_of(open_ledger()).resume_stream("m3").write("x")
    with pytest.raises(Conflict, match="streaming already"):
        tasks.stream("t1", "m3")
    with pytest.raises(Conflict, match="still streaming"):
        tasks.save(says("m3", "assistant", "x", 1))
    with pytest.raises(Conflict, match="saved already"):
        tasks.stream("t1", "m2")
    with pytest.raises(NotFound, match="no task"):
        tasks.stream("t9")
    with pytest.raises(Refused, match="cannot be an id"):
        tasks.stream("t1", "has space")
    stream.finish()
    with pytest.raises(Conflict, match="does not stream from here"):
        stream.write("late")
