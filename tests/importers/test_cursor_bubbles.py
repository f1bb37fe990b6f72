"""Cursor: the content of a bubble in every generation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.sources.cursor.records import (
    LONG_ARGUMENT,
    metadata_of,
    status_of,
    text_of,
    thinking_of,
)
from tests.importers.cursor_made import bubble, chat, state_db, tool
from tests.importers.helping import import_paths


def lexical(*paragraphs: list[dict[str, Any]]) -> dict[str, Any]:
    """A Lexical editor state."""
    said = [{"type": "paragraph", "children": words} for words in paragraphs]
    return {"root": {"type": "root", "children": said}}


TYPED = lexical(
    [{"type": "text", "text": "Fix"}, {"type": "tab"}, {"type": "text", "text": "it."}],
    [{"type": "text", "text": "Now"}, {"type": "linebreak"}, {"type": "mention", "text": "@a.py"}],
)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"text": "", "rawText": "Raw.", "message": "No."}, "Raw."),
        ({"message": "Said.", "richText": json.dumps(TYPED)}, "Said."),
        ({"modelResponse": {"text": "Answered."}}, "Answered."),
        ({"text": "", "richText": json.dumps(TYPED)}, "Fix\tit.\nNow\n@a.py"),
        (
            {"richText": json.dumps(lexical([])), "initText": json.dumps(TYPED)},
            "Fix\tit.\nNow\n@a.py",
        ),
        ({"initText": "Typed.", "delegate": {"a": "No."}}, "Typed."),
        ({"initText": json.dumps(lexical([])), "delegate": {"a": "Asked."}}, "Asked."),
        ({"text": ["x"], "initText": None}, ""),
    ],
)
def test_the_text_of_a_bubble(said: dict[str, Any], words: str) -> None:
    assert text_of(said) == words


@pytest.mark.parametrize(
    ("said", "thought"),
    [
        ({"thinking": "Hm."}, "Hm."),
        ({"thinking": {"text": "Hm.", "signature": "s"}, "allThinkingBlocks": []}, "Hm."),
        ({"allThinkingBlocks": [{"thinking": "Hm."}, {"text": "Oh."}, {}]}, "Hm.\n\nOh."),
        ({"thinking": {"signature": "s"}}, None),
    ],
)
def test_the_thinking_of_a_bubble(said: dict[str, Any], thought: str | None) -> None:
    assert thinking_of(said) == thought


def test_the_chat_of_a_subagent_is_not_repeated_in_its_call() -> None:
    inside = {"composerData": json.dumps({"composerId": "x"}), "status": "success"}
    calls = [tool("k1", "task", 48), tool("k2", "run", 15)]

    kept = [metadata_of({"toolFormerData": {**each, "additionalData": inside}}) for each in calls]

    task, other = (each["toolFormerData"]["additionalData"] for each in kept)
    assert task == {"status": "success"}
    assert other == {"composerData": {"composerId": "x"}, "status": "success"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"message": "Too many requests.", "title": "No."}, "Too many requests."),
        ({"error": "ERROR_RATE_LIMITED"}, "ERROR_RATE_LIMITED"),
        ("Broken.", "Broken."),
        ({"code": 7}, "failed"),
    ],
)
def test_a_turn_that_ended_in_an_error_has_it(
    ledger: Ledger, tmp_path: Path, wrong: Any, words: str
) -> None:
    said = [bubble("b1", 1, "Go."), bubble("b2", 2, "", 1, errorDetails=wrong)]
    again = [bubble("b3", 1, "Again.", 2), bubble("b4", 2, "", 3, errorDetails=wrong)]
    mended = bubble("b5", 2, "Done.", 4)
    place = tmp_path / "User" / "globalStorage" / "state.vscdb"
    import_paths(ledger, state_db(place, chat("c", *said, *again, mended)))

    first, second = ledger.thread("cursor:c").turns
    assert (first.status, first.error) == ("failed", words)
    assert (first.model, first.provider) == (None, None)
    assert (second.status, second.error) == ("completed", None)


def test_a_call_without_a_name_is_named_by_its_number(ledger: Ledger, tmp_path: Path) -> None:
    calls = [
        {"toolCallId": "t1", "tool": 15},
        {"toolCallId": "t2", "tool": 0},
        {"toolCallId": "t3"},
    ]
    said = (bubble(f"b{n}", 2, "", n, toolFormerData=call) for n, call in enumerate(calls, 2))
    place = tmp_path / "User" / "globalStorage" / "state.vscdb"
    import_paths(ledger, state_db(place, chat("c", bubble("b1", 1, "Go."), *said)))

    (turn,) = ledger.thread("cursor:c").turns
    assert [call.tool_name for call in turn.tool_calls] == ["tool_15", "tool_0", "unknown"]


@pytest.mark.parametrize("as_json", [True, False])
def test_long_arguments_are_not_repeated_in_the_metadata_of_a_call(as_json: bool) -> None:
    params = {"contents": "x" * LONG_ARGUMENT}
    asked = json.dumps(params)
    call = tool("t1", "write", 7, params=asked if as_json else params, rawArgs=f" {asked}")

    kept = metadata_of({"toolFormerData": call})["toolFormerData"]

    assert "rawArgs" not in kept
    assert ("params" in kept) == (not as_json)  # a text that is long stands in the call only


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("completed success", "completed"),
        ("error errored failed", "failed"),
        ("aborted canceled cancelled Cancelled", "cancelled"),
        ("loading running", "running"),
        ("pending", "pending"),
        ("rejected", "rejected"),
    ],
)
def test_the_statuses_of_calls_are_mapped(words: str, status: str) -> None:
    assert [status_of({"status": word}) for word in words.split()] == [
        (status, word) for word in words.split()
    ]
