"""Whole turns over the bus: every field that the library takes, at once and live."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, get_type_hints

import pytest
from msgspec import structs

from agents_ledger import (
    Compaction,
    Config,
    Ledger,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    ToolCall,
    Turn,
    Usage,
)
from agents_ledger.bus import AgentBus, BusError, turn_inputs
from agents_ledger.bus.live_turns import LiveLimits, LiveTurns
from agents_ledger.ledger.core import Core
from agents_ledger.model.turns import TurnFields
from tests.builders import chain
from tests.bus.conftest import Ask
from tests.contract.test_recovery import database, kill
from tests.waiting import until

TURN: dict[str, Any] = {
    "session": "main",
    "id": "turn-1",
    "parent": None,
    "started_at": 1_000,
    "model": "claude-opus-5",
    "provider": "anthropic",
    "role": "manager",
    "toolset_name": "coding",
    "tools_available": ["Bash", "Read"],
    "permissions_granted": {"tools": ["Bash"]},
    "permissions_used": {"tools": {"Bash": 1}},
    "source_event_id": "event-1",
    "workspace_path": "/work",
    "config": {"directives": {"model": "claude-opus-5"}, "defaults": {"max_tokens": 100}},
    "system_prompt": "You are brief.",
    "thread_key": "telegram:1",
    "persona_id": "main",
}
FILES = [{"kind": "read", "file_path": "a.py", "line_start": 1, "line_end": 2}]
LINTS = [{"file_path": "a.py", "message": "unused", "severity": "warning", "start_line": 3}]
BLOCKS = [{"content": "x = 1", "language": "python", "file_path": "a.py"}]
QUERY: list[Any] = [
    {
        "role": "user",
        "content": "Fix it",
        "source": "webhook",
        "id": "query-1",
        "created_at": 900,
        "metadata_json": {"from": "ci"},
        "context_json": '{"open": "a.py"}',
        "files": FILES,
        "lints": LINTS,
    },
    "and be quick",
]
STEPS = [
    {"type": "message", "role": "assistant", "content": "Looking", "thinking": "Hm", "id": "m-1"},
    {
        "type": "tool_call",
        "tool_name": "Bash",
        "params": "ls",
        "result": ["a.py"],
        "id": "call-1",
        "tool_number": 3,
        "source_status": "ok",
        "spawned_session_label": "helper",
        "started_at": 1_100,
        "completed_at": 1_200,
    },
    {"type": "message", "role": "tool", "content": "a.py", "tool_call_id": "call-1", "id": "m-2"},
    {"type": "tool_call", "tool_name": "Edit", "params": {}, "status": "rejected", "error": "no"},
]
RESPONSE = {"role": "assistant", "content": "Done", "codeblocks": BLOCKS}
USAGE = {"input_tokens": 10, "output_tokens": 5, "cached_input_tokens": 4, "total_tokens": 20}


def by_library(ledger: Ledger) -> Turn:
    """The same turn, recorded by the library."""
    return ledger.record(
        query=[
            Message(
                "user", "Fix it", "webhook", None, '{"open": "a.py"}', '{"from":"ci"}',
                id="query-1", created_at=900,
                files=(MessageFile("read", "a.py", 1, 2),),
                lints=(MessageLint("a.py", "unused", start_line=3, severity="warning"),),
            ),
            "and be quick",
        ],
        response=Message(
            "assistant", "Done", codeblocks=(MessageCodeblock("x = 1", "python", "a.py"),)
        ),
        steps=[
            Message("assistant", "Looking", thinking="Hm", id="m-1"),
            ToolCall(
                "Bash", '"ls"', '["a.py"]', id="call-1", tool_number=3, source_status="ok",
                spawned_session_label="helper", started_at=1_100, completed_at=1_200,
            ),
            Message("tool", "a.py", tool_call_id="call-1", id="m-2"),
            ToolCall("Edit", "{}", error="no", status="rejected"),
        ],
        usage=Usage(10, 5, 4, total_tokens=20),
        completed_at=2_000,
        **{**TURN, "config": Config(**TURN["config"])},
    )  # fmt: skip


def without_times_and_ids(turn: Turn) -> Turn:
    """A turn without what the ledger chose."""
    ids = {message.id: str(number) for number, message in enumerate(turn.messages)}
    messages = [
        structs.replace(message, id=ids[message.id], created_at=0) for message in turn.messages
    ]
    calls = [
        structs.replace(
            call, id="", message_id=ids[call.message_id or ""], started_at=0, completed_at=0
        )
        for call in turn.tool_calls
    ]
    return structs.replace(
        turn, messages=tuple(messages), tool_calls=tuple(calls), query_message_ids="",
        response_message_id="", completed_at=0,
    )  # fmt: skip


@pytest.mark.finding("spec-B")
def test_every_field_that_the_library_takes_is_recorded(
    ask: Ask, ledger: Ledger, new_address: Callable[[], str]
) -> None:
    ask(
        "ldg:turn:record", **TURN,
        query=QUERY, steps=STEPS, response=RESPONSE, usage=USAGE, completed_at=2_000,
    )  # fmt: skip

    stored = ledger.get_turn("turn-1")
    with Ledger.open(new_address()) as other:
        expected = by_library(other)
        assert ledger.system_prompt("main") == other.system_prompt("main")
        assert ledger.effective_config("main") == other.effective_config("main")
        assert ledger.thread("main").thread_key == other.thread("main").thread_key == "telegram:1"
        assert ledger.session("helper").spawn_tool_call_id == "call-1"
    assert without_times_and_ids(stored) == without_times_and_ids(expected)
    assert (stored.query[0].id, stored.tool_calls[0].id) == ("query-1", "call-1")


@pytest.mark.finding("spec-B")
def test_the_input_has_every_field_of_the_library() -> None:
    def fields(kind: type) -> set[str]:
        return {field.name for field in structs.fields(kind)}

    taken = set(inspect.signature(Ledger.record).parameters) - {"self", "fields"}
    assert fields(turn_inputs.RecordInput) == taken | set(get_type_hints(TurnFields)) | {
        "tool_calls"
    }
    live = set(inspect.signature(Ledger.turn).parameters) - {"self", "fields"}
    assert fields(turn_inputs.BeginInput) == live | set(get_type_hints(TurnFields)) | {
        "idle_timeout_s"
    }
    filled = {"turn_id", "sequence"}
    assert fields(turn_inputs.MessageInput) == fields(Message) - filled
    call = {name.removesuffix("_json") for name in fields(ToolCall)} - filled
    assert fields(turn_inputs.ToolCallInput) == call
    assert fields(turn_inputs.UsageCounts) == fields(Usage)
    assert fields(turn_inputs.ConfigInput) == fields(Config)
    assert fields(turn_inputs.CompactionFields) == fields(Compaction) - filled
    assert fields(turn_inputs.FileInput) == fields(MessageFile)
    assert fields(turn_inputs.LintInput) == fields(MessageLint)
    assert fields(turn_inputs.CodeblockInput) == fields(MessageCodeblock)


def test_a_query_is_a_text_a_message_or_a_list_of_these(ask: Ask, ledger: Ledger) -> None:
    queries: list[Any] = ["a", {"role": "user", "content": "a"}, ["a", {"role": "system"}], []]

    for query in queries:
        ask("ldg:turn:record", session="main", query=query, response="r")

    lengths = [len(turn.query) for turn in ledger.thread("main").turns]
    assert lengths == [1, 1, 2, 0]


def test_a_compaction_is_recorded_as_a_turn(ask: Ask, ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)
    compaction = {
        "summary": "s", "summarized_through_turn_id": first, "first_kept_turn_id": second,
        "turns_summarized": 1, "model": "m", "tokens_before": 9, "metadata_json": {"kept": [1]},
    }  # fmt: skip

    turn = ask("ldg:turn:record", session="main", compaction=compaction)["turn"]

    assert turn["turn_type"] == "compaction"
    [stored] = ledger.compactions("main")
    assert (stored.turns_summarized, stored.metadata_json) == (1, '{"kept":[1]}')


@pytest.mark.finding("spec-B")
def test_a_live_turn_is_stored_step_by_step(ask: Ask, ledger: Ledger) -> None:
    begun = ask("ldg:live:begin", **TURN, query=QUERY)["turn"]
    assert (begun["id"], begun["status"], begun["depth"]) == ("turn-1", "pending", 1)
    assert [m["content"] for m in begun["messages"]] == ["Fix it", "and be quick"]

    ask("ldg:live:stream", turn_id="turn-1", text="Look")
    assert ask("ldg:live:stream", turn_id="turn-1", text="ing")["pieces"] == 2
    assert ledger.partial_text("turn-1") == "Looking"
    ask(
        "ldg:live:message",
        turn_id="turn-1",
        message={"role": "assistant", "content": "Looking"},
        streamed=True,
    )
    assert ledger.partial_text("turn-1") == ""
    bash = ask("ldg:live:tool_call", turn_id="turn-1", tool_name="Bash", params="ls", id="c1")
    edit = ask(
        "ldg:live:tool_call", turn_id="turn-1", tool_name="Agent", spawned_session_label="helper"
    )["tool_call"]
    assert [call.status for call in ledger.get_turn("turn-1").tool_calls] == ["running"] * 2
    assert bash["tool_call"]["params_json"] == '"ls"'
    assert ledger.session("helper").spawn_tool_call_id == edit["id"]
    ask("ldg:live:complete", turn_id="turn-1", tool_call_id="c1", result="a.py")
    ask(
        "ldg:live:complete",
        turn_id="turn-1", tool_call_id=edit["id"], status="failed", error="lost", result={"n": 1},
    )  # fmt: skip
    sealed = ask(
        "ldg:live:respond", turn_id="turn-1", response=RESPONSE, usage=USAGE, model="other"
    )["turn"]

    stored = ledger.get_turn("main")
    assert sealed["status"] == stored.status == "completed"
    assert (stored.model, stored.total_tokens, stored.role) == ("other", 20, "manager")
    outcomes = [(call.status, call.result_json, call.error) for call in stored.tool_calls]
    assert outcomes == [("completed", '"a.py"', None), ("failed", '{"n":1}', "lost")]
    assert stored.response is not None
    assert stored.response.codeblocks[0].content == "x = 1"
    assert ledger.system_prompt("main") == "You are brief."


def test_calls_end_in_every_way_and_turns_fail(ask: Ask, ledger: Ledger) -> None:
    turn_id = ask("ldg:live:begin", session="main", query="q")["turn"]["id"]
    statuses = ["completed", "cancelled", "rejected", "running"]
    for status in statuses:
        ask("ldg:live:tool_call", turn_id=turn_id, tool_name="Bash", id=status)
    for status in statuses[:-1]:
        ask("ldg:live:complete", turn_id=turn_id, tool_call_id=status, status=status)

    failed = ask("ldg:live:fail", turn_id=turn_id, error="interrupted", usage=USAGE)["turn"]

    assert (failed["status"], failed["error"], failed["total_tokens"]) == (
        "failed",
        "interrupted",
        20,
    )
    stored = [call.status for call in ledger.get_turn(turn_id).tool_calls]
    assert stored == ["completed", "cancelled", "rejected", "cancelled"]
    assert ledger.head("main") is None


def test_the_streamed_text_is_the_response_if_there_is_no_other(ask: Ask, ledger: Ledger) -> None:
    turn_id = ask("ldg:live:begin", session="main", query="q")["turn"]["id"]
    for piece in ("Good ", "day"):
        ask("ldg:live:stream", turn_id=turn_id, text=piece)

    ask("ldg:live:respond", turn_id=turn_id)

    response = ledger.get_turn("main").response
    assert response is not None
    assert response.content == "Good day"


@pytest.mark.finding("spec-B")
def test_every_request_of_a_live_turn_can_be_repeated(ask: Ask, ledger: Ledger) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("begin", {**TURN, "query": QUERY}),
        ("message", {"message": {"role": "assistant", "content": "Hm", "id": "m-1"}}),
        ("tool_call", {"tool_name": "Bash", "params": {"a": 1}, "id": "c1"}),
        ("complete", {"tool_call_id": "c1", "result": 1}),
        ("stream", {"text": "Good ", "piece": 0}),
        ("stream", {"text": "day", "piece": 1}),
        ("respond", {"usage": USAGE}),
    ]
    for verb, fields in requests:
        named = fields if verb == "begin" else {"turn_id": "turn-1", **fields}
        first = ask(f"ldg:live:{verb}", **named)
        assert ask(f"ldg:live:{verb}", **named) == first, verb

    turn = ledger.get_turn("main")
    assert [message.content for message in turn.messages] == [
        "Fix it", "and be quick", "Hm", "Good day",
    ]  # fmt: skip
    assert len(turn.tool_calls) == 1


def test_another_step_with_the_same_id_is_a_conflict(ask: Ask) -> None:
    ask("ldg:live:begin", session="main", query="q", id="turn-1")
    ask("ldg:live:message", turn_id="turn-1", message={"role": "assistant", "id": "m"})
    with pytest.raises(BusError, match="message m of turn turn-1 is stored already, with other"):
        ask("ldg:live:message", turn_id="turn-1", message={"role": "system", "id": "m"})
    with pytest.raises(BusError, match="turn turn-1 exists already"):
        ask("ldg:live:begin", session="main", query="other", id="turn-1")
    ask("ldg:live:respond", turn_id="turn-1", response="r")
    with pytest.raises(BusError, match="turn turn-1 is completed"):
        ask("ldg:live:message", turn_id="turn-1", message="late")
    with pytest.raises(BusError, match="turn turn-1 is completed"):
        ask("ldg:live:respond", turn_id="turn-1", response="other")


def test_a_turn_whose_session_moved_becomes_a_branch(ask: Ask, ledger: Ledger) -> None:
    turn_id = ask("ldg:live:begin", session="main", query="slow")["turn"]["id"]
    head = ledger.record("main", "fast", "done").id

    for _ in range(2):
        with pytest.raises(BusError) as caught:
            ask("ldg:live:respond", turn_id=turn_id, response="late")
        assert caught.value.details["kind"] == "HeadMoved"
        assert turn_id in caught.value.message

    assert ledger.head("main") == head
    assert ledger.get_turn(turn_id).status == "completed"


def test_many_clients_write_at_once(ask: Ask, ledger: Ledger) -> None:
    ask("ldg:live:begin", session="shared", query="q", id="turn-1")

    def work(number: int) -> None:
        turn_id = ask("ldg:live:begin", session=f"own-{number}", query="q")["turn"]["id"]
        for step in range(5):
            ask("ldg:live:message", turn_id=turn_id, message=str(step))
            call = {"tool_name": "Bash", "id": f"{number}-{step}"}
            ask("ldg:live:tool_call", turn_id="turn-1", **call)
            ask("ldg:live:complete", turn_id="turn-1", tool_call_id=call["id"])
        ask("ldg:live:respond", turn_id=turn_id, response="r")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ask("ldg:live:respond", turn_id="turn-1", response="r")

    assert len(ledger.get_turn("shared").tool_calls) == 40
    assert [len(ledger.get_turn(f"own-{n}").messages) for n in range(8)] == [7] * 8


# -- clients and servers that vanish ----------------------------------------------------------


@pytest.mark.finding("spec-B")
def test_a_turn_of_a_client_that_vanished_fails(ledger: Ledger) -> None:
    live = LiveTurns(ledger, LiveLimits(idle_s=0.2))
    bus = AgentBus(ledger, live)

    def ask(verb: str, **fields: Any) -> Any:
        return json.loads(bus.invoke(f"ldg:live:{verb}")(json.dumps(fields)))

    patient = ask("begin", session="patient", query="q", idle_timeout_s=600)["turn"]["id"]
    vanished = ask("begin", session="main", query="q")["turn"]["id"]
    ask("stream", turn_id=vanished, text="half")
    until(lambda: ledger.get_turn(vanished).status == "failed")

    turn = ledger.get_turn(vanished)
    assert turn.error == "no request for 0.2 seconds"
    assert turn.messages[-1].content == "half"
    with pytest.raises(BusError, match=r"is failed: no request for 0\.2 seconds"):
        ask("message", turn_id=vanished, message="still here")
    assert ledger.live_turns() == (patient,)
    live.close()
    assert ledger.get_turn(patient).error == "the server stopped"
    assert ledger.audit() == ()


CLIENT = """
import sys
from agents_ledger import Ledger
from agents_ledger.bus import AgentBus
bus = AgentBus(Ledger.open(sys.argv[1]))
bus.invoke("ldg:live:begin")('{"session": "main", "query": "q", "id": "turn-1"}')
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.finding("spec-B")
def test_turns_of_a_process_that_died_fail_at_the_next_write(address: str) -> None:
    command = [sys.executable, "-c", CLIENT, address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        with Ledger.open(address) as ledger:
            bus = AgentBus(ledger)
            with pytest.raises(BusError, match="is being written by another process"):
                bus.invoke("ldg:live:message")('{"turn_id": "turn-1", "message": "x"}')
        kill(process, address)

    with closing(Ledger(Core(database(address)))) as ledger:
        bus = AgentBus(ledger)
        assert ledger.recover() == ("turn-1",)
        with pytest.raises(BusError, match="is failed: the process that wrote this turn died"):
            bus.invoke("ldg:live:message")('{"turn_id": "turn-1", "message": "x"}')
        assert ledger.audit() == ()
