"""Copilot CLI: events and documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.copilot.source import Copilot
from tests.importers.copilot_log import LABEL, SESSION, Events, helped, metrics, request
from tests.importers.helping import import_paths, packed_result, result

NOW = "<current_datetime>2025-12-02T08:26:25.627Z</current_datetime>"


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        (f"Go on.\n\n{NOW}", "Go on."),
        (f"{NOW}\n\n Go on.\n", "Go on."),
        (f"What is {NOW} for?", f"What is {NOW} for?"),
        (NOW, NOW),
        (" Go on.\n", " Go on.\n"),
    ],
)
def test_the_time_that_old_versions_add_to_a_prompt_is_removed(
    ledger: Ledger, tmp_path: Path, said: str, typed: str
) -> None:
    log = Events(tmp_path)
    log.add("user.message", content=said)
    log.say("Done.")
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    (query,) = turn.query
    assert query.content == typed
    assert json.loads(query.context_json or "{}") == ({"sent": said} if said != typed else {})


def test_a_prompt_and_everything_after_it_is_a_turn(ledger: Ledger, tmp_path: Path) -> None:
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


def test_the_events_of_a_subagent_are_a_session(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="Let somebody look.")
    log.say("Asking.", request("s1", "task", prompt="Look."))
    arguments = {"prompt": "Look."}
    log.add("tool.execution_start", toolCallId="s1", toolName="task", arguments=arguments)
    log.add("tool.execution_start", toolCallId="t1", toolName="bash", arguments={"command": "ls"})
    log.add("subagent.started", toolCallId="s1", agentName="explore")
    log.say("Looking.", parentToolCallId="s1", model="gpt-5-mini", outputTokens=7)
    log.add("subagent.completed", toolCallId="s1", agentName="explore")
    log.add("tool.execution_complete", toolCallId="s1", success=True, result={"content": "Seen."})
    log.say("Seen.")
    log.add("session.shutdown", modelMetrics=metrics(1000, 27))

    import_paths(ledger, log.save())

    session = ledger.session(f"{LABEL}:s1")
    assert (session.is_subagent, session.parent_session_label) == (True, LABEL)
    assert session.spawn_tool_call_id == "s1"
    (turn,) = ledger.thread(session.label).turns
    assert [(m.content, m.source) for m in turn.query] == [("Look.", "agent")]
    assert turn.response is not None
    assert turn.response.content == "Looking."
    assert not turn.tool_calls  # the one that began meanwhile is its parent's
    assert (turn.total_tokens, ledger.thread(LABEL).turns[0].output_tokens) == (7, 20)
    assert session.created_at == session.updated_at == turn.completed_at
    assert [m.content for m in ledger.thread(LABEL).turns[0].messages][-1] == "Seen."
    assert not ledger.audit()


def test_a_subagent_known_only_by_agent_id_is_a_session(ledger: Ledger, tmp_path: Path) -> None:
    log = helped(tmp_path)
    import_paths(ledger, log.save())
    log.say("Seen.", model=None)
    again = log.add("user.message", "one", content="Look again.")
    log.say("Nothing new.", agent="one", outputTokens=3)
    log.say("Whoever this is.", agent="three", outputTokens=4)
    log.add("session.shutdown", modelMetrics=metrics(1000, 36))
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert [m.content for m in turn.messages] == ["Let somebody look.", "Asking.", "Seen."]
    assert (turn.model, turn.output_tokens, len(turn.tool_calls)) == ("gpt-5", 20, 1)
    first, second = ledger.thread(f"{LABEL}:s1").turns
    assert [(m.content, m.source) for m in first.query] == [("Look.", "agent")]
    assert [m.content for m in first.messages] == ["Look.", "Looking."]
    assert (first.model, first.output_tokens, len(first.tool_calls)) == ("small", 7, 1)
    assert (second.id, [m.source for m in second.query]) == (again, ["agent"])
    assert (second.model, second.output_tokens) == ("gpt-5", 3)
    sessions = {each.label: each for each in ledger.sessions()}
    assert sessions[f"{LABEL}:s1"].spawn_tool_call_id == "s1"
    assert sessions[f"{LABEL}:s1"].created_at == first.started_at + 2000
    assert sessions[f"{LABEL}:t1"].spawn_tool_call_id == "t1"
    assert sessions[f"{LABEL}:three"].is_subagent
    before = result(ledger)
    assert packed_result(tmp_path, log.path) == before
    rederive(ledger)
    assert result(ledger) == before
    assert not ledger.audit()


@pytest.mark.parametrize("odd", [7, "", ["one"], {"id": "one"}])
def test_an_agent_id_may_be_any_text(ledger: Ledger, tmp_path: Path, odd: Any) -> None:
    log = Events(tmp_path)
    log.add("user.message", odd, content="Go on.")
    log.add("subagent.started", odd, toolCallId=odd)
    log.say("Done.", agent=odd)
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert [m.content for m in turn.messages] == ["Go on.", "Done."]
    assert len(list(ledger.sessions())) == 1


def test_a_log_cut_within_a_turn_and_continued_differently_is_followed(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = helped(tmp_path)
    log.say("Seen.")
    import_paths(ledger, log.save())
    before, whole = result(ledger), log.path.read_bytes()
    log.cut(2)
    import_paths(ledger, log.save())
    assert result(ledger) == before  # a cut takes nothing away

    log.say("Another answer.")
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert [m.content for m in turn.messages] == ["Let somebody look.", "Another answer."]
    assert (turn.output_tokens, turn.tool_calls) == (10, ())
    assert ledger.thread(f"{LABEL}:s1").turns  # what was imported of the subagent stays
    now, former = export_source(ledger, LABEL, tmp_path / "given")
    assert (now.read_bytes(), former.read_bytes()) == (log.path.read_bytes(), whole)
    shown = result(ledger)
    rederive(ledger)
    assert result(ledger) == shown
    assert not import_paths(ledger, log.path).records

    log.path.write_bytes(whole)  # as it was before: less lately
    import_paths(ledger, log.path)
    assert result(ledger) == shown

    log.say("And more.")
    log.lines[-1] = log.lines[-1].replace('"timestamp"', '"when"')
    import_paths(ledger, log.save())
    assert ledger.thread(LABEL).turns[0].messages[-1].content == "And more."
    assert not ledger.audit()


@pytest.mark.parametrize("names", [("inputTokens", "outputTokens"), ("input", "output")])
def test_a_compaction_is_a_turn_and_work_continues_after_it(
    ledger: Ledger, tmp_path: Path, names: tuple[str, str]
) -> None:
    log = Events(tmp_path)
    prompt = log.add("user.message", content="Long work.")
    log.say("Half.")
    log.add("session.compaction_start")
    compaction = log.add(
        "session.compaction_complete",
        success=True,
        summaryContent="What came before.",
        preCompactionTokens=900,
        compactionTokensUsed=dict(zip(names, (870, 0), strict=True)),
    )
    after = log.say("Whole.")

    import_paths(ledger, log.save())

    turns = ledger.thread(LABEL).turns
    assert [turn.id for turn in turns] == [prompt, compaction, after]
    record = turns[1].compaction
    assert record is not None
    assert (record.summarized_through_turn_id, record.tokens_before) == (prompt, 900)
    assert (record.summarization_input_tokens, record.summarization_output_tokens) == (870, 0)


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("name: The cart", "The cart"),
        ("name: 'The cart'", "The cart"),
        ('name: "Say: \\"cart\\""', 'Say: "cart"'),
        ("name: |-\n  The cart\n\n  of mine: all of it", "The cart  of mine: all of it"),
        ("name:\nsummary: The cart", "The cart"),
    ],
)
def test_the_title_comes_from_the_workspace_file(
    ledger: Ledger, tmp_path: Path, written: str, title: str
) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="One.")
    log.say("First.")
    path = log.save()
    beside = path.with_name("workspace.yaml")
    beside.write_text(f"id: {SESSION}\ncwd: /home/dev/shop\n{written}\nbranch: main\n")

    import_paths(ledger, path.parent)

    assert ledger.query("SELECT source_title FROM sessions")[1] == [(title,)]


def test_invalid_records_do_not_prevent_the_import_of_the_rest(
    ledger: Ledger, tmp_path: Path
) -> None:
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


def test_the_default_locations(tmp_path: Path) -> None:
    assert Copilot().roots(Home(tmp_path, {}, "linux")) == [
        tmp_path / ".copilot/session-state",
        tmp_path / ".copilot/history-session-state",
    ]
    chosen = Home(tmp_path, {"COPILOT_HOME": "/data"}, "linux")
    assert Copilot().roots(chosen)[0] == Path("/data/session-state")


TIMELINE: list[dict[str, Any]] = [
    {"type": "info", "text": "Connected."},
    {"type": "user", "text": "What is in it?", "expandedText": "What is in @cart.py?"},
    {"type": "copilot", "text": "I look."},
    {"type": "tool_call_requested", "callId": "t1", "name": "str_replace_editor"},
    {"type": "tool_call_requested", "callId": "t2", "name": "bash"},
    {"type": "tool_call_completed", "callId": "t1", "name": "str_replace_editor"},
    {"type": "tool_call_completed", "callId": "t2", "name": "bash"},
    {"type": "copilot", "text": "A cart."},
    {"type": "user", "text": "And then?"},
    {"type": "info", "text": "Operation cancelled by user"},
    {"type": "hologram", "beam": "blue"},
]
GIVEN = {"t1": {"command": "view", "path": "cart.py"}, "t2": {"command": "ls"}}
RESULTS = {"t1": {"type": "success", "log": "x = 1"}, "t2": {"type": "rejected", "log": "No."}}


def a_document(entries: int = len(TIMELINE), **more: Any) -> dict[str, Any]:
    timeline = []
    for number, entry in enumerate(TIMELINE[:entries]):
        made = {"id": f"eeeeeeee-0000-4000-8000-{number:012}", **entry}
        made["timestamp"] = f"2025-10-04T05:35:{number:02}.000Z"
        if "callId" in entry:
            made["arguments"] = GIVEN[entry["callId"]]
        if entry["type"] == "tool_call_completed":
            made["result"] = RESULTS[entry["callId"]]
        timeline.append(made)
    sent = [{"role": "user", "content": "What is in it?"}]
    about = {"sessionId": SESSION, "startTime": "2025-10-04T05:35:00.000Z"}
    return {**about, "chatMessages": sent, "timeline": timeline, **more}


def save_document(home: Path, said: dict[str, Any]) -> Path:
    path = home / "history-session-state" / f"session_{SESSION}_1759556100000.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said, indent=2))
    return path


def test_a_document_of_2025_is_imported_like_events(ledger: Ledger, tmp_path: Path) -> None:
    report = import_paths(ledger, save_document(tmp_path, a_document()))

    turn, left = ledger.thread(LABEL).turns
    asked, said, answered = (m for m in turn.messages if m.role != "system")
    words = [asked.content, said.content, answered.content]
    assert words == ["What is in it?", "I look.", "A cart."]
    assert json.loads(str(asked.context_json)) == {"sent": "What is in @cart.py?"}
    assert [(c.id, c.tool_name, c.status) for c in turn.tool_calls] == [
        ("t1", "str_replace_editor", "completed"),
        ("t2", "bash", "rejected"),
    ]
    assert [json.loads(str(call.params_json)) for call in turn.tool_calls] == list(GIVEN.values())
    assert json.loads(str(turn.tool_calls[0].result_json)) == "x = 1"
    assert ledger.query("SELECT kind, file_path FROM message_files")[1] == [("read", "cart.py")]
    assert (left.status, left.error) == ("failed", "Aborted: Operation cancelled by user")
    told = {(kind, fate): number for (_, kind, fate), number in report.records.items()}
    assert told["chatMessage", "unmapped"] == 1
    assert told["hologram", "unmapped"] == 1
    assert sum(told.values()) == len(TIMELINE) + 1


def test_a_growing_document_that_continues_as_events_is_one_session(
    ledger: Ledger, tmp_path: Path
) -> None:
    for entries in (2, 5, len(TIMELINE)):
        import_paths(ledger, save_document(tmp_path, a_document(entries)))
    assert import_paths(ledger, tmp_path).derived_records == 0
    whole = result(ledger)
    rederive(ledger)
    assert result(ledger) == whole

    log = Events(tmp_path / "session-state")
    log.add("user.message", content="Go on.")
    log.say("I do.")
    import_paths(ledger, log.save())

    assert [t.messages[0].content for t in ledger.thread(LABEL).turns] == ["Go on."]
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(3,)]
    assert ledger.query("SELECT count(*) FROM sessions")[1] == [(1,)]


def test_a_document_without_a_timeline_is_read_from_chat_messages(
    ledger: Ledger, tmp_path: Path
) -> None:
    call = {"id": "t1", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    sent = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": [{"type": "text", "text": "List."}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "a.py"},
        {"role": "assistant", "content": "One file."},
    ]
    path = save_document(tmp_path, a_document(0, chatMessages=sent))
    path = path.rename(tmp_path / "renamed.json")

    import_paths(ledger, path)

    (turn,) = ledger.thread(LABEL).turns
    said = [(m.role, m.content) for m in turn.messages]
    assert said[1:] == [("user", "List."), ("assistant", ""), ("assistant", "One file.")]
    (done,) = turn.tool_calls
    assert (done.tool_name, done.result_json, done.params_json) == (
        "bash",
        '"a.py"',
        '{"command":"ls"}',
    )


def test_a_damaged_document_is_archived_and_reported(ledger: Ledger, tmp_path: Path) -> None:
    path = save_document(tmp_path, a_document())
    path.write_text(path.read_text()[:-40])

    report = import_paths(ledger, path)

    assert [fault.what for fault in report.faults] == ["not a session"]
    assert report.records == {("copilot", "(malformed)", "malformed"): 1}
    home = Home(Path("/home/dev"), {}, "linux")
    assert Path("/home/dev/.copilot/history-session-state") in Copilot().roots(home)
    assert Copilot().wants(path)


def test_packed_turns_that_are_read_again_are_the_same(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("system.message", content="Be brief.")
    for number in range(6):
        log.add("user.message", content=f"question {number}")
        log.say("Ask.", request(f"t{number}", "task", prompt=f"part {number}"))
        arguments = {"prompt": f"part {number}"}
        log.add("tool.execution_start", toolCallId=f"t{number}", name="task", arguments=arguments)
        log.lines.append(log.lines[-1])  # an id that comes again
    log.add("session.compaction_complete", success=True, summaryContent="Six questions.")
    log.add("system.notification", content="It goes on.")
    for number in range(6):  # what they come to, when many others have begun
        log.say(f"found {number}", parentToolCallId=f"t{number}")
        log.add("tool.execution_complete", toolCallId=f"t{number}", result={"content": "done"})
    log.say("All done.")
    path = log.save()
    import_paths(ledger, path)
    before = result(ledger)

    assert packed_result(tmp_path, path) == before
    assert len(before["turns"]) == 14
    assert len(before["sessions"]) == 7


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_copy_without_its_beginning_has_the_rest_of_the_same_turns(
    order: tuple[int, int], ledger: Ledger, tmp_path: Path
) -> None:
    log = Events(tmp_path / "whole")
    asked = log.add("user.message", content="Begin.")
    log.say("Reading.", request("t1", "view", path="cart.py"))
    log.add("tool.execution_complete", toolCallId="t1", success=True, result={"content": "x"})
    log.say("Begun.")
    again = log.add("user.message", content="And?")
    log.say("Done.")
    whole = log.save()
    rest = tmp_path / "rest" / "other" / "events.jsonl"
    rest.parent.mkdir(parents=True)
    rest.write_text("".join(line + "\n" for line in log.lines[4:]))

    for number in order:
        import_paths(ledger, (whole, rest)[number])

    turns = ledger.thread(LABEL).turns
    assert [turn.id for turn in turns] == [asked, again]
    assert [m.content for m in turns[0].messages] == ["Begin.", "Reading.", "Begun."]
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(2,)]


def test_a_continued_copy_and_its_first_compaction_stay_separate_turns(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="Begin.")
    log.say("One.")
    log.save()
    import_paths(ledger, log.path)
    rest = log.say("Two.")
    log.add("session.compaction_complete", summaryContent="So far.", preCompactionTokens=10)
    log.add("user.message", content="And?")
    log.say("Done.")
    del log.lines[1]
    import_paths(ledger, log.save())

    said = {row[0] for row in ledger.query("SELECT content FROM messages")[1]}
    assert {"Begin.", "One.", "Two.", "So far.", "And?", "Done."} <= said
    (spent,) = ledger.query("SELECT sum(output_tokens) FROM turns WHERE status = 'completed'")[1][0]
    assert spent >= 30
    assert rest


def test_a_copy_that_begins_at_a_compaction_removes_no_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path / "whole")
    log.add("user.message", content="Begin.")
    log.say("One.")
    log.add("session.compaction_complete", summaryContent="So far.", preCompactionTokens=10)
    log.add("user.message", content="And?")
    log.say("Done.")
    import_paths(ledger, log.save())
    before = [turn.id for turn in ledger.thread(LABEL).turns]
    rest = tmp_path / "rest" / "other" / "events.jsonl"
    rest.parent.mkdir(parents=True)
    rest.write_text("".join(line + "\n" for line in (log.lines[0], *log.lines[3:])))
    import_paths(ledger, rest)

    assert [turn.id for turn in ledger.thread(LABEL).turns] == before
    assert len(before) == 3
