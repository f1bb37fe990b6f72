"""OpenClaw: the words of a person, without what its gateway puts before them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.importers.helping import import_paths
from tests.importers.test_pi import Transcript, openclaw

CONVERSATION = (
    'Conversation info (untrusted metadata):\n```json\n{\n  "message_id": "4542",\n'
    '  "sender": "D W",\n  "timestamp": "Sat 2026-03-28 16:12 PDT"\n}\n```\n\n'
)
SENDER = 'Sender (untrusted metadata):\n```json\n{\n  "label": "D W",\n  "name": "D W"\n}\n```\n\n'
NOTICES = "System: [2026-03-28 16:00 PDT] Node connected\nSystem (untrusted): up\n\n"
BOOTSTRAP = "[Bootstrap pending]\nPlease read BOOTSTRAP.md.\nDo not pretend.\n\n"
QUEUED = "[Queued messages while agent was busy]\n\n---\nQueued #1\n"


@pytest.mark.finding("import-7")
@pytest.mark.parametrize(
    ("sent", "words", "metadata"),
    [
        (CONVERSATION + SENDER + "Yes, check.", "Yes, check.", {"message_id": "4542"}),
        (NOTICES + CONVERSATION + "Yes,\n\ncheck.", "Yes,\n\ncheck.", {"message_id": "4542"}),
        (BOOTSTRAP + "Hello.", "Hello.", {}),
        ("[Sat 2026-03-28 16:12 PDT] Hello.", "Hello.", {}),
        (
            "[Telegram Ann id:7 2026-01-28T10:00Z] Hello.\n[message_id: 9]",
            "Hello.",
            {"channel": "Telegram", "message_id": "9"},
        ),
        (
            f"{QUEUED}{CONVERSATION}One.\n\n---\nQueued #2\nTwo.",
            "One.\n\nTwo.",
            {"message_id": "4542"},
        ),
    ],
)
def test_envelopes_are_context(
    ledger: Ledger, tmp_path: Path, sent: str, words: str, metadata: dict[str, str]
) -> None:
    log = Transcript(openclaw(tmp_path))
    log.user(sent)
    log.say("Yes.")
    import_paths(ledger, log.save())

    ((message,),) = [turn.query for turn in ledger.thread(ledger.sessions()[0].label).turns]
    assert (message.content, message.source) == (words, "human")
    assert json.loads(message.context_json or "{}") == {"sent": sent}
    found = json.loads(message.metadata_json or "{}")
    assert {
        name: found.get(name) for name in ("channel", "message_id") if name in found
    } == metadata


@pytest.mark.finding("import-7")
@pytest.mark.parametrize(
    ("sent", "source"),
    [
        ("[2026-05-01] is the date, is it?", "human"),
        (CONVERSATION.strip(), "human"),
        ("Conversation info (untrusted metadata):\n```json\n{", "human"),
        (BOOTSTRAP + "A new session was started via /new or /reset. Greet.", "trigger"),
        (NOTICES.strip(), "event"),
    ],
)
def test_what_has_no_words_of_a_person_is_shown_as_it_is(
    ledger: Ledger, tmp_path: Path, sent: str, source: str
) -> None:
    log = Transcript(openclaw(tmp_path))
    log.user(sent)
    log.say("Yes.")
    import_paths(ledger, log.save())

    rows = ledger.query("SELECT content, source, context_json FROM messages WHERE role = 'user'")
    assert rows[1] == [(sent, source, None)]
