"""Codex: subagents and the calls that started them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.importers.codex_log import THREAD, Rollout, thread_id, turn_id
from tests.importers.helping import import_paths

LABEL = f"codex:{THREAD}"


def test_a_subagent_is_linked_from_both_sides(ledger: Ledger, tmp_path: Path) -> None:
    child = thread_id(5)
    parent = Rollout(tmp_path)
    parent.start(1)
    parent.ask("Let somebody look.")
    parent.call("s1", "spawn_agent", message="Look.", output=f'{{"agent_id":"{child}"}}')
    parent.say("Somebody looks.")
    spawn = {"parent_thread_id": THREAD, "depth": 1, "agent_role": "explorer"}
    log = Rollout(tmp_path, child, source={"subagent": {"thread_spawn": spawn}})
    log.exchange(6, "Look.")

    import_paths(ledger, log.save(), parent.save())

    session = ledger.session(f"codex:{child}")
    assert (session.is_subagent, session.parent_session_label) == (True, LABEL)
    assert (session.parent_turn_id, session.spawn_tool_call_id) == (turn_id(1), "s1")
    assert ledger.get_turn(turn_id(1)).tool_calls[0].spawned_session_label == f"codex:{child}"
    assert ledger.get_turn(turn_id(6)).query[0].source == "agent"


def test_a_subagent_that_only_an_event_names_is_linked_to_its_call(
    ledger: Ledger, tmp_path: Path
) -> None:
    child = thread_id(5)
    parent = Rollout(tmp_path)
    parent.start(1)
    parent.ask("Let somebody look.")
    parent.call("s1", "spawn_agent", task_name="look")
    parent.activity("s1", child)
    parent.item("function_call_output", call_id="s1", output='{"task_name":"/root/look"}')
    parent.call("s2", "collaboration.send_message", target="/root/look", message="And?")
    parent.activity("s2", child, "interacted")
    parent.say("Somebody looks.")
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": THREAD}}}
    log = Rollout(tmp_path, child, source=spawn)
    log.exchange(6, "Look.")

    report = import_paths(ledger, log.save(), parent.save())

    session = ledger.session(f"codex:{child}")
    assert (session.parent_turn_id, session.spawn_tool_call_id) == (turn_id(1), "s1")
    calls = ledger.get_turn(turn_id(1)).tool_calls
    assert [call.spawned_session_label for call in calls] == [f"codex:{child}", None]
    assert report.records["codex", "event_msg/sub_agent_activity", "derived"] == 2


@pytest.mark.parametrize(
    "item",
    [
        {"type": "SubAgentActivity", "kind": "started", "agent_thread_id": thread_id(5)},
        {
            "type": "CollabAgentToolCall",
            "tool": "spawn_agent",
            "receiver_thread_ids": [thread_id(5)],
        },
    ],
    ids=lambda item: item["type"],
)
def test_a_subagent_that_only_an_item_names_is_linked_to_its_call(
    ledger: Ledger, tmp_path: Path, item: dict[str, Any]
) -> None:
    parent = Rollout(tmp_path)
    parent.start(1)
    parent.ask("Let somebody look.")
    parent.call("s1", "spawn_agent", task_name="look")
    parent.event("item_completed", item={"id": "s1", **item})
    parent.item("function_call_output", call_id="s1", output="{}")
    log = Rollout(tmp_path, thread_id(5), source={"subagent": {"thread_spawn": {}}})
    log.exchange(6, "Look.")

    import_paths(ledger, log.save(), parent.save())

    session = ledger.session(f"codex:{thread_id(5)}")
    assert (session.parent_session_label, session.spawn_tool_call_id) == (LABEL, "s1")


def test_subagents_of_a_rolled_back_turn_keep_their_parent(ledger: Ledger, tmp_path: Path) -> None:
    children = [thread_id(5), thread_id(6)]
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": THREAD}}}
    parent = Rollout(tmp_path)
    parent.exchange(1, "Hello.")
    parent.start(2)
    parent.ask("Let two look.")
    logs = []
    for number, child in enumerate(children):
        logs.append(parent.fork(tmp_path, child, len(parent.lines), source=spawn))
        logs[-1].exchange(7 + number, "Look.")
        parent.call(f"s{number}", "spawn_agent", task_name="look", output="{}")
        parent.activity(f"s{number}", child)
    parent.say("Two look.")
    parent.event("thread_rolled_back", num_turns=1)

    import_paths(ledger, *(log.save() for log in logs), parent.save())

    sessions = [ledger.session(f"codex:{child}") for child in children]
    assert [each.parent_session_label for each in sessions] == [LABEL, LABEL]
    assert [each.spawn_tool_call_id for each in sessions] == ["s0", "s1"]


def test_the_child_s_copy_of_the_spawning_call_links_to_the_child(
    ledger: Ledger, tmp_path: Path
) -> None:
    child = thread_id(5)
    parent = Rollout(tmp_path)
    parent.start(1)
    parent.ask("Let somebody look.")
    parent.call("s1", "spawn_agent", message="Look.")
    fork = parent.fork(
        tmp_path,
        child,
        len(parent.lines),
        source={"subagent": {"thread_spawn": {"parent_thread_id": THREAD}}},
    )
    fork.item(
        "function_call_output", call_id="s1", output="You are the newly spawned agent. Go on."
    )
    fork.exchange(6, "Look.")

    import_paths(ledger, fork.save())

    assert ledger.session(f"codex:{child}").spawn_tool_call_id == "s1"
    assert ledger.session(f"codex:{child}").parent_session_label == LABEL


def test_a_parent_whose_subagents_share_its_first_turns_is_named_by_its_first_prompt(
    ledger: Ledger, tmp_path: Path
) -> None:
    parent = Rollout(tmp_path)
    parent.exchange(1, "Find out why the build is slow.")
    import_paths(ledger, parent.save())
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": THREAD}}}
    child = parent.fork(tmp_path, thread_id(5), len(parent.lines), source=spawn)
    child.exchange(6, "Look at the cache.")
    import_paths(ledger, child.save())
    branch = parent.fork(tmp_path, thread_id(7), len(parent.lines))
    branch.exchange(8, "Look at the network instead.")
    parent.exchange(9, "<skill>Continue.</skill>")

    import_paths(ledger, parent.save(), branch.save())

    lines = {line.session.label: line for line in ledger.pages.session_lines()}
    assert lines[LABEL].name == "Find out why the build is slow."
    # A branch begins with the same prompt; its last one is shown below the name.
    assert lines[f"codex:{thread_id(7)}"].name == "Find out why the build is slow."
    assert lines[f"codex:{thread_id(7)}"].last_prompt == "Look at the network instead."
