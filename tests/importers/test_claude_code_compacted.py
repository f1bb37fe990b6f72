"""Claude Code: what is written around a compaction, and commands that the program answers."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.model.turns import Turn
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths, packed_result, result

FORK = "22222222-2222-4222-8222-222222222222"
NOTHING = {"input_tokens": 0, "output_tokens": 0}
CAVEAT = "<local-command-caveat>Caveat: generated while running local commands."
COMPACT = "<command-name>/compact</command-name>\n<command-message>compact</command-message>"
COMPACTED = "<local-command-stdout>Compacted</local-command-stdout>"


def boundary(log: Log, name: str, after: str, left: list[str], summary: str) -> None:
    segment = {"headUuid": uid(left[0]), "anchorUuid": uid(summary), "tailUuid": uid(left[-1])}
    left_whole = {"anchorUuid": uid(summary), "uuids": [uid(each) for each in left]}
    metadata = {"trigger": "auto", "preservedSegment": segment, "preservedMessages": left_whole}
    above: dict[str, Any] = {"parentUuid": None, "logicalParentUuid": uid(after)}
    log.add("system", name, subtype="compact_boundary", compactMetadata=metadata, **above)
    log.user(summary, "So far.", isCompactSummary=True)


def original(folder: Path) -> Log:
    log = Log(folder)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", "Go on.")
    log.assistant("b2", tool("t1", "Bash", command="ls"), usage={"output_tokens": 1651})
    log.result("b3", "t1", "a file")
    return log


def fork(folder: Path, name: str = FORK, shared: int = 3) -> Log:
    """It begins behind a compaction that left records of the original, and tells them again."""
    log = Log(folder, name)
    log.lines = original(folder).lines[:shared]
    boundary(log, "c1", "b3", ["b2", "b3"], "c2")
    log.assistant("b2", tool("t1", "Bash", command="ls"), usage=NOTHING, sessionKind="bg")
    log.result("b3", "t1", "a file")
    log.assistant("d1", text("Going on."))
    log.user("e1", "And now?")
    log.assistant("e2", text("Now it is done."))
    return log


def asked_after_a_command(folder: Path) -> Log:
    log = Log(folder)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", "<command-name>/model</command-name>")
    log.user("b2", "<local-command-stdout>Set model to opus</local-command-stdout>")
    log.user("c1", "Go on.")
    return log


def ids(turns: tuple[Turn, ...]) -> list[str]:
    return [turn.id for turn in turns]


def test_records_that_a_fork_tells_again_behind_a_compaction_stand_before_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    import_paths(ledger, fork(tmp_path).save())

    turns = ledger.thread(f"claude-code:{FORK}").turns
    assert ids(turns) == [uid("a1"), uid("b1"), uid("c1"), uid("d1"), uid("e1")]
    assert [turn.id for turn in turns if turn.turn_type == "compaction"] == [uid("c1")]
    assert [call.id for call in turns[1].tool_calls] == ["t1"]
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(5,)]


@pytest.mark.parametrize("order", [*permutations((SESSION, FORK))])
def test_of_a_record_and_the_same_told_again_the_first_counts(
    ledger: Ledger, tmp_path: Path, order: tuple[str, ...]
) -> None:
    logs = {SESSION: original(tmp_path), FORK: fork(tmp_path)}
    for name in order:
        import_paths(ledger, logs[name].save())

    assert ids(ledger.thread(f"claude-code:{FORK}").turns)[:3] == [uid("a1"), uid("b1"), uid("c1")]
    assert ledger.head(f"claude-code:{SESSION}") == uid("b1")
    assert ledger.get_turn(uid("b1")).output_tokens == 1651
    assert packed_result(tmp_path, tmp_path) == result(ledger)


@pytest.mark.parametrize("name", [FORK, "00000000-2222-4222-8222-222222222222"])
@pytest.mark.parametrize("shared", [0, 2, 3])
@pytest.mark.parametrize("order", [*permutations((0, 1))])
def test_however_little_a_fork_shares_it_stands_behind_the_compaction(
    ledger: Ledger, tmp_path: Path, name: str, shared: int, order: tuple[int, ...]
) -> None:
    logs = [original(tmp_path), fork(tmp_path, name, shared)]
    for number in order:
        import_paths(ledger, logs[number].save())

    thread = ids(ledger.thread(f"claude-code:{name}").turns)
    assert thread == [uid("a1"), uid("b1"), uid("c1"), uid("d1"), uid("e1")]
    assert ledger.head(f"claude-code:{SESSION}") == uid("b1")
    assert ledger.get_turn(uid("b1")).output_tokens == 1651
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(5,)]


def test_compact_is_said_to_the_program_alone(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("a3", "/compact keep the plan")
    boundary(log, "c1", "a2", ["a1", "a2"], "c2")
    log.user("c3", CAVEAT, isMeta=True)
    log.user("c4", COMPACT)
    log.user("c5", COMPACTED)
    log.clock += 600
    log.user("d1", "Go on.")
    log.assistant("d2", text("On."))

    import_paths(ledger, log.save())

    first, compaction, last = ledger.thread(f"claude-code:{SESSION}").turns
    assert ledger.query("SELECT count(*) FROM turns WHERE status <> 'completed'")[1] == [(0,)]
    assert (first.id, compaction.turn_type) == (uid("a1"), "compaction")
    assert first.response is not None
    assert first.completed_at == first.response.created_at
    assert [m.content for m in first.messages if m.source == "event"] == ["/compact keep the plan"]
    asked = next(m for m in last.messages if m.content == "Go on.")
    assert last.started_at == asked.created_at
    assert CAVEAT not in [m.content for m in last.messages]


def test_a_prompt_asked_again_after_a_command_stands_where_the_command_stood(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = asked_after_a_command(tmp_path)
    log.user("d1", "Go on, please.", parentUuid=uid("b2"))
    log.assistant("d2", text("On."))

    import_paths(ledger, log.save())

    assert {child.id for child in ledger.children(uid("a1"))} == {uid("c1"), uid("d1")}
    assert ids(ledger.thread(f"claude-code:{SESSION}").turns) == [uid("a1"), uid("d1")]
    assert uid("b1") in {message.id for message in ledger.get_turn(uid("a1")).messages}


def test_a_turn_that_is_none_any_more_counts_as_changed(ledger: Ledger, tmp_path: Path) -> None:
    log = asked_after_a_command(tmp_path)
    assert import_paths(ledger, log.save()).written_turns == 2  # a1, and b1 with c1

    log.user("d1", "Go on, please.", parentUuid=uid("b2"))
    assert import_paths(ledger, log.save()).written_turns == 4  # a1, c1, d1, and b1 is none
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(3,)]


def test_commands_before_the_first_prompt_wait_for_no_answer(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", CAVEAT, isMeta=True)
    log.user("a2", "<command-name>/login</command-name>")
    log.user("a3", "<local-command-stdout>Login successful</local-command-stdout>")
    log.user("b1", "Begin.")
    log.user("c1", "Begin, please.", parentUuid=uid("a3"))
    log.assistant("c2", text("Begun."))

    import_paths(ledger, log.save())

    told, asked = ledger.thread(f"claude-code:{SESSION}").turns
    assert (told.status, asked.id) == ("completed", uid("c1"))
    assert ledger.headlines([told.id])[0].text == "/login"


def test_a_command_whose_words_went_to_the_agent_was_typed_by_somebody(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "<command-message>build</command-message>\n<command-name>/build</command-name>")
    log.user("a2", [text("# Build it, test first")], isMeta=True)
    printed = "<local-command-stdout>Remote control is on</local-command-stdout>"
    log.add("system", "a3", subtype="local_command", content=printed)
    log.assistant("a4", text("Built."))

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"claude-code:{SESSION}").turns
    assert turn.messages[0].source == "human"


@pytest.mark.parametrize("kind", ["permission-rule", "automode-blocked", "user-rejected"])
def test_a_call_that_was_not_allowed_never_ran(ledger: Ledger, tmp_path: Path, kind: str) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Bash", command="rm -r x"))
    log.result("a3", "t1", "Permission was denied.", is_error=True, toolDenialKind=kind)

    import_paths(ledger, log.save())

    (call,) = ledger.get_turn(uid("a1")).tool_calls
    assert (call.status, call.error) == ("rejected", "Permission was denied.")


def test_what_an_advisor_took_is_told_beside_the_usage_of_the_answer(
    ledger: Ledger, tmp_path: Path
) -> None:
    advice = {"type": "advisor_message", "model": "m2", "input_tokens": 8000, "output_tokens": 600}
    own = {"type": "message", "input_tokens": 10, "output_tokens": 5}
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    usage = {"input_tokens": 10, "output_tokens": 5, "iterations": [own, advice]}
    log.assistant("a2", text("Begun."), usage=usage)

    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert turn.output_tokens == 5
    assert json.loads(turn.messages[1].metadata_json or "")["others_usage"] == [advice]


def test_a_command_that_the_agent_answered_was_not_answered_by_what_is_printed_later(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "<command-name>/review</command-name>")
    log.assistant("a2", text("Reviewed."))
    log.user("a3", "<local-command-stdout>Two tasks run.</local-command-stdout>")
    log.user("b1", "<command-name>/model</command-name>")
    log.user("b2", "<system-reminder>Be brief.</system-reminder>")
    log.user("b3", "<local-command-stdout>Set model to opus</local-command-stdout>")
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"claude-code:{SESSION}").turns
    said = [(message.content, message.source) for message in turn.messages]
    assert said[0] == ("<command-name>/review</command-name>", "human")
    assert ("<command-name>/model</command-name>", "event") in said


def test_of_two_that_were_not_told_again_the_longer_counts(ledger: Ledger, tmp_path: Path) -> None:
    logs = [fork(tmp_path / "a", shared=0), original(tmp_path / "b"), original(tmp_path / "c")]
    shorter = json.loads(logs[2].lines[3])
    shorter["message"]["usage"] = {"output_tokens": 1}
    logs[2].lines[3] = json.dumps(shorter)

    import_paths(ledger, *(log.save() for log in logs))

    assert ledger.get_turn(uid("b1")).output_tokens == 1651


def test_a_session_of_nothing_but_a_command_has_that_as_its_turn(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "<command-name>/model</command-name>")
    log.user("a2", "<local-command-stdout>Set model to opus</local-command-stdout>")
    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert (turn.status, len(turn.messages)) == ("completed", 2)


def set_off(log: Log, *prompts: str) -> None:
    """Prompts that set off a compaction, and the answer behind it."""
    for name in prompts:
        log.user(name, f"Go on, {name}.")
    above: dict[str, Any] = {"parentUuid": None, "logicalParentUuid": log.last}
    metadata = {"trigger": "auto", "preTokens": 167_081}
    log.add("system", "c1", subtype="compact_boundary", compactMetadata=metadata, **above)
    log.user("c2", "So far.", isCompactSummary=True)
    log.assistant("d1", tool("t1", "Bash", command="ls"), api="m1")
    log.result("d2", "t1", "a file")
    log.assistant("d3", text("Gone on."))


@pytest.mark.finding("import-4")
@pytest.mark.parametrize("prompts", [("b1",), ("b1", "b2")])
def test_a_prompt_that_sets_off_a_compaction_has_its_answer(
    ledger: Ledger, tmp_path: Path, prompts: tuple[str, ...]
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    set_off(log, *prompts)
    log.user("e1", "And now?", parentUuid=uid("c2"))  # below a late hook of the compaction
    log.assistant("e2", text("Now it is done."))
    import_paths(ledger, log.save())

    turns = ledger.thread(f"claude-code:{SESSION}").turns
    assert ids(turns) == [uid("a1"), uid("c1"), uid("b1"), uid("e1")]
    compaction, answered = turns[1], turns[2]
    assert compaction.compaction is not None
    assert compaction.compaction.summarized_through_turn_id == uid("a1")
    assert [message.content for message in answered.query] == [f"Go on, {p}." for p in prompts]
    assert (answered.status, [call.id for call in answered.tool_calls]) == ("completed", ["t1"])
    assert answered.response is not None
    assert answered.response.content == "Gone on."
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(4,)]
    assert result(ledger) == packed_result(tmp_path, tmp_path)
    assert ledger.audit() == ()


@pytest.mark.finding("import-4")
def test_a_first_prompt_that_sets_off_a_compaction_stays_before_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    set_off(log, "b1")
    import_paths(ledger, log.save())

    turns = ledger.thread(f"claude-code:{SESSION}").turns
    assert ids(turns) == [uid("b1"), uid("c1"), uid("d1")]


@pytest.mark.finding("import-4")
@pytest.mark.parametrize("then", ["nothing", "interrupted", "prompt"])
def test_a_prompt_without_an_answer_behind_a_compaction_stays_before_it(
    ledger: Ledger, tmp_path: Path, then: str
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    set_off(log, "b1")
    del log.lines[-3:]
    log.last = uid("c2")
    if then == "interrupted":
        log.user("d1", "[Request interrupted by user]")
    elif then == "prompt":
        log.user("d1", "Rather this.")
        log.assistant("d2", text("Done."))
    import_paths(ledger, log.save())

    assert ledger.get_turn(uid("b1")).parent_turn_id == uid("a1")
    assert ledger.get_turn(uid("c1")).parent_turn_id == uid("b1")
    assert ledger.get_turn(uid("b1")).response is None
