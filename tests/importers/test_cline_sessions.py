"""Cline sessions: messages, manifest, subagents, compactions, rewritten documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.pipeline import rederive
from tests.importers import test_cline as tasks
from tests.importers.helping import import_paths, packed_result, result

NAME = "1790877871094_aB3dE"
LABEL = f"cline:{NAME}"
MODEL = {"modelInfo": {"id": "model-a", "provider": "anthropic", "family": "a"}}
DATA = "iVBORw0K" * 8


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def wrapped(words: str, mode: str = "act") -> dict[str, Any]:
    return text(f'<user_input mode="{mode}">{words}</user_input>')


def message(name: str, role: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    said = {"id": f"msg_{name:x<8}", "role": role, "content": list(content)}
    return {**said, "ts": 1790877871000 + sum(map(ord, name)), **more}


def user(name: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return message(name, "user", *content, **more)


def agent(name: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return message(name, "assistant", *content, **MODEL, **more)


def call(name: str, tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


def answer(name: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "name": "t", "content": content, **more}


def used(into: int, out: int, read: int = 0, write: int = 0) -> dict[str, Any]:
    told = {"inputTokens": into, "outputTokens": out, "cost": 0.25}
    return {"metrics": {**told, "cacheReadTokens": read, "cacheWriteTokens": write}}


FIRST = [
    user("u1", wrapped("Fix the till.")),
    agent(
        "a1",
        {"type": "thinking", "thinking": "Where is it?", "signature": "s"},
        text("I read the file."),
        call("c1", "read_files", files=[{"path": "/w/till.py"}, {"path": "/w/drawer.py"}]),
        call("c2", "run_commands", commands=["make test"]),
        **used(100, 10, read=60, write=20),
    ),
    user("r1", answer("c1", [{"query": "/w/till.py", "result": "print(1)", "success": True}])),
    user("r2", answer("c2", "no such rule", is_error=True)),
    agent("a2", text("It works."), **used(150, 5, read=120)),
]
SECOND = [
    user("u2", wrapped("And the drawer?", "plan")),
    agent("a3", text("It is stuck."), **used(200, 7)),
]


def document(messages: Any, name: str = NAME, **more: Any) -> dict[str, Any]:
    said = {"version": 1, "updated_at": "2026-10-01T18:10:00.000Z", "agent": "lead"}
    return {**said, "sessionId": name, **more, "messages": messages, "system_prompt": "You are."}


def manifest(name: str = NAME, cwd: str = "/home/dev/shop", **metadata: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "session_id": name,
        "source": "cli",
        "pid": 7,
        "started_at": "2026-10-01T18:00:00.000Z",
        "status": "running",
        "interactive": True,
        "provider": "anthropic",
        "model": "model-a",
        "cwd": cwd,
        "workspace_root": cwd,
        "enable_tools": True,
        "prompt": "Fix the till.",
        "metadata": metadata,
    }


def save(folder: Path, told: Any, name: str, root: str = NAME) -> Path:
    place = folder / "data" / "sessions" / root
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(f"{json.dumps(told, indent=2)}\n")
    return place


def write(folder: Path, messages: Any, name: str = NAME, **more: Any) -> Path:
    return save(folder, document(messages, name, **more), f"{name}.messages.json", name)


def prompts(ledger: Ledger, label: str = LABEL) -> list[str | None]:
    return [turn.query[0].content for turn in ledger.thread(label).turns if turn.query]


def count(ledger: Ledger, table: str) -> int:
    (row,) = ledger.query(f"SELECT count(*) FROM {table}")[1]
    return int(row[0])


def test_a_session(ledger: Ledger, tmp_path: Path) -> None:
    save(tmp_path, manifest(title="The till"), f"{NAME}.json")
    report = import_paths(ledger, write(tmp_path, FIRST + SECOND))

    assert (report.counts.imported, report.faults, report.unrecognised) == (1, [], [])
    assert report.records["cline", "message: user", "derived"] == 4
    session = ledger.session(LABEL)
    assert (session.title, session.routing_key) == ("The till", "/home/dev/shop")
    assert '"project":"shop"' in str(session.metadata_json)
    first, second = ledger.thread(LABEL).turns
    assert (first.id, second.parent_turn_id) == ("msg_u1xxxxxx", "msg_u1xxxxxx")
    assert (first.model, first.provider) == ("model-a", "anthropic")
    assert first.workspace_path == "/home/dev/shop"
    assert [m.content for m in first.query] == ["Fix the till."]
    assert first.messages[1].thinking == "Where is it?"
    assert first.response is not None
    assert first.response.content == "It works."
    assert [file.file_path for file in first.messages[1].files] == ["/w/till.py", "/w/drawer.py"]
    read, run = first.tool_calls
    assert (read.tool_name, read.status) == ("read_files", "completed")
    assert '"result":"print(1)"' in str(read.result_json)
    assert (run.status, run.error) == ("failed", "no such rule")
    assert second.query[0].content == "And the drawer?"
    assert '"mode":"plan"' in str(second.query[0].metadata_json)
    assert ledger.audit() == ()


def test_a_session_that_is_renamed(ledger: Ledger, tmp_path: Path) -> None:
    write(tmp_path, FIRST)
    for title in ("The till", "The drawer"):
        report = import_paths(ledger, save(tmp_path, manifest(title=title), f"{NAME}.json"))
        assert ledger.session(LABEL).title == title
    assert report.written_turns == 0
    before = result(ledger)
    assert (rederive(ledger).written_turns, result(ledger)) == (0, before)


def test_cached_tokens_are_part_of_the_input(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, write(tmp_path, FIRST))

    (turn,) = ledger.thread(LABEL).turns
    assert (turn.input_tokens, turn.output_tokens, turn.total_tokens) == (250, 15, 265)
    assert (turn.cached_input_tokens, turn.cache_write_tokens) == (180, 20)


def test_times_of_a_session(ledger: Ledger, tmp_path: Path) -> None:
    save(tmp_path, manifest(), f"{NAME}.json")
    import_paths(ledger, write(tmp_path, FIRST))
    ((created, updated),) = ledger.query("SELECT created_at, updated_at FROM sessions")[1]
    assert (created, updated) == (1790877600000, max(each["ts"] for each in FIRST))


def test_messages_without_a_time_have_that_of_their_neighbours(
    ledger: Ledger, tmp_path: Path
) -> None:
    asked = {name: value for name, value in FIRST[0].items() if name != "ts"}
    import_paths(ledger, write(tmp_path, [asked, FIRST[4]]))
    (turn,) = ledger.thread(LABEL).turns
    assert turn.query[0].created_at == turn.started_at == FIRST[4]["ts"]


def test_a_growing_session_ends_in_the_same_rows_as_the_whole(
    ledger: Ledger, tmp_path: Path
) -> None:
    save(tmp_path, manifest(), f"{NAME}.json")
    for number in range(len(FIRST + SECOND) + 1):
        place = write(tmp_path, (FIRST + SECOND)[:number])
        import_paths(ledger, place)
    before = result(ledger)

    again = import_paths(ledger, place)
    assert (again.counts.skipped, again.read_bytes, again.written_turns) == (1, 0, 0)
    assert rederive(ledger).written_turns == 0
    assert result(ledger) == before == packed_result(tmp_path, place)
    assert count(ledger, "turns") == 2


def test_metrics_that_come_later_are_counted_once(ledger: Ledger, tmp_path: Path) -> None:
    unmetered = [{**each, "metrics": None} for each in FIRST]
    for messages in (unmetered, FIRST, FIRST):
        import_paths(ledger, write(tmp_path, messages))
    (turn,) = ledger.thread(LABEL).turns
    assert turn.total_tokens == 265


def test_an_emptied_document_loses_nothing(ledger: Ledger, tmp_path: Path) -> None:
    for messages in (FIRST, [], FIRST + SECOND):
        import_paths(ledger, write(tmp_path, messages))
    assert prompts(ledger) == ["Fix the till.", "And the drawer?"]
    assert count(ledger, "turns") == 2


def test_removed_messages_stay_as_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    other = [user("u9", wrapped("Rather the lamp.")), agent("a9", text("It is lit."))]
    for messages in (FIRST + SECOND, FIRST + other):
        import_paths(ledger, write(tmp_path, messages))
    assert prompts(ledger) == ["Fix the till.", "Rather the lamp."]
    assert len(ledger.children("msg_u1xxxxxx")) == 2
    assert ledger.audit() == ()


def test_joined_or_split_results_are_the_same(ledger: Ledger, tmp_path: Path) -> None:
    joined = user("r9", *FIRST[2]["content"], *FIRST[3]["content"])
    for messages in ([*FIRST[:2], joined, FIRST[4]], FIRST, FIRST + SECOND):
        import_paths(ledger, write(tmp_path, messages))
    assert count(ledger, "turns") == 2
    assert [call.status for call in ledger.thread(LABEL).turns[0].tool_calls] == [
        "completed",
        "failed",
    ]


def folded(**more: Any) -> dict[str, Any]:
    told = {"kind": "compaction_summary", "displayRole": "system", "tokensBefore": 900, **more}
    words = text("Context summary:\n\nThe till is fixed.")
    return user("u1", words, metadata={**told, "summary": "The till is fixed."})


def test_a_document_rewritten_by_a_compaction_loses_no_turn(ledger: Ledger, tmp_path: Path) -> None:
    cut = {**FIRST[4], "content": [text("It …")], "metrics": None}
    third = [user("u3", wrapped("Thanks.")), agent("a4", text("Any time."), **used(30, 2))]
    import_paths(ledger, write(tmp_path, FIRST))
    for messages in ([folded(), cut], [folded(), cut, *third[:1]], [folded(), cut, *third]):
        import_paths(ledger, write(tmp_path, messages))

    first, compaction, last = ledger.thread(LABEL).turns
    assert (first.query[0].content, first.total_tokens) == ("Fix the till.", 265)
    assert first.response is not None
    assert first.response.content == "It works."
    assert compaction.turn_type == "compaction"
    assert (last.query[0].content, last.total_tokens) == ("Thanks.", 32)
    (told,) = ledger.compactions(LABEL)
    assert (told.summary, told.tokens_before) == ("The till is fixed.", 900)
    before = result(ledger)
    assert (rederive(ledger).written_turns, result(ledger)) == (0, before)
    assert ledger.audit() == ()


def test_a_compaction_of_unknown_messages_is_a_notice_of_the_next_prompt(
    ledger: Ledger, tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        import_paths(ledger, write(tmp_path, [folded(), *SECOND][:number]))
    (turn,) = ledger.thread(LABEL).turns
    assert [m.role for m in turn.messages] == ["system", "user", "assistant"]
    assert prompts(ledger) == ["And the drawer?"]


def beside(number: int, *messages: dict[str, Any]) -> dict[str, Any]:
    said = {"version": 1, "updated_at": "2026-10-01T18:10:00.000Z", "conversation_id": NAME}
    return {**said, "source_message_count": number, "messages": list(messages)}


def test_a_compaction_in_a_separate_file(ledger: Ledger, tmp_path: Path) -> None:
    told = beside(len(FIRST), folded(), FIRST[-1])
    save(tmp_path, told, f"{NAME}.compaction.json")
    for messages in (FIRST, FIRST + SECOND):
        report = import_paths(ledger, write(tmp_path, messages))
        assert report.faults == []

    kinds = [turn.turn_type for turn in ledger.thread(LABEL).turns]
    assert kinds == ["normal", "compaction", "normal"]
    assert ledger.compactions(LABEL)[0].summary == "The till is fixed."
    before = result(ledger)
    assert (rederive(ledger).written_turns, result(ledger)) == (0, before)

    save(tmp_path, beside(7, folded(reason="again")), f"{NAME}.compaction.json")
    place = save(tmp_path, beside(99, folded()), "other.compaction.json")
    import_paths(ledger, place)
    kinds = [turn.turn_type for turn in ledger.thread(LABEL).turns]
    assert kinds == ["normal", "compaction", "normal", "compaction"]
    assert ledger.audit() == ()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (wrapped("<mode_notice>Switched from plan.</mode_notice>Go."), "Go."),
        (text('<mode_notice>x</mode_notice><user_input mode="act">Go.</user_input>'), "Go."),
        (text('<user_command slash="review">all of it</user_command>'), "/review all of it"),
        (
            text(
                '<user_command slash="team">spawn a team of agents for the following task:'
                " Go.</user_command>"
            ),
            "/team Go.",
        ),
        (wrapped("a < b and <user_input> is a tag"), "a < b and <user_input> is a tag"),
        (text('<user_input mode="act">cut off'), "cut off"),
        (text("plain words"), "plain words"),
        (text("<task>\nGo.\n</task>"), "Go."),
        (text("See <task>this</task> first."), "See <task>this</task> first."),
        (text("[attempt_completion] Result:\n<feedback>\nGo.\n</feedback>"), "Go."),
    ],
)
def test_the_words_of_a_person_are_unwrapped(
    ledger: Ledger, tmp_path: Path, said: dict[str, Any], shown: str
) -> None:
    import_paths(ledger, write(tmp_path, [user("u1", said), FIRST[4]]))
    assert prompts(ledger) == [shown]


@pytest.mark.parametrize(
    "said",
    [
        user("n1", text('<hook_context source="PostToolUse">x</hook_context>')),
        user("n1", text("Remember."), metadata={"displayRole": "system"}),
        user("n1", text("Call a tool."), metadata={"userRunSpan": 0}),
        user("n1", text("You loop."), metadata={"kind": "loop_detection_notice"}),
        user("n1", wrapped("[TASK RESUMPTION] Please continue where you left off.")),
        user("n1", wrapped("System-delivered teammate async run updates:\n- r1")),
    ],
)
def test_messages_of_the_client_are_not_prompts(
    ledger: Ledger, tmp_path: Path, said: dict[str, Any]
) -> None:
    import_paths(ledger, write(tmp_path, [FIRST[0], FIRST[4], said, SECOND[1]]))
    (turn,) = ledger.thread(LABEL).turns
    assert [m.content for m in turn.query] == ["Fix the till."]
    assert [m.role for m in turn.messages] == ["user", "assistant", "system", "assistant"]
    assert turn.response is not None
    assert turn.response.content == "It is stuck."


def test_a_message_that_a_person_adds_to_a_run_is_a_prompt(ledger: Ledger, tmp_path: Path) -> None:
    added = user("u5", wrapped("Faster."), metadata={"userRunSpan": 0})
    import_paths(ledger, write(tmp_path, [*FIRST, added, SECOND[1]]))
    assert prompts(ledger) == ["Fix the till.", "Faster."]


def test_images_and_files_are_kept_without_their_bytes(ledger: Ledger, tmp_path: Path) -> None:
    image = {"type": "image", "data": DATA, "mediaType": "image/png"}
    made = {"type": "media", "media": {"modality": "image", "source": {"data": DATA}}}
    file = {"type": "file", "path": "/w/notes.md", "content": "remember the milk"}
    messages = [
        user("u1", wrapped("Look."), image, file),
        agent("a1", text("I see."), made, call("c1", "shot")),
        user("r1", answer("c1", [text("done"), image])),
    ]
    import_paths(ledger, write(tmp_path, messages))

    (turn,) = ledger.thread(LABEL).turns
    assert turn.query[0].content == "Look."
    assert '"mediaType":"image/png"' in str(turn.query[0].metadata_json)
    assert [(each.kind, each.file_path) for each in turn.query[0].files] == [
        ("attached", "/w/notes.md")
    ]
    assert "remember the milk" in str(turn.query[0].context_json)
    assert DATA not in json.dumps(result(ledger), default=str)


def test_tools_run_by_the_provider_and_repeated_ids(ledger: Ledger, tmp_path: Path) -> None:
    searched: dict[str, Any] = {
        "toolCallId": "s1",
        "toolName": "web_search",
        "execution": "provider",
    }
    searched |= {"input": {"query": "tills"}, "output": [{"url": "x"}]}
    messages = [
        FIRST[0],
        agent("a1", call("0", "one"), metadata={"modelToolActivities": [searched]}),
        user("r1", answer("0", "first")),
        agent("a2", call("0", "two")),
        user("r2", answer("0", "second")),
        agent("a3", text("Done.")),
    ]
    import_paths(ledger, write(tmp_path, messages))

    (turn,) = ledger.thread(LABEL).turns
    assert [(call.tool_name, call.result_json) for call in turn.tool_calls] == [
        ("web_search", '[{"url":"x"}]'),
        ("one", '"first"'),
        ("two", '"second"'),
    ]


def test_subagents_are_linked_to_the_calls_that_started_them(
    ledger: Ledger, tmp_path: Path
) -> None:
    save(tmp_path, manifest(title="The till"), f"{NAME}.json")
    told = [
        FIRST[0],
        agent("a1", call("c1", "spawn_agent", systemPrompt="s", task="Count the coins.")),
        user("r1", answer("c1", '{"text":"12","usage":{"inputTokens":40}}')),
        agent("a2", text("12 coins.")),
    ]
    count_ = [user("k1", text("Count the coins.")), agent("k2", text("12"), **used(40, 1))]
    origin = {"source": "cli", "mode": "subagent", "parentThreadId": NAME, "subagent": "agent_7"}
    child = document(count_, f"{NAME}__agent_7", agent="subagent", origin=origin)
    save(tmp_path, child, "agent_7.messages.json")
    team = document([user("t1", text("Help."))], f"{NAME}__teamtask__ann__x1", agent="teammate")
    save(tmp_path, team, "ann__x1.messages.json")
    import_paths(ledger, write(tmp_path, told))

    session = ledger.session(f"{LABEL}__agent_7")
    assert (session.is_subagent, session.parent_session_label) == (True, LABEL)
    assert (session.title, session.routing_key) == (None, "/home/dev/shop")
    (turn,) = ledger.thread(f"{LABEL}__agent_7").turns
    assert (turn.query[0].source, turn.total_tokens) == ("agent", 41)
    (call_,) = ledger.thread(LABEL).turns[0].tool_calls
    assert call_.spawned_session_label == f"{LABEL}__agent_7"
    assert ledger.session(f"{LABEL}__teamtask__ann__x1").parent_session_label == LABEL
    assert ledger.query("SELECT sum(total_tokens) FROM turns")[1] == [(41,)]
    assert ledger.audit() == ()


def test_a_fork_shares_the_turns_that_it_continues(ledger: Ledger, tmp_path: Path) -> None:
    fork = {"forkedFromSessionId": NAME, "forkedAt": "2026-10-01T18:20:00.000Z"}
    save(tmp_path, manifest("fork1", title="The till (fork)", fork=fork), "fork1.json", "fork1")
    other = [user("u9", wrapped("Rather the lamp.")), agent("a9", text("It is lit."), **used(9, 1))]
    import_paths(ledger, write(tmp_path, FIRST + SECOND))
    import_paths(ledger, write(tmp_path, FIRST + other, "fork1"))

    assert prompts(ledger) == ["Fix the till.", "And the drawer?"]
    assert prompts(ledger, "cline:fork1") == ["Fix the till.", "Rather the lamp."]
    assert count(ledger, "turns") == 3
    assert ledger.query("SELECT sum(total_tokens) FROM turns")[1] == [(265 + 207 + 10,)]
    assert f'"forked_from":"{NAME}"' in str(ledger.session("cline:fork1").metadata_json)
    before = result(ledger)
    assert (rederive(ledger).written_turns, result(ledger)) == (0, before)


def test_a_task_resumed_as_a_session_is_counted_once(ledger: Ledger, tmp_path: Path) -> None:
    name = tasks.LABEL.removeprefix("cline:")
    warning = "Warning: this is a legacy conversation, which means tool names may have changed."
    copied = [
        user("u1", text("<task>\nFix the till.\n</task>"), text("<environment_details>\n…")),
        agent("a1", text("It works."), **used(10_000, 500)),
        user("w1", text(f"{warning} Please use the most up-to-date tools you are aware of.")),
    ]
    import_paths(ledger, tasks.write(tmp_path, tasks.FIRST))
    import_paths(ledger, write(tmp_path, copied + SECOND, name))

    assert prompts(ledger, tasks.LABEL) == ["Fix the till."]
    assert prompts(ledger, f"{tasks.LABEL}:resumed") == ["Fix the till.", "And the drawer?"]
    assert ledger.query("SELECT sum(total_tokens) FROM turns")[1] == [(161 + 207,)]
    before = result(ledger)
    assert (rederive(ledger).written_turns, result(ledger)) == (0, before)
    assert ledger.audit() == ()


@pytest.mark.parametrize("name", [NAME, "1719000000000"])
def test_a_growing_resumed_task_ends_in_the_same_rows(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    warning = "Warning: this is a legacy conversation, which means tool names may have changed."
    copied = [user("u1", text("<task>\nFix the till.\n</task>")), agent("a1", text("It works."))]
    grown = [*copied, user("w1", text(warning)), *SECOND]
    for end in (1, 2, len(grown) - 1, len(grown)):
        import_paths(ledger, write(tmp_path, grown[:end], name))

    assert ledger.query("SELECT sum(total_tokens) FROM turns")[1] == [(207,)]
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, write(tmp_path, grown, name))
        assert result(whole) == result(ledger)


def test_a_session_without_ids_and_a_task_may_share_a_folder(
    ledger: Ledger, tmp_path: Path
) -> None:
    place = tmp_path / "mixed"
    place.mkdir()
    nameless = [{n: v for n, v in each.items() if n != "id"} for each in FIRST + SECOND]
    (place / "1.json").write_text(json.dumps(document(nameless[:5])))
    (place / "ui_messages.json").write_text(json.dumps(tasks.FIRST))
    import_paths(ledger, place)
    (place / "1.json").write_text(json.dumps(document(nameless)))
    assert import_paths(ledger, place).unrecognised == []

    assert prompts(ledger) == ["Fix the till.", "And the drawer?"]
    assert prompts(ledger, "cline:mixed") == ["Fix the till."]
    assert count(ledger, "turns") == 3


@pytest.mark.parametrize(
    "odd",
    [
        None,
        5,
        {"role": "system", "content": "x"},
        {"role": "assistant", "content": {"type": "text"}},
        {"role": "assistant", "content": [5, None, {"type": "tool_use"}, {"type": "thinking"}]},
        {"role": "user", "content": [{"type": "tool_result"}], "id": 7, "ts": "soon"},
        {"role": "assistant", "metadata": {"modelToolActivities": [5]}, "metrics": {"cost": "x"}},
        {"role": "user", "content": "words", "metadata": [], "metrics": {"inputTokens": -1}},
        {**FIRST[0], "content": [text("the same id again")]},
    ],
)
def test_an_odd_message_does_not_harm_others(ledger: Ledger, tmp_path: Path, odd: Any) -> None:
    messages = [*FIRST, odd, *SECOND]
    report = import_paths(ledger, write(tmp_path, messages))

    assert sum(report.records.values()) == len(messages)
    assert prompts(ledger)[0] == "Fix the till."
    (told,) = ledger.query("SELECT sum(total_tokens) FROM turns")[1]
    assert told == (265 + 207,)
    assert ledger.thread(LABEL).turns[-1].query[-1].content == "And the drawer?"
    assert ledger.audit() == ()


@pytest.mark.parametrize("told", ["{", "[]", '{"messages": 5}', '{"version": 1}', ""])
def test_a_broken_document_is_reported_and_archived(
    ledger: Ledger, tmp_path: Path, told: str
) -> None:
    place = write(tmp_path, FIRST)
    import_paths(ledger, place)
    (place / f"{NAME}.messages.json").write_text(told)
    import_paths(ledger, place)
    import_paths(ledger, write(tmp_path, FIRST + SECOND))
    assert prompts(ledger) == ["Fix the till.", "And the drawer?"]


def test_the_export_equals_the_archived_file(ledger: Ledger, tmp_path: Path) -> None:
    save(tmp_path, manifest(), f"{NAME}.json")
    place = write(tmp_path, FIRST + SECOND)
    import_paths(ledger, place)
    kept = {path.name: path.read_bytes() for path in place.iterdir()}

    export_source(ledger, LABEL, tmp_path / "out")
    written = {each.name: each.read_bytes() for each in (tmp_path / "out").rglob("*.json")}
    assert written == kept
