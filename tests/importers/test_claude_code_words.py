"""Claude Code: the words of a person, and what the program puts before or beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths

LABEL = f"claude-code:{SESSION}"
OPENED = "<ide_opened_file>The user opened the file /home/dev/shop/till.py.</ide_opened_file>"
SELECTED = "<ide_selection>The user selected the lines 1 to 2:\ndef pay():\n</ide_selection>"
LIMITED = "<command-name>/rate-limit-options</command-name>\n<command-args></command-args>"


@pytest.mark.finding("import-8")
@pytest.mark.parametrize(
    "content",
    [
        f"{OPENED}\nFix it.",
        [text(OPENED), text("Fix it.")],
        [text(SELECTED), text(OPENED), text("Fix it.")],
    ],
)
def test_the_state_of_the_editor_is_context(ledger: Ledger, tmp_path: Path, content: Any) -> None:
    log = Log(tmp_path)
    log.user("a1", content)
    log.assistant("a2", text("Fixed."))
    import_paths(ledger, log.save())

    (message,) = ledger.get_turn(uid("a1")).query
    assert (message.content, message.source) == ("Fix it.", "human")
    sent = json.loads(message.context_json or "{}")["sent"]
    assert OPENED in sent
    assert sent.endswith("Fix it.")


@pytest.mark.finding("import-8")
def test_a_prompt_of_nothing_but_the_state_of_the_editor_is_shown_as_it_is(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", OPENED)
    log.assistant("a2", text("I see."))
    log.user("b1", f"{OPENED}\n<ide_selection> is a tag, is it?")
    log.assistant("b2", text("It is."))
    import_paths(ledger, log.save())

    first, second = ledger.thread(LABEL).turns
    assert [(m.content, m.context_json) for m in first.query] == [(OPENED, None)]
    assert second.query[0].content == "<ide_selection> is a tag, is it?"


@pytest.mark.finding("import-9")
def test_commands_in_the_queue_are_no_messages_of_a_person(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Run it.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    for second, words in enumerate(("/model opus", "/clear", "/rate-limit-options", "/src/till?")):
        at = f"2026-03-01T11:00:0{second}Z"
        log.add("queue-operation", operation="enqueue", content=words, timestamp=at)
    log.result("a3", "t1", "ok")
    log.assistant("a4", text("Done."))
    log.user("b1", "<command-name>/model</command-name>\n<command-args>opus</command-args>")
    log.user("b2", "<local-command-stdout>Set model to opus</local-command-stdout>")
    report = import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    messages = [(m.content, m.source) for m in turn.messages if m.role == "user"]
    assert [words for words, source in messages if source == "human"] == ["Run it.", "/src/till?"]
    # A command that a record has is not there twice; one that has no other record stays.
    assert [words for words, _ in messages if words in ("/model opus", "/clear")] == ["/clear"]
    assert not any("rate-limit-options" in (words or "") for words, _ in messages)
    assert report.records["claude-code", "queue-operation", "derived"] == 4


@pytest.mark.finding("import-9")
def test_the_program_s_own_command_opens_no_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("a3", LIMITED)
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone on."))
    import_paths(ledger, log.save())

    first, second = ledger.thread(LABEL).turns
    assert (first.messages[-1].source, second.query[0].content) == ("event", "Go on.")
