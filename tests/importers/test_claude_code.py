"""Claude Code's records, one oddity at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths, result


def test_a_prompt_and_all_that_follows_it_is_a_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "What does the cart do?")
    log.assistant("a2", {"type": "thinking", "thinking": "Look first."})
    log.assistant("a3", tool("t1", "Read", file_path="/home/dev/shop/cart.py"))
    log.result("a4", "t1", "class Cart: ...")
    log.assistant("a5", text("It adds things up."))
    log.user("b1", "Thanks. And the till?")
    log.assistant("b2", text("It takes money."))

    report = import_paths(ledger, log.save())

    thread = ledger.thread(f"claude-code:{SESSION}")
    first, second = thread.turns
    assert (first.id, second.id) == (uid("a1"), uid("b1"))
    assert [message.content for message in first.query] == ["What does the cart do?"]
    assert first.query[0].source == "human"
    assert first.response is not None
    assert first.response.content == "It adds things up."
    assert [call.tool_name for call in first.tool_calls] == ["Read"]
    assert first.tool_calls[0].result_json == '"class Cart: ..."'
    assert first.tool_calls[0].status == "completed"
    assert first.messages[1].thinking == "Look first."
    assert first.messages[2].files[0].file_path == "/home/dev/shop/cart.py"
    assert (first.workspace_path, first.model) == ("/home/dev/shop", "claude-opus-5")
    assert report.counts.imported == 1
    assert sum(report.records.values()) == len(log.lines)


@pytest.mark.parametrize("late", [False, True])
def test_of_an_answer_counts_what_knows_its_end(ledger: Ledger, tmp_path: Path, late: bool) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    guess, true = (
        {"input_tokens": 250, "output_tokens": 0},
        {"input_tokens": 230, "output_tokens": 4},
    )
    model = {"api": "m1", "model": "glm-5"}
    log.assistant("a2", {"type": "thinking", "thinking": "Hm."}, **model, usage=guess)
    log.assistant("a3", text("Begun."), **model, usage=true)
    if late:
        none = dict.fromkeys(true, 0)
        log.assistant("a4", tool("t1", "Bash", command="make"), **model, usage=none)
    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))

    assert (turn.input_tokens, turn.output_tokens, turn.total_tokens) == (230, 4, 234)
    assert (turn.model, turn.provider) == ("glm-5", None)


def test_pieces_of_one_api_message_are_one_message_and_count_once(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Do two things.")
    growing = [{"input_tokens": 100, "output_tokens": n} for n in (1, 7, 42)]
    log.assistant("a2", {"type": "thinking", "thinking": ""}, api="m1", usage=growing[0])
    log.assistant("a3", text("Both now."), api="m1", usage=growing[1])
    log.assistant("a4", tool("t1", "Bash", command="one"), api="m1", usage=growing[2])
    log.result("a5", "t1", "1")

    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert [message.role for message in turn.messages] == ["user", "assistant"]
    assert turn.messages[1].content == "Both now."
    assert '"thinking_withheld":true' in (turn.messages[1].metadata_json or "")
    assert (turn.input_tokens, turn.output_tokens, turn.total_tokens) == (100, 42, 142)


def test_cache_writes_that_are_kept_for_an_hour_cost_twice_the_input(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Read it.")
    usage = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 1_000_000}
    kept = {"ephemeral_5m_input_tokens": 600_000, "ephemeral_1h_input_tokens": 400_000}
    log.assistant("a2", text("Done."), usage={**usage, "cache_creation": kept})

    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert (turn.cache_write_tokens, turn.long_cache_write_tokens) == (1_000_000, 400_000)
    assert turn.total_tokens == 1_000_000
    cost = ledger.usage().total.cost_microdollars
    assert cost == 0.6 * 6_250_000 + 0.4 * 10_000_000


def test_parallel_results_hang_sideways_and_are_no_forks(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Read both.")
    log.assistant("a2", tool("t1", "Read", file_path="/x"), api="m1")
    log.assistant("a3", tool("t2", "Read", file_path="/y"), api="m1")
    log.result("a4", "t1", "x", parentUuid=uid("a2"))
    log.result("a5", "t2", "y", parentUuid=uid("a3"))
    log.assistant("a6", text("Read."), parentUuid=uid("a4"))

    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert len(ledger.roots()) == 1
    assert not turn.has_children
    assert [call.result_json for call in turn.tool_calls] == ['"x"', '"y"']
    assert turn.response is not None


def test_a_prompt_asked_again_from_the_same_point_is_a_branch(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", "Go left.")
    log.assistant("b2", text("Left."))
    log.user("c1", "Go right.", parentUuid=uid("a2"))
    log.assistant("c2", text("Right."))

    import_paths(ledger, log.save())

    assert {child.id for child in ledger.children(uid("a1"))} == {uid("b1"), uid("c1")}
    assert ledger.head(f"claude-code:{SESSION}") == uid("c1")


def test_an_unanswered_prompt_is_pending_and_never_the_head(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", "Still there?")
    import_paths(ledger, log.save())

    assert ledger.get_turn(uid("b1")).status == "pending"
    assert ledger.head(f"claude-code:{SESSION}") == uid("a1")

    log.assistant("b2", text("Yes."))
    report = import_paths(ledger, log.save())

    assert ledger.get_turn(uid("b1")).status == "completed"
    assert ledger.head(f"claude-code:{SESSION}") == uid("b1")
    assert (report.counts.upserted, report.written_turns) == (1, 1)


def test_a_copy_of_a_session_shares_its_turns(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    fork = Log(tmp_path, "22222222-2222-4222-8222-222222222222")
    fork.lines, fork.last = list(log.lines), log.last
    fork.user("f1", "In the copy.")
    fork.assistant("f2", text("Here."))
    log.user("b1", "In the first.")
    log.assistant("b2", text("There."))

    import_paths(ledger, log.save())
    import_paths(ledger, fork.save())

    assert len(result(ledger)["turns"]) == 3
    assert ledger.common_ancestor(f"claude-code:{SESSION}", f"claude-code:{fork.session}") == uid(
        "a1"
    )


def test_a_compaction_is_a_turn_with_its_record(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.add(
        "system",
        "c1",
        subtype="compact_boundary",
        parentUuid=None,
        logicalParentUuid=uid("a2"),
        compactMetadata={
            "trigger": "auto",
            "preTokens": 150_000,
            "postTokens": 900,
            "durationMs": 7,
        },
    )
    log.user("c2", "So far: begun.", isCompactSummary=True)
    log.user("d1", "Go on.")
    log.assistant("d2", text("Going."))

    import_paths(ledger, log.save())

    compaction = ledger.get_turn(uid("c1"))
    assert compaction.turn_type == "compaction"
    assert compaction.compaction is not None
    assert compaction.compaction.summary == "So far: begun."
    assert compaction.compaction.summarized_through_turn_id == uid("a1")
    assert compaction.compaction.tokens_before == 150_000
    assert compaction.compaction.tokens_after == 900
    assert compaction.compaction.duration_ms == 7
    assert compaction.compaction.trigger == "context_limit"
    assert ledger.ancestry(f"claude-code:{SESSION}") == (uid("a1"), uid("c1"), uid("d1"))


def test_work_that_goes_on_after_a_compaction_is_a_turn_of_its_own(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    log.result("a3", "t1", "made")
    log.add(
        "system", "c1", subtype="compact_boundary", parentUuid=None, logicalParentUuid=uid("a3")
    )
    log.user("c2", "So far: made.", isCompactSummary=True)
    log.add("attachment", "c3", attachment={"type": "file", "filename": "notes.md"})
    log.assistant("d1", tool("t2", "Bash", command="test"))
    log.result("d2", "t2", "passed")
    log.assistant("d3", text("All passed."))

    import_paths(ledger, log.save())

    label = f"claude-code:{SESSION}"
    assert ledger.ancestry(label) == (uid("a1"), uid("c1"), uid("d1"))
    compaction, after = ledger.get_turn(uid("c1")), ledger.get_turn(uid("d1"))
    assert (compaction.turn_type, compaction.tool_calls) == ("compaction", ())
    assert [call.id for call in after.tool_calls] == ["t2"]
    assert (after.query, after.status) == ((), "completed")


def test_an_output_too_large_for_its_record_is_read_from_its_own_file(
    ledger: Ledger, tmp_path: Path
) -> None:
    whole = "first line\n" * 5000
    saved = f"C:\\x\\{SESSION}\\tool-results\\b1.txt"
    shown = f"<persisted-output>\nToo large. Full output saved to: {saved}\n\nPreview"
    log = Log(tmp_path)
    log.user("a1", "List them.")
    log.assistant("a2", tool("t1", "Bash", command="ls"), tool("t2", "Bash", command="pwd"))
    log.result("a3", "t1", shown)
    log.result("a4", "t2", "/shop")
    import_paths(ledger, log.save())
    call = ledger.get_turn(uid("a1")).tool_calls[0]
    assert json.loads(str(call.result_json)) == shown

    spilled = tmp_path / SESSION / "tool-results" / "b1.txt"
    spilled.parent.mkdir(parents=True)
    spilled.write_text(whole)
    report = import_paths(ledger, spilled)

    turn = ledger.get_turn(uid("a1"))
    assert [json.loads(str(call.result_json)) for call in turn.tool_calls] == [whole, "/shop"]
    told = next(m for m in turn.messages if m.role == "tool")
    assert (told.tool_call_id, told.content) == ("t1", shown)
    assert report.records["claude-code", "tool-results", "derived"] == 1
    assert import_paths(ledger, tmp_path).written_turns == 0


def test_what_is_said_of_a_subagent_beside_its_file(ledger: Ledger, tmp_path: Path) -> None:
    agent = Log(tmp_path / SESSION / "subagents", "agent-abc123")
    agent.session = SESSION
    agent.user("e1", "Search the shop.", isSidechain=True, agentId="abc123")
    agent.assistant("e2", text("Found."), isSidechain=True, agentId="abc123")
    path = agent.save()
    path.with_name("agent-abc123.meta.json").write_text(
        '{"agentType": "Explore", "description": "Search the shop", "spawnDepth": 1}'
    )

    import_paths(ledger, tmp_path)

    child = ledger.session("claude-code:agent-abc123")
    assert child.task_description == "Search the shop"
    assert json.loads(str(child.metadata_json))["agent_type"] == "Explore"
    assert ledger.query("SELECT count(*) FROM session_sources")[1] == [(2,)]


def test_a_record_with_half_a_character_is_read(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Half: \ud83d"))

    report = import_paths(ledger, log.save())

    assert not report.faults
    assert str(ledger.get_turn(uid("a1")).messages[-1].content).startswith("Half: ")


def test_a_subagent_is_a_session_linked_from_both_sides_in_any_order(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Find it.")
    log.assistant("a2", tool("t1", "Task", prompt="Search the shop."))
    log.result("a3", "t1", "Found.", toolUseResult={"agentId": "abc123", "status": "completed"})
    log.assistant("a4", text("Found it."))
    agent = Log(tmp_path / SESSION / "subagents", "agent-abc123")
    agent.session = SESSION
    agent.user("e1", "Search the shop.", isSidechain=True, agentId="abc123")
    agent.assistant("e2", text("Found."), isSidechain=True, agentId="abc123")

    import_paths(ledger, agent.save())
    import_paths(ledger, log.save())

    child = ledger.session("claude-code:agent-abc123")
    assert child.is_subagent
    assert child.parent_session_label == f"claude-code:{SESSION}"
    assert (child.parent_turn_id, child.spawn_tool_call_id) == (uid("a1"), "t1")
    call = ledger.get_turn(uid("a1")).tool_calls[0]
    assert call.spawned_session_label == child.label
    assert ledger.get_turn(uid("e1")).query[0].source == "agent"


def test_old_sidechains_inside_a_file_are_found_by_their_prompt(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Find it.")
    log.assistant("a2", tool("t1", "Task", prompt="Search the shop."))
    log.user("e1", "Search the shop.", isSidechain=True, parentUuid=None)
    log.assistant("e2", text("Found."), isSidechain=True)
    log.result("a3", "t1", "Found.", parentUuid=uid("a2"))
    log.assistant("a4", text("Found it."))

    import_paths(ledger, log.save())

    child = f"claude-code:{SESSION}:{uid('e1')}"
    assert ledger.session(child).spawn_tool_call_id == "t1"
    assert ledger.head(child) == uid("e1")
    assert ledger.ancestry(f"claude-code:{SESSION}") == (uid("a1"),)


def test_what_nobody_typed_opens_no_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Run it.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    log.user("a3", [text("[Request interrupted by user for tool use]")])
    log.user("a4", "<system-reminder>Be brief.</system-reminder>", isMeta=True)
    log.user("b1", "Once more.")
    log.assistant("b2", text("Done."))

    import_paths(ledger, log.save())

    first, second = ledger.thread(f"claude-code:{SESSION}").turns
    assert [m.source for m in first.messages if m.role == "user"] == ["human", "event", "event"]
    assert first.tool_calls[0].status == "cancelled"
    assert second.id == uid("b1")


def test_titles_by_their_rank(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.add("custom-title", customTitle="My shop", sessionId=SESSION)
    log.add("ai-title", aiTitle="A machine's idea", sessionId=SESSION)

    import_paths(ledger, log.save())

    assert ledger.session(f"claude-code:{SESSION}").title == "My shop"


def test_a_failed_call_and_a_refused_one(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Run both.")
    log.assistant("a2", tool("t1", "Bash", command="false"), tool("t2", "Bash", command="rm"))
    log.result("a3", "t1", "exit 1", is_error=True)
    log.result("a4", "t2", "The user doesn't want to proceed with this tool use.", is_error=True)
    log.assistant("a5", text("Neither."))

    import_paths(ledger, log.save())

    calls = ledger.get_turn(uid("a1")).tool_calls
    assert [call.status for call in calls] == ["failed", "rejected"]
    assert calls[0].error == "exit 1"


def test_broken_and_unknown_records_are_reported_and_harm_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.lines.append('{"type": "user", "uuid"')
    log.lines.append("[1, 2]")
    log.lines.append('{"type": "from-the-future", "x": 1}')
    log.assistant("a2", text("Begun."), version=7)
    path = log.save()
    path.write_bytes(path.read_bytes() + b'{"type": "user", "mess')

    report = import_paths(ledger, path)

    assert ledger.get_turn(uid("a1")).status == "completed"
    assert [fault.line for fault in report.faults] == [2, 3, 6]
    assert "not an object" in report.faults[1].what
    assert "unfinished" in report.faults[2].what
    assert report.records["claude-code", "from-the-future", "unmapped"] == 1
    assert sum(report.records.values()) == 6


def test_a_second_import_reads_nothing_and_writes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    path = log.save()
    import_paths(ledger, path)

    report = import_paths(ledger, path)

    assert (report.read_bytes, report.derived_records, report.written_turns) == (0, 0, 0)
    assert report.counts.skipped == 1


def test_a_file_that_shrank_removes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", "More.")
    log.assistant("b2", text("Much more."))
    import_paths(ledger, log.save())
    before = result(ledger)

    log.lines = log.lines[:2]
    import_paths(ledger, log.save())

    assert result(ledger)["turns"] == before["turns"]
    assert result(ledger)["messages"] == before["messages"]


def test_a_session_continued_here_is_not_moved_by_its_source(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    import_paths(ledger, log.save())
    label = f"claude-code:{SESSION}"
    ours = ledger.record(label, "Continued here.", "Gladly.")

    log.assistant("a3", text("One more word."))
    log.user("b1", "Continued there.")
    log.assistant("b2", text("Too."))
    import_paths(ledger, log.save())

    assert ledger.head(label) == ours.id
    assert ledger.session(label).source_has_more
    assert ledger.head(f"{label}~source") == uid("b1")
    frozen = ledger.get_turn(uid("a1")).response
    assert frozen is not None
    assert frozen.content == "Begun."


def test_a_compaction_whose_past_is_not_there_is_no_open_question(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.add("system", "a1", subtype="compact_boundary", logicalParentUuid=uid("99"))
    log.user("a2", "So far: all well.", isCompactSummary=True)
    import_paths(ledger, log.save())

    assert ledger.get_turn(uid("a1")).status == "completed"
    assert ledger.head(f"claude-code:{SESSION}") == uid("a1")


def test_a_compaction_keeps_the_turns_that_it_left_whole(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    for letter in "abc":
        log.user(f"{letter}1", "Go on.")
        log.assistant(f"{letter}2", text("Gone on."))
    said = {"trigger": "auto", "preTokens": 900, "postTokens": 90, "durationMs": 7}
    for name, first in (("d1", "b1"), ("e1", "b2"), ("f1", "c2")):
        segment = {"headUuid": uid(first), "tailUuid": uid("c2")}
        log.add(
            "system",
            name,
            subtype="compact_boundary",
            parentUuid=None,
            logicalParentUuid=uid("c2"),
            compactMetadata={**said, "preservedSegment": segment},
        )

    import_paths(ledger, log.save())

    kept = {}
    for name in ("d1", "e1", "f1"):
        compaction = ledger.get_turn(uid(name)).compaction
        assert compaction is not None
        assert (compaction.tokens_after, compaction.duration_ms) == (90, 7)
        kept[name] = compaction.summarized_through_turn_id, compaction.first_kept_turn_id
    assert kept["d1"] == (uid("a1"), uid("b1"))
    assert kept["e1"] == (uid("b1"), uid("c1"))  # only the end of b was left
    assert kept["f1"] == (uid("c1"), None)


def test_results_and_blocks_inside_an_answer_are_shown(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Search.")
    searched = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    log.assistant(
        "a2",
        searched,
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]},
        {**searched, "id": "s2"},
        {"type": "web_search_tool_result", "tool_use_id": "s2", "content": failed},
        {"type": "hologram", "content": [{"type": "image", "source": {"data": "A" * 400}}]},
    )

    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert [(call.status, call.error) for call in turn.tool_calls] == [
        ("completed", None),
        ("failed", "unavailable"),
    ]
    assert turn.tool_calls[0].result_json == '[{"url":"u"}]'
    assert '"hologram"' in (turn.messages[1].metadata_json or "")
    assert '"bytes":300' in (turn.messages[1].metadata_json or "")


def test_a_file_that_was_cut_and_went_another_way_is_followed(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    for letter in "abcd":
        log.user(f"{letter}1", "Go on.")
        log.assistant(f"{letter}2", text("Gone on."))
    import_paths(ledger, log.save())
    log.lines, log.last = log.lines[:2], uid("a2")
    import_paths(ledger, log.save())
    assert ledger.head(f"claude-code:{SESSION}") == uid("d1")  # a cut takes nothing away

    log.user("e1", "Go elsewhere.")
    log.assistant("e2", text("Gone elsewhere."))
    import_paths(ledger, log.save())

    assert ledger.head(f"claude-code:{SESSION}") == uid("e1")
    assert {child.id for child in ledger.children(uid("a1"))} == {uid("b1"), uid("e1")}
    now, before = export_source(ledger, f"claude-code:{SESSION}", tmp_path / "given")
    assert now.read_bytes() == log.path.read_bytes()
    assert before.name == f"{SESSION}~0.jsonl"  # the one in between held nothing else
    assert before.read_text().count("\n") == 8


def test_not_every_prompt_was_typed_by_somebody(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.", origin={"kind": "human"})
    log.user("a2", "It is done.", origin={"kind": "task-notification"})
    log.user("a3", "Implement the following plan: all.", planContent="all")
    log.user("a5", "Stop.", planContent=None)
    log.user("a6", "Go on.", planContent="")
    log.user("a4", "<teammate-message>Mine is done.</teammate-message>")
    import_paths(ledger, log.save())

    sources = [message.source for message in ledger.get_turn(uid("a1")).messages]
    assert sources == ["human", "event", "event", "human", "human", "agent"]
