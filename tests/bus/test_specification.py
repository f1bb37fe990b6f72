"""The printed specification of the bus: its schemas, its examples and its tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agents_ledger import Ledger, new_id, now_ms
from agents_ledger.bus import Ability, AgentBus, BusError
from tests.bus.conftest import Ask

# What the document says of each ability: what goes in, and what comes out.
SAVED = {
    "type": "object",
    "properties": {"success": {"type": "boolean"}},
    "required": ["success"],
}
OF_TASK = {
    "type": "object",
    "properties": {"taskId": {"type": "string"}},
    "required": ["taskId"],
}


def saving(name: str, what: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "object", "description": f"{what} entity to save"}},
        "required": [name],
    }


PRINTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ldg:task:save": (saving("task", "Task"), SAVED),
    "ldg:task:get": (
        OF_TASK,
        {
            "type": "object",
            "properties": {
                "task": {
                    "type": ["object", "null"],
                    "description": "Task entity or null if not found",
                }
            },
            "required": ["task"],
        },
    ),
    "ldg:task:query": (
        {
            "type": "object",
            "properties": {
                "completionStatus": {
                    "type": "string",
                    "description": "Filter by status, use 'null' for active tasks",
                },
                "parentTaskId": {"type": "string", "description": "Filter by parent task"},
                "fromTime": {"type": "number", "description": "Start timestamp (Unix ms)"},
                "toTime": {"type": "number", "description": "End timestamp (Unix ms)"},
                "limit": {"type": "number", "description": "Maximum results", "default": 100},
                "offset": {"type": "number", "description": "Pagination offset", "default": 0},
            },
        },
        {
            "type": "object",
            "properties": {
                "tasks": {"type": "array", "items": {"type": "object"}},
                "total": {"type": "number"},
            },
            "required": ["tasks", "total"],
        },
    ),
    "ldg:call:save": (saving("call", "Call"), SAVED),
    "ldg:call:list": (
        OF_TASK,
        {
            "type": "object",
            "properties": {"calls": {"type": "array", "items": {"type": "object"}}},
            "required": ["calls"],
        },
    ),
    "ldg:msg:save": (
        saving("message", "Message"),
        {
            "type": "object",
            "properties": {"success": {"type": "boolean"}, "messageId": {"type": "string"}},
            "required": ["success", "messageId"],
        },
    ),
    "ldg:msg:list": (
        {
            "type": "object",
            "properties": {
                "taskId": {"type": "string"},
                "limit": {"type": "number"},
                "offset": {"type": "number"},
            },
            "required": ["taskId"],
        },
        {
            "type": "object",
            "properties": {
                "messages": {"type": "array", "items": {"type": "object"}},
                "total": {"type": "number"},
            },
            "required": ["messages", "total"],
        },
    ),
}


def says(schema: Any, printed: Any, path: str = "$") -> Iterator[str]:
    """Where a schema does not say what was printed. It may say more."""
    if isinstance(printed, dict):
        for name, value in printed.items():
            if name not in schema:
                yield f"{path}.{name}"
            else:
                yield from says(schema[name], value, f"{path}.{name}")
    elif isinstance(printed, list):
        if not set(printed) <= set(schema):
            yield path
    elif schema != printed and (schema, printed) != ("integer", "number"):  # whole numbers
        yield f"{path}: {schema!r}"


@pytest.mark.parametrize("ability_id", PRINTED)
def test_the_schemas_are_those_of_the_document(ledger_bus: AgentBus, ability_id: str) -> None:
    printed_input, printed_output = PRINTED[ability_id]
    ability = ledger_bus.inspect(ability_id)

    assert list(says(ability.input_schema, printed_input)) == []
    assert list(says(ability.output_schema, printed_output)) == []


def task(task_id: str = "task-test", **more: Any) -> dict[str, Any]:
    now = now_ms()
    return {
        "id": task_id, "systemPrompt": "Test prompt", "createdAt": now, "updatedAt": now, **more,
    }  # fmt: skip


def test_saving_creates_a_task(ledger_bus: AgentBus) -> None:
    result = ledger_bus.invoke("ldg:task:save")(json.dumps({"task": task()}))
    assert json.loads(result)["success"] is True

    found = ledger_bus.invoke("ldg:task:get")(json.dumps({"taskId": "task-test"}))
    assert json.loads(found)["task"]["systemPrompt"] == "Test prompt"
    missing = ledger_bus.invoke("ldg:task:get")(json.dumps({"taskId": "nobody"}))
    assert json.loads(missing) == {"task": None}


def test_a_message_is_immutable(ask: Ask) -> None:
    ask("ldg:task:save", task=task())
    message = {
        "id": "msg-test", "taskId": "task-test", "role": "user", "content": "Test message",
        "timestamp": now_ms(),
    }  # fmt: skip
    assert ask("ldg:msg:save", message=message) == {"success": True, "messageId": "msg-test"}

    with pytest.raises(BusError) as caught:
        ask("ldg:msg:save", message={**message, "content": "Modified content"})

    assert caught.value.details["kind"] == "Conflict"
    [kept] = ask("ldg:msg:list", taskId="task-test")["messages"]
    assert kept == message


def test_the_full_lifecycle_of_a_task_persists(ask: Ask, ledger: Ledger) -> None:
    made = task("task-lifecycle")
    ask("ldg:task:save", task=made)
    for role, content in (("user", "Hello"), ("assistant", "Hi there")):
        message = {"id": new_id(), "taskId": made["id"], "role": role, "content": content}
        ask("ldg:msg:save", message={**message, "timestamp": now_ms()})
    call = {
        "id": "call-test", "taskId": made["id"], "abilityName": "mem:retrieve", "parameters": "{}",
        "status": "in_progress", "details": "{}", "createdAt": now_ms(), "updatedAt": now_ms(),
        "startMessageId": message["id"],
    }  # fmt: skip
    ask("ldg:call:save", call=call)
    ask("ldg:call:save", call={**call, "status": "completed", "updatedAt": now_ms()})
    ask("ldg:task:save", task={**made, "completionStatus": "success", "updatedAt": now_ms()})

    assert ask("ldg:task:get", taskId=made["id"])["task"]["completionStatus"] == "success"
    assert len(ask("ldg:msg:list", taskId=made["id"])["messages"]) == 2
    assert ask("ldg:call:list", taskId=made["id"])["calls"][0]["status"] == "completed"
    assert len(ledger.thread("task:task-lifecycle").turns) == 1


def test_active_tasks_are_queried(ask: Ask) -> None:
    for number in range(12):
        done = {"completionStatus": "success"} if number % 6 == 0 else {}
        ask("ldg:task:save", task={**task(f"task-{number:02}", createdAt=number), **done})

    result = ask("ldg:task:query", completionStatus="null", limit=10)

    assert (len(result["tasks"]), result["total"]) == (10, 10)
    assert result["tasks"][0]["id"] == "task-11"


def test_a_streamed_message_is_saved_once_it_is_complete(ledger_bus: AgentBus, ask: Ask) -> None:
    """The document's processing flow: pieces go to the user as they come, the message at its end
    to the ledger, dated by its last piece."""
    ask("ldg:task:save", task=task())
    pieces = ["Once", " upon", " a time"]
    ledger_bus.register(
        Ability(
            id="model:generate",
            description="Generate.",
            input={"type": "object"},
            output={"type": "object"},
            function=lambda _: ({"content": piece} for piece in pieces),
            is_stream=True,
        )
    )

    content, shown, last = "", [], 0
    for piece in ledger_bus.invoke_stream("model:generate")("{}"):
        content += json.loads(piece)["content"]
        shown.append(content)
        last = now_ms()
        assert ask("ldg:msg:list", taskId="task-test")["total"] == 0
    message = {
        "id": "m1", "taskId": "task-test", "role": "assistant", "content": content,
        "timestamp": last,
    }  # fmt: skip
    ask("ldg:msg:save", message=message)

    assert shown == ["Once", "Once upon", "Once upon a time"]
    assert ask("ldg:msg:list", taskId="task-test") == {"messages": [message], "total": 1}


def test_messages_can_be_streamed_to_the_ledger(ask: Ask) -> None:
    ask("ldg:task:save", task=task())
    begun = ask("ldg:msg:begin", taskId="task-test", messageId="m1")
    ask("ldg:msg:append", messageId="m1", text="Once")
    ask("ldg:msg:append", messageId="m1", text=" upon")

    assert begun == {"messageId": "m1"}
    assert ask("ldg:msg:partial", taskId="task-test") == {"text": "Once upon"}
    message = ask("ldg:msg:finish", messageId="m1")["message"]
    assert message["content"] == "Once upon"
    assert ask("ldg:msg:list", taskId="task-test")["messages"] == [message]


def test_a_task_with_its_messages_is_saved_as_one(ask: Ask) -> None:
    def said(name: str, at: int) -> dict[str, Any]:
        return {
            "message": {
                "id": name, "taskId": "task-test", "role": "user", "content": name, "timestamp": at,
            }
        }  # fmt: skip

    with pytest.raises(BusError):
        ask("ldg:batch:save", saves=[{"task": task()}, said("a", 1), {}])
    assert ask("ldg:task:query")["total"] == 0

    ask("ldg:batch:save", saves=[{"task": task()}, said("b", 2), said("a", 1)])

    listed = ask("ldg:msg:list", taskId="task-test", limit=5, offset=1)
    assert ([m["id"] for m in listed["messages"]], listed["total"]) == (["b"], 2)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("SELECT id FROM task_messages WHERE task_id = 'a' ORDER BY timestamp", ["m1", "m2"]),
        pytest.param(
            "SELECT * FROM messages WHERE task_id = 'a' ORDER BY timestamp",
            ["task:m1", "task:m2"],
            marks=pytest.mark.finding("spec-Q"),
        ),
        ("SELECT id FROM calls WHERE task_id = 'a'", ["c1", "c2"]),
        ("SELECT id FROM tasks WHERE created_at BETWEEN 1 AND 15", ["a"]),
        ("SELECT id FROM tasks WHERE completion_status IS NULL", ["a"]),
        ("SELECT id FROM tasks WHERE completion_status = 'success'", ["b"]),
        ("SELECT id FROM tasks WHERE parent_task_id = 'a'", ["b"]),
        ("SELECT id FROM calls WHERE status = 'in_progress' AND task_id = 'a'", ["c1"]),
    ],
)
def test_every_query_pattern_of_the_document_runs(
    ask: Ask, ledger: Ledger, pattern: str, found: list[str]
) -> None:
    ask("ldg:task:save", task=task("a", createdAt=10))
    ask("ldg:task:save", task=task("b", createdAt=20, parentTaskId="a", completionStatus="success"))
    for name, at in (("m2", 2), ("m1", 1)):
        said = {"id": name, "taskId": "a", "role": "assistant", "content": "x", "timestamp": at}
        ask("ldg:msg:save", message=said)
    for name, status in (("c1", "in_progress"), ("c2", "completed")):
        call = {
            "id": name, "taskId": "a", "abilityName": "x:y", "parameters": "{}", "status": status,
            "details": "{}", "createdAt": 1, "updatedAt": 1, "startMessageId": "m1",
        }  # fmt: skip
        ask("ldg:call:save", call=call)

    assert sorted(row[0] for row in ledger.query(pattern)[1]) == found
