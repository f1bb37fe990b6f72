"""Copilot CLI: user messages, and who wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.sources.copilot.records import message_source
from tests.importers.copilot_log import LABEL, Events, helped, request
from tests.importers.helping import import_paths, packed_result, result

FOUND = "\n<system_reminder>\nInstructions from lib/AGENTS.md.\n</system_reminder>"


def works(log: Events) -> str:
    """A prompt that is being worked on."""
    prompt = log.add("user.message", content="Tidy up.", interactionId="i1")
    log.say("Reading.", request("t1", "view", path="lib/cart.py"), interactionId="i1")
    log.add("tool.execution_complete", toolCallId="t1", success=True, result={"content": "x"})
    return prompt


@pytest.mark.parametrize("source", ["instruction-discovery", "skill-tidy", "system"])
def test_prompts_added_by_the_program_belong_to_the_current_turn(
    ledger: Ledger, tmp_path: Path, source: str
) -> None:
    log = Events(tmp_path)
    prompt = works(log)
    added = log.add("user.message", content=FOUND, source=source, interactionId="i1")
    log.say("All tidy.", interactionId="i1")
    thanks = log.add("user.message", content="Thanks.", interactionId="i2")
    log.say("Welcome.", interactionId="i2")
    path = log.save()

    import_paths(ledger, path)

    first, second = ledger.thread(LABEL).turns
    assert (first.id, second.id) == (prompt, thanks)
    assert [(m.content, m.source) for m in first.query] == [("Tidy up.", "human")]
    assert [(m.id, m.source) for m in first.messages if m.content == FOUND] == [(added, "event")]
    assert first.response is not None
    assert first.response.content == "All tidy."
    assert first.output_tokens == 20
    before = result(ledger)
    assert packed_result(tmp_path, path) == before
    rederive(ledger)
    assert result(ledger) == before


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ({"source": "schedule", "interactionId": "i2"}, "event"),
        ({"source": "schedule"}, "event"),
        ({"source": "agent-other", "interactionId": "i1"}, "agent"),
        ({"source": "user", "interactionId": "i1"}, "human"),
        ({"interactionId": "i1", "delivery": "steering"}, "human"),
    ],
)
def test_a_prompt_of_another_interaction_is_a_turn(
    ledger: Ledger, tmp_path: Path, said: dict[str, str], source: str
) -> None:
    log = Events(tmp_path)
    prompt = works(log)
    asked = log.add("user.message", content="And now?", **said)
    log.say("Done.")
    import_paths(ledger, log.save())

    turns = ledger.thread(LABEL).turns
    assert [turn.id for turn in turns] == [prompt, asked]
    assert [m.source for m in turns[1].query] == [source]


def test_the_autopilot_message_to_continue_is_an_event(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    works(log)
    told = "You have not yet marked the task as complete."
    image = [{"type": "file", "path": "/home/dev/a.png"}]
    for sent in ({"content": ""}, {"content": "", "attachments": image}):
        log.add("user.message", **sent, transformedContent=told, agentMode="autopilot")
        log.say("Done.")
    import_paths(ledger, log.save())

    _, second, third = ledger.thread(LABEL).turns
    assert [(m.content, m.source) for m in second.query] == [(told, "event")]
    assert [(m.content, m.source) for m in third.query] == [("", "human")]


def test_an_added_prompt_after_a_compaction_belongs_to_the_next_turn(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Events(tmp_path)
    works(log)
    log.add("session.compaction_complete", success=True, summaryContent="So far.")
    log.add("user.message", content=FOUND, source="instruction-discovery", interactionId="i1")
    after = log.say("All tidy.", interactionId="i1")
    import_paths(ledger, log.save())

    *_, last = ledger.thread(LABEL).turns
    assert (last.id, len(ledger.thread(LABEL).turns)) == (after, 3)
    assert [(m.content, m.source) for m in last.messages] == [(FOUND, "event"), ("All tidy.", None)]


def test_a_prompt_added_for_a_subagent_belongs_to_it(ledger: Ledger, tmp_path: Path) -> None:
    log = helped(tmp_path)
    log.add("user.message", "one", content="Look well.", source="agent", interactionId="i1")
    log.say("I do.", agent="one")
    log.add(
        "user.message", "one", content=FOUND, source="instruction-discovery", interactionId="i1"
    )
    log.say("Seen all.", agent="one")
    log.add("user.message", "one", content="And?", source="agent", interactionId="i1")
    log.say("That is all.", agent="one")
    import_paths(ledger, log.save())

    _, second, third = ledger.thread(f"{LABEL}:s1").turns
    assert [(m.content, m.source) for m in second.messages] == [
        ("Look well.", "agent"),
        ("I do.", None),
        (FOUND, "event"),
        ("Seen all.", None),
    ]
    assert [(m.content, m.source) for m in third.query] == [("And?", "agent")]
    assert len(ledger.thread(LABEL).turns) == 1


@pytest.mark.parametrize("begins", [2, 3, 4])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_added_prompt_has_the_same_turn_in_a_copy_without_the_prompt(
    ledger: Ledger, tmp_path: Path, begins: int, order: tuple[int, int]
) -> None:
    log = Events(tmp_path / "whole")
    prompt = works(log)
    log.add("user.message", content=FOUND, source="instruction-discovery", interactionId="i1")
    log.say("All tidy.", interactionId="i1")
    whole = log.save()
    rest = tmp_path / "rest" / "other" / "events.jsonl"
    rest.parent.mkdir(parents=True)
    rest.write_text("".join(line + "\n" for line in log.lines[begins:]))

    for number in order:
        import_paths(ledger, (whole, rest)[number])

    assert ledger.query("SELECT id FROM turns")[1] == [(prompt,)]
    assert len(ledger.query("SELECT id FROM messages")[1]) == 4


NOTICE = "<system_notification>\nThis session has no name yet.\n</system_notification>"


@pytest.mark.parametrize(
    ("said", "source"),
    [
        (f"\n\n{NOTICE}", "event"),
        (f"{NOTICE}\n{FOUND}\n", "event"),
        (f"Name it.\n\n{NOTICE}", "human"),
        (f"{NOTICE}\nWhy this?\n{NOTICE}", "human"),
        (f"{NOTICE[:-3]}", "human"),
        ("", "human"),
    ],
)
def test_a_text_of_notices_only_is_an_event(
    ledger: Ledger, tmp_path: Path, said: str, source: str
) -> None:
    log = Events(tmp_path)
    log.add("user.message", content=said)
    log.say("Done.")
    log.add("user.message", content="Next.")
    log.say("Done, too.")
    import_paths(ledger, log.save())

    first, _ = ledger.thread(LABEL).turns
    assert [(m.content, m.source) for m in first.query] == [(said, source)]


def test_many_notices_are_recognised_in_linear_time() -> None:
    assert message_source(None, NOTICE * 20_000) == "event"
    assert message_source(None, "<system_notification>" * 200_000) == "human"


def test_messages_have_their_ids_as_metadata(ledger: Ledger, tmp_path: Path) -> None:
    asked = {"interactionId": "i1", "turnId": "0", "messageId": "m1", "delivery": "steering"}
    cut: dict[str, Any] = {"tokenLimit": 900, "messagesRemovedDuringTruncation": 3}
    gone: dict[str, Any] = {"checkpointNumber": 1, "messagesRemoved": 7}
    log = Events(tmp_path)
    prompt = log.add("user.message", content="Begin.", **asked, source=None, chunkIndex="")
    log.say("Begun.")
    shortened = log.add("session.truncation", **cut)
    compacted = log.add("session.compaction_complete", summaryContent="So far.", **gone)
    import_paths(ledger, log.save())

    messages = {m.id: m for turn in ledger.thread(LABEL).turns for m in turn.messages}
    said = {
        name: json.loads(messages[name].metadata_json or "")
        for name in (prompt, shortened, compacted)
    }
    assert said == {
        prompt: asked,
        shortened: {"event": "session.truncation", **cut},
        compacted: gone,
    }
