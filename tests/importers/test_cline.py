"""Cline tasks: the timeline, the history, and both together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.cline.source import Cline
from tests.importers.helping import import_paths, result

MODEL = {"modelInfo": {"providerId": "anthropic", "modelId": "model-a"}}


def say(ts: int, name: str, text: Any = None, **more: Any) -> dict[str, Any]:
    told = text if isinstance(text, str) or text is None else json.dumps(text)
    return {"ts": ts, "type": "say", "say": name, "text": told, **more}


def request(ts: int, **tokens: Any) -> dict[str, Any]:
    place = "# Current Working Directory (/home/dev/shop) Files"
    return say(ts, "api_req_started", {"request": place, **tokens}, **MODEL)


TASK = say(1000, "task", "Fix the till.")
FIRST = [
    TASK,
    request(1001, tokensIn=10, tokensOut=5, cacheReads=100, cacheWrites=20),
    say(1002, "reasoning", "Where is the till?"),
    say(1003, "text", "I read the file.", conversationHistoryIndex=0),
    say(1004, "tool", {"tool": "readFile", "path": "till.py"}, conversationHistoryIndex=0),
    say(1005, "checkpoint_created"),
    request(1006, tokensIn=20, tokensOut=6),
    say(1007, "command", "make test", conversationHistoryIndex=2),
    say(1008, "command_output", "1 passed"),
    say(1009, "completion_result", "It works.", conversationHistoryIndex=4),
    {"ts": 1010, "type": "ask", "ask": "completion_result", "text": ""},
]
SECOND = [
    say(2000, "user_feedback", "And the drawer?"),
    say(2001, "text", "It is stuck.", conversationHistoryIndex=6),
]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": [text("<task>\nFix the till.\n</task>")]},
    {
        "role": "assistant",
        "content": [
            text("I read the file."),
            {
                "type": "tool_use",
                "id": "toolu_1",
                "name": "read_file",
                "input": {"path": "till.py"},
            },
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "print(1)"}],
    },
    {
        "role": "assistant",
        "content": "<execute_command>\n<command>make test</command>\n</execute_command>",
    },
    {
        "role": "user",
        "content": [text("[execute_command for 'make test'] Result:\n\n1 passed in 2 s")],
    },
    {
        "role": "assistant",
        "content": "<attempt_completion><result>It works.</result></attempt_completion>",
    },
    {
        "role": "user",
        "content": [
            text("[attempt_completion] Result:"),
            text("<feedback>\nAnd the drawer?\n</feedback>"),
        ],
    },
    {"role": "assistant", "content": [text("It is stuck.")]},
]


def write(folder: Path, timeline: Any = None, history: Any = None) -> Path:
    task = folder / "globalStorage" / "rooveterinaryinc.roo-cline" / "tasks" / "1719000000000"
    task.mkdir(parents=True, exist_ok=True)
    if timeline is not None:
        (task / "ui_messages.json").write_text(json.dumps(timeline))
    if history is not None:
        (task / "api_conversation_history.json").write_text(json.dumps(history))
    return task


LABEL = "cline:1719000000000"


def test_the_timeline(ledger: Ledger, tmp_path: Path) -> None:
    report = import_paths(ledger, write(tmp_path, FIRST + SECOND))
    assert report.records["cline", "checkpoint_created", "unmapped"] == 1
    session = ledger.session(LABEL)
    assert '"extension":"rooveterinaryinc.roo-cline"' in str(session.metadata_json)
    first, second = ledger.thread(LABEL).turns
    assert first.id == "1719000000000:1000:task"
    assert (first.model, first.provider) == ("model-a", "anthropic")
    assert first.workspace_path == "/home/dev/shop"
    assert (first.input_tokens, first.output_tokens, first.total_tokens) == (30, 11, 161)
    assert [m.content for m in first.query] == ["Fix the till."]
    assert first.messages[1].thinking == "Where is the till?"
    assert first.messages[2].files[0].file_path == "till.py"
    assert first.response is not None
    assert first.response.content == "It works."
    read, run = first.tool_calls
    assert (read.tool_name, read.status) == ("readFile", "completed")
    assert (run.tool_name, run.result_json) == ("execute_command", '"1 passed"')
    assert second.query[0].content == "And the drawer?"
    assert ledger.audit() == ()


def test_a_timeline_with_its_history(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, write(tmp_path, FIRST + SECOND, HISTORY))
    first, second = ledger.thread(LABEL).turns
    read, run = first.tool_calls
    assert (read.tool_name, read.result_json) == ("read_file", '"print(1)"')
    assert run.params_json == '{"command":"make test"}'
    assert run.result_json == '"1 passed in 2 s"'
    assert second.response is not None
    assert ledger.audit() == ()


def test_the_history_may_come_later(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, write(tmp_path, FIRST[:5]))
    import_paths(ledger, write(tmp_path, FIRST + SECOND))
    task = write(tmp_path, FIRST + SECOND, HISTORY)
    import_paths(ledger, task)
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(2,)]
    calls = ledger.query("SELECT result_json FROM tool_calls ORDER BY sequence")[1]
    assert calls == [('"print(1)"',), ('"1 passed in 2 s"',)]
    before = result(ledger)
    again = import_paths(ledger, task)
    assert (again.counts.skipped, again.read_bytes, again.written_turns) == (1, 0, 0)
    assert rederive(ledger).written_turns == 0
    assert result(ledger) == before


def test_the_history_alone(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, write(tmp_path, None, HISTORY))
    first, second = ledger.thread(LABEL).turns
    assert [m.content for m in first.query] == ["Fix the till."]
    assert [call.tool_name for call in first.tool_calls] == ["read_file", "execute_command"]
    assert first.tool_calls[0].id == "toolu_1"
    assert [m.content for m in second.query] == ["And the drawer?"]
    assert ledger.audit() == ()


def test_a_recent_history_has_results_and_words_in_calls(ledger: Ledger, tmp_path: Path) -> None:
    def did(name: str, call: str, words: str | None = None, **given: Any) -> dict[str, Any]:
        called = {"type": "tool_use", "id": call, "name": name, "input": given}
        tokens = {"prompt": 10, "completion": 5, "cached": 100}
        said = [text(words)] if words else []
        return {"role": "assistant", "content": [*said, called], "metrics": {"tokens": tokens}}

    where = "# Current Working Directory (/home/dev/shop) Files"
    history = [
        {"role": "user", "content": [text("<task>\nFix it.\n</task>"), text(where)], "ts": 1000},
        did("execute_command", "c1", "I try.", command="make") | MODEL,
        {
            "role": "user",
            "content": [
                text("[execute_command for 'make'] Result:\nCommand failed with exit code 2.\nNo."),
                text("<environment_details>\n</environment_details>"),
            ],
        },
        did("use_subagents", "c2", prompt="Look.") | MODEL,
        {"role": "user", "content": [text("[subagents] Result:\nSeen.")]},
        did("attempt_completion", "c3", result="It works.") | MODEL,
    ]

    import_paths(ledger, write(tmp_path, None, history))

    (turn,) = ledger.thread(LABEL).turns
    assert [(c.id, c.status, c.result_json) for c in turn.tool_calls] == [
        ("c1", "failed", '"Command failed with exit code 2.\\nNo."'),
        ("c2", "completed", '"Seen."'),
    ]
    assert turn.response is not None
    assert turn.response.content == "It works."
    assert (turn.model, turn.input_tokens, turn.total_tokens) == ("model-a", 30, 345)
    assert turn.workspace_path == ledger.session(LABEL).routing_key == "/home/dev/shop"


def test_a_restored_task_leaves_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, write(tmp_path, FIRST + SECOND))
    other = [say(3000, "user_feedback", "Rather the lamp."), say(3001, "text", "It is lit.")]
    import_paths(ledger, write(tmp_path, FIRST + other))
    assert [t.query[0].content for t in ledger.thread(LABEL).turns] == [
        "Fix the till.",
        "Rather the lamp.",
    ]
    assert len(ledger.children("1719000000000:1000:task")) == 2
    assert ledger.audit() == ()


def test_a_condensed_context_is_a_compaction(ledger: Ledger, tmp_path: Path) -> None:
    told = {"summary": "The till is fixed.", "prevContextTokens": 900, "newContextTokens": 90}
    condensed = {**say(1500, "condense_context"), "contextCondense": told}
    import_paths(ledger, write(tmp_path, [*FIRST, condensed, *SECOND]))
    kinds = [turn.turn_type for turn in ledger.thread(LABEL).turns]
    assert kinds == ["normal", "compaction", "normal"]
    (compaction,) = ledger.compactions(LABEL)
    assert (compaction.summary, compaction.tokens_before) == ("The till is fixed.", 900)
    assert ledger.audit() == ()


def test_a_call_that_was_not_approved(ledger: Ledger, tmp_path: Path) -> None:
    asked = {"ts": 1100, "type": "ask", "ask": "tool", "text": '{"tool":"newFileCreated"}'}
    import_paths(ledger, write(tmp_path, [TASK, asked]))
    assert ledger.query("SELECT status FROM tool_calls")[1] == [("cancelled",)]


def test_where_it_is_found() -> None:
    roots = Cline().roots(Home(Path("/Users/ann"), {}, "darwin"))
    storage = Path("/Users/ann/Library/Application Support/Code/User/globalStorage")
    assert storage / "saoudrizwan.claude-dev" / "tasks" in roots
    assert Path("/Users/ann/.cline/data/tasks") in roots
    assert Cline().wants(Path("/x/ui_messages.json"))
    assert not Cline().wants(Path("/x/task_metadata.json"))


def test_entries_of_one_millisecond_stay_separate(ledger: Ledger, tmp_path: Path) -> None:
    twice = [TASK, say(1001, "text", "One."), say(1001, "text", "Two.")]
    path = tmp_path / "tasks" / "7" / "ui_messages.json"
    path.parent.mkdir(parents=True)
    for entries in (twice[:2], twice):
        path.write_text(json.dumps(entries))
        import_paths(ledger, path)

    found = ledger.query("SELECT id, content FROM messages WHERE role = 'assistant' ORDER BY id")
    assert found[1] == [("7:1001:text", "One."), ("7:1001:text:2", "Two.")]


def test_unpaired_surrogates_do_not_hide_a_task(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "tasks" / "7" / "ui_messages.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([TASK, say(1001, "text", "LONE")]).replace("LONE", "\\ud83d"))

    assert import_paths(ledger, path).faults == []
    assert ledger.session("cline:7").thread_id == "7:1000:task"


def test_messages_of_a_history_keep_their_ids_if_another_is_malformed(
    ledger: Ledger, tmp_path: Path
) -> None:
    history = tmp_path / "tasks" / "7" / "api_conversation_history.json"
    history.parent.mkdir(parents=True)
    said = [{"role": "user", "content": "Fix it."}, {"role": "assistant", "content": "Done."}]
    told = json.dumps(said, separators=(",", ":"))
    history.write_text(told)
    import_paths(ledger, history)

    history.write_text(told[:-1] + ',{"role":"assistant","content":"Tested.","cost":NaN}]')
    import_paths(ledger, history)

    found = ledger.query("SELECT content FROM messages ORDER BY sequence")
    assert found[1] == [("Fix it.",), ("Done.",), ("Tested.",)]


def test_a_timeline_with_an_odd_first_element_is_read(ledger: Ledger, tmp_path: Path) -> None:
    report = import_paths(ledger, write(tmp_path, [None, *FIRST]))

    assert report.unrecognised == []
    (fault,) = report.faults
    assert fault.what.startswith("entry 0 cannot be read: ")
    (turn,) = ledger.thread(LABEL).turns
    assert turn.input_tokens
