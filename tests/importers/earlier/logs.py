"""Logs that version 0.1.0 understood differently, and the ledger that it made of them.

`0.1.0.db.zst` was written by that version: `python -m tests.importers.earlier.logs FOLDER` with its
sources on PYTHONPATH writes `FOLDER/ledger.db`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import import_paths
from tests.importers.claude_log import Log, text, uid
from tests.importers.codex_log import Rollout
from tests.importers.copilot_log import Events
from tests.importers.cursor_made import bubble, chat, state_db
from tests.importers.test_claude_code_helpers import SIDE_QUESTION, Helper

WRITTEN_NS = 1_790_000_000_000_000_000
# Turns of that version that are none today: an answer of Claude Code without its prompt, and the
# prompt that opens a subagent of Copilot CLI.
SPLIT_TURN = uid("d1")
OPENING_TURN = "dddddddd-0000-4000-8000-000000000005"


def claude_code(folder: Path) -> None:
    """A side question, and then a prompt with editor state that sets off a compaction."""
    log = Log(folder)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    helper = Helper(log, folder, "aside_question-1")
    helper.ask("51", SIDE_QUESTION + "What was that?", "A beginning.")
    helper.save()
    log.user("b1", "<ide_opened_file>The user opened till.py.</ide_opened_file>\nGo on.")
    above = {"parentUuid": None, "logicalParentUuid": log.last}
    metadata = {"trigger": "auto"}
    log.add("system", "c1", subtype="compact_boundary", compactMetadata=metadata, **above)
    log.user("c2", "So far.", isCompactSummary=True)
    log.assistant("d1", text("Gone on."))
    log.add("queue-operation", operation="enqueue", content="/clear", timestamp="2026-03-01T11:00Z")
    log.save()


def codex(folder: Path) -> None:
    log = Rollout(folder)
    log.exchange(1, "Begin.")
    log.start(2)
    log.ask("Go on.")
    log.response(2, "r1", 900)
    log.add("compacted", message="So far.", replacement_history=[{}], compaction_response_id="r1")
    log.say("Gone on.")
    log.response(2, "r2", 30)
    log.tokens(130)
    log.end(2)
    log.save()


def copilot(folder: Path) -> None:
    log = Events(folder)
    log.add("user.message", content="Let somebody look.")
    log.say("Asking.")
    arguments = {"prompt": "Look."}
    log.add("tool.execution_start", toolCallId="s1", toolName="task", arguments=arguments)
    log.add("subagent.started", toolCallId="s1", agentName="task")
    log.add("user.message", content="Look.")
    log.say("Looking.", parentToolCallId="s1")
    log.say("Somebody looked.")
    log.save()


def cursor(folder: Path) -> None:
    asked = bubble("q1", 1, "Fix.", 1, lints=[{"message": "unused", "severity": 2}])
    rows = chat("c", asked, bubble("a1", 2, "Fixed.", 2))
    state_db(folder / "Cursor/User/globalStorage/state.vscdb", rows)
    transcripts = folder / "projects/shop/agent-transcripts"
    transcripts.mkdir(parents=True)
    (transcripts / "s1.txt").write_text("user:\nList.\n\nassistant:\nOne.\n")


def openclaw(folder: Path) -> None:
    head = '{"type":"session","version":3,"id":"77777777-0000-4000-8000-000000000000"}'
    sent = r"Sender (untrusted metadata):\n```json\n{}\n```\n\nHello."
    time = '"timestamp":"2026-03-01T10:00:00.000Z"'
    messages = (("1", "null", "user", sent), ("2", '"1"', "assistant", "Yes."))
    entries = [
        f'{{"type":"message","id":"{name}","parentId":{parent},{time},'
        f'"message":{{"role":"{role}","content":"{words}"}}}}'
        for name, parent, role, words in messages
    ]
    path = folder / ".openclaw/agents/main/sessions/77777777-0000-4000-8000-000000000000.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([head, *entries, ""]))


def write(folder: Path) -> None:
    """Write all logs; each file has the same time wherever it is written."""
    for make in (claude_code, codex, copilot, cursor, openclaw):
        make(folder / make.__name__)
    for path in folder.rglob("*"):
        os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))


def main(folder: Path) -> None:
    write(folder / "logs")
    with Ledger.open(str(folder / "ledger.db")) as ledger:
        import_paths(ledger, [folder / "logs"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
