"""Copilot CLI's events, one oddity at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents_ledger import Ledger
from agents_ledger.importers.copilot import Copilot
from agents_ledger.importers.reader import Home
from tests.importers.helping import import_paths

SESSION = "cccccccc-0000-4000-8000-000000000001"
LABEL = f"copilot:{SESSION}"


class Events:
    """Writes events as Copilot CLI does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / SESSION / "events.jsonl"
        self.lines: list[str] = []
        context = {"cwd": "/home/dev/shop", "branch": "main", "repository": "dev/shop"}
        self.add("session.start", sessionId=SESSION, copilotVersion="1.0.64", context=context)

    def add(self, kind: str, **data: Any) -> str:
        number = len(self.lines)
        event = {
            "type": kind,
            "data": data,
            "id": f"dddddddd-0000-4000-8000-{number:012}",
            "timestamp": f"2026-03-01T10:{number // 60:02}:{number % 60:02}.000Z",
            "parentId": None,
        }
        self.lines.append(json.dumps(event))
        return str(event["id"])

    def say(self, text: str, *calls: dict[str, Any], **data: Any) -> str:
        requests = list(calls)
        said = {"model": "gpt-5", "outputTokens": 10, **data}
        return self.add("assistant.message", content=text, toolRequests=requests, **said)

    def save(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(line + "\n" for line in self.lines))
        return self.path


def request(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"toolCallId": call_id, "name": name, "arguments": arguments, "type": "function"}


def metrics(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    usage = {"inputTokens": input_tokens, "outputTokens": output_tokens, "cacheReadTokens": 5}
    return {"gpt-5": {"usage": usage}}


def test_a_prompt_and_all_that_follows_it_is_a_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("hook.start", hookType="userPromptSubmitted")
    log.add("system.message", role="system", content="Be brief.")
    attached = [{"type": "file", "path": "cart.py"}]
    prompt = log.add(
        "user.message", content="What?", transformedContent="<now/> What?", attachments=attached
    )
    log.add("assistant.turn_start", turnId="0")
    log.say("Reading.", request("t1", "view", path="cart.py"), reasoningText="Look first.")
    log.add("tool.execution_start", toolCallId="t1", toolName="view", arguments={"path": "cart.py"})
    log.add("tool.execution_complete", toolCallId="t1", success=True, result={"content": "class"})
    log.say("It adds things up.", reasoningOpaque="xyz")
    second = log.add("user.message", content="Thanks.")
    log.say("Welcome.")

    report = import_paths(ledger, log.save())

    first, last = ledger.thread(LABEL).turns
    assert (first.id, last.id) == (prompt, second)
    assert [m.content for m in first.query] == ["What?"]
    assert first.messages[0].role == "system"
    assert [(f.kind, f.file_path) for f in first.query[0].files] == [("attached", "cart.py")]
    assert first.query[0].context_json == '{"sent":"<now/> What?"}'
    assert first.messages[2].thinking == "Look first."
    assert first.messages[2].files[0].kind == "read"
    assert first.tool_calls[0].result_json == '"class"'
    assert first.response is not None
    assert '"thinking_withheld":true' in (first.response.metadata_json or "")
    assert (first.model, first.output_tokens) == ("gpt-5", 20)
    metadata = json.loads(ledger.session(LABEL).metadata_json or "{}")
    assert (metadata["git_branch"], metadata["version"]) == ("main", "1.0.64")
    assert sum(report.records.values()) == len(log.lines)
    assert not ledger.audit()


def test_totals_come_with_the_end_and_count_once(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="One.")
    log.say("First.")
    log.add("session.shutdown", modelMetrics=metrics(1000, 25))
    log.add("session.resume", eventCount=4)
    log.add("user.message", content="Two.")
    log.say("Second.")
    log.add("session.shutdown", modelMetrics=metrics(1600, 45))

    import_paths(ledger, log.save())

    first, second = ledger.thread(LABEL).turns
    assert (first.input_tokens, first.output_tokens, first.total_tokens) == (1000, 25, 1025)
    assert (second.input_tokens, second.output_tokens, second.total_tokens) == (600, 20, 620)


def test_results_tell_how_a_call_ended(ledger: Ledger, tmp_path: Path) -> None:
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


def test_a_subagent_s_events_are_a_session_of_its_own(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="Let somebody look.")
    log.say("Asking.", request("s1", "task", prompt="Look."))
    arguments = {"prompt": "Look."}
    log.add("tool.execution_start", toolCallId="s1", toolName="task", arguments=arguments)
    log.add("subagent.started", toolCallId="s1", agentName="explore")
    log.say("Looking.", parentToolCallId="s1", model="gpt-5-mini")
    log.add("subagent.completed", toolCallId="s1", agentName="explore")
    log.add("tool.execution_complete", toolCallId="s1", success=True, result={"content": "Seen."})
    log.say("Seen.")

    import_paths(ledger, log.save())

    session = ledger.session(f"{LABEL}:s1")
    assert (session.is_subagent, session.parent_session_label) == (True, LABEL)
    assert session.spawn_tool_call_id == "s1"
    (turn,) = ledger.thread(session.label).turns
    assert [(m.content, m.source) for m in turn.query] == [("Look.", "agent")]
    assert turn.response is not None
    assert turn.response.content == "Looking."
    assert [m.content for m in ledger.thread(LABEL).turns[0].messages][-1] == "Seen."
    assert not ledger.audit()


def test_a_compaction_is_a_turn_and_work_goes_on_after_it(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    prompt = log.add("user.message", content="Long work.")
    log.say("Half.")
    log.add("session.compaction_start")
    compaction = log.add(
        "session.compaction_complete",
        success=True,
        summaryContent="What came before.",
        preCompactionTokens=900,
    )
    after = log.say("Whole.")

    import_paths(ledger, log.save())

    turns = ledger.thread(LABEL).turns
    assert [turn.id for turn in turns] == [prompt, compaction, after]
    record = turns[1].compaction
    assert record is not None
    assert (record.summarized_through_turn_id, record.tokens_before) == (prompt, 900)


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


def test_a_name_stands_beside_the_events(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="One.")
    log.say("First.")
    path = log.save()
    beside = path.with_name("workspace.yaml")
    beside.write_text(f"id: {SESSION}\ncwd: /home/dev/shop\nname: The cart\nbranch: main\n")

    import_paths(ledger, path.parent)

    assert ledger.query("SELECT source_title FROM sessions")[1] == [("The cart",)]


def test_whatever_stands_in_a_file_the_rest_is_imported(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.lines += ["oops", "[]", '{"type":7}', '{"type":"user.message","data":[]}']
    log.add("user.message", content={"not": "text"}, attachments="none")
    log.say("Fine.", model=3, outputTokens="many")
    log.lines.append(log.lines[-1])  # written twice
    log.add("some.future.event", anything=1)
    path = log.save()
    path.write_text(path.read_text() + '{"type":"assist')

    report = import_paths(ledger, path)

    assert len(ledger.thread(LABEL).turns) == 1
    assert sum(report.records.values()) == len(log.lines) + 1
    assert report.counts.failed == 0
    assert not ledger.audit()


def test_where_it_looks(tmp_path: Path) -> None:
    assert Copilot().roots(Home(tmp_path, {}, "linux")) == [tmp_path / ".copilot/session-state"]
    chosen = Home(tmp_path, {"COPILOT_HOME": "/data"}, "linux")
    assert Copilot().roots(chosen) == [Path("/data/session-state")]
