"""Copilot CLI: how turns and calls end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.importers.copilot_log import LABEL, Events, helped, request
from tests.importers.helping import import_paths, packed_result, result


def test_results_say_how_a_call_ended(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="Try.")
    log.say("", *(request(name, "bash", command=name) for name in ("bad", "no", "open")))
    log.add("permission.completed", toolCallId="no", result={"kind": "denied-by-user"})
    error = {"message": "Path does not exist", "code": "failure"}
    log.add("tool.execution_complete", toolCallId="bad", success=False, error=error)
    log.add("tool.execution_complete", toolCallId="no", success=False, error={"message": "no"})
    log.add("abort", reason="user_initiated")

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    calls = {call.id: call for call in turn.tool_calls}
    assert {n: c.status for n, c in calls.items()} == {
        "bad": "failed",
        "no": "rejected",
        "open": "cancelled",
    }
    assert (calls["bad"].error, calls["bad"].source_status) == ("Path does not exist", "failure")
    assert turn.messages[-1].content == "Aborted: user_initiated"


def test_the_result_of_a_call_outlives_a_later_decision(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="Try.")
    log.say("", *(request(name, "bash", command=name) for name in ("done", "allowed")))
    log.add("tool.execution_complete", toolCallId="done", success=True, result={"content": "fine"})
    log.add("permission.completed", toolCallId="done", result={"kind": "denied-by-rules"})
    log.add("permission.completed", toolCallId="allowed", result={"kind": "denied-by-rules"})
    log.add("permission.completed", toolCallId="allowed", result={"kind": "approved"})

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert [(call.status, call.result_json) for call in turn.tool_calls] == [
        ("completed", '"fine"'),
        ("cancelled", None),
    ]


@pytest.mark.parametrize("feedback", [None, "Not so."])
def test_a_refused_call_without_a_result_is_rejected(
    ledger: Ledger, tmp_path: Path, feedback: str | None
) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="Try.")
    log.say("", request("t1", "bash", command="rm"), request("t2", "bash", command="ls"))
    log.add("tool.execution_start", toolCallId="t1", toolName="bash", arguments={"command": "rm"})
    decision = {"kind": "denied-interactively-by-user", "feedback": feedback}
    log.add("permission.completed", toolCallId="t1", result=decision)
    log.add("permission.completed", toolCallId="t2", result={"kind": "approved"})
    log.add("abort", reason="user_initiated")
    path = log.save()

    import_paths(ledger, path)

    (turn,) = ledger.thread(LABEL).turns
    refused, left = turn.tool_calls
    assert (refused.status, refused.source_status) == ("rejected", decision["kind"])
    assert refused.error == (feedback or decision["kind"])
    assert refused.completed_at == turn.started_at + 3000
    assert (left.status, left.source_status) == ("cancelled", None)
    before = result(ledger)
    assert packed_result(tmp_path, path) == before


MODEL = {"errorType": "model", "message": "Failed to list models."}
MCP = {"errorType": "mcp", "message": "Failed to start MCP Servers."}
QUERY = {"errorType": "query", "message": "No quota."}


def test_an_error_after_the_last_message_does_not_fail_the_turn(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="hi")
    log.add("assistant.turn_start", turnId="0")
    log.say("Hello.")
    log.add("assistant.turn_end", turnId="0")
    log.add("session.error", **MODEL)
    log.add("session.error", **MCP)
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert (turn.status, turn.error) == ("completed", None)
    assert [m.content for m in turn.messages if m.role == "system"] == [
        MODEL["message"],
        MCP["message"],
    ]


def test_an_error_while_the_agent_works_fails_the_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="Look.")
    log.say("I look.", request("t1", "view", path="cart.py"))
    log.add("tool.execution_complete", toolCallId="t1", success=True, result={"content": "class"})
    log.add("session.error", **QUERY)
    log.add("session.error", **MCP)
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert (turn.status, turn.error) == ("failed", QUERY["message"])


def test_a_server_that_did_not_start_does_not_fail_a_prompt(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("session.error", **QUERY)  # before anything was asked
    log.add("user.message", content="hi")
    log.add("session.error", **MCP)
    import_paths(ledger, log.save())

    assert ledger.head(LABEL) is None
    assert ledger.query("SELECT status, error FROM turns")[1] == [("pending", None)]


@pytest.mark.parametrize(
    ("kind", "data", "error"),
    [
        ("session.error", {"errorType": "model", "message": "Model not found"}, "Model not found"),
        ("session.error", {}, "error"),
        ("abort", {"reason": "user_initiated"}, "Aborted: user_initiated"),
    ],
)
def test_a_failed_prompt_is_a_turn_and_the_next_prompt_another(
    ledger: Ledger, tmp_path: Path, kind: str, data: dict[str, str], error: str
) -> None:
    log = Events(tmp_path)
    prompt = log.add("user.message", content="hi")
    log.add("assistant.turn_start", turnId="0")
    log.add("assistant.turn_end", turnId="0")
    log.add(kind, **data)
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert (turn.id, turn.status, turn.error) == (prompt, "failed", error)

    again = log.add("user.message", content="hi again")
    import_paths(ledger, log.save())
    assert ledger.head(LABEL) == prompt  # the second waits

    log.say("Hello.")
    import_paths(ledger, log.save())
    assert [(t.id, t.status, t.error) for t in ledger.thread(LABEL).turns] == [
        (prompt, "failed", error),
        (again, "completed", None),
    ]
    before = result(ledger)
    assert packed_result(tmp_path, log.path) == before
    assert not ledger.audit()


def test_a_failed_subagent_is_a_failed_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = helped(tmp_path)
    log.add("subagent.started", "three", toolCallId="s3", agentName="explore")
    log.add("user.message", "three", content="Look.")
    log.add("session.error", "three", **QUERY)
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"{LABEL}:s3").turns
    assert (turn.status, turn.error) == ("failed", QUERY["message"])


def test_a_prompt_without_an_answer_is_never_a_head(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="One.")
    path = log.save()
    import_paths(ledger, path)
    assert ledger.head(LABEL) is None

    log.add("session.error", errorType="query", message="No quota.")
    log.say("Now.")
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert (turn.status, turn.error) == ("completed", None)
