"""Claude Code: text that was typed while the agent worked.

A `queue-operation` record enqueues it. The next attachment or prompt of the file with the same text
is that text, given to the agent; where none follows, the queue operation is all there is.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import SourceLine
from agents_ledger.importers.sources.claude_code.entries import (
    MAIN,
    ClaudeEntries,
    ClaudeSession,
    ReadRecord,
)
from agents_ledger.importers.sources.claude_code.records import Record
from agents_ledger.importers.sources.claude_code.rules import NOTICE_TAGS, OWN_COMMANDS, as_typed
from agents_ledger.importers.transcript.lines import text_of


class QueuedText(NamedTuple):
    session: ClaudeSession
    line: SourceLine
    text: str
    typed_at: str
    after: int | None  # the record before it in its file

    def key(self) -> tuple[str, str, str]:
        """The same in every file that has it."""
        return self.session.session_id, self.typed_at, self.text


class PromptQueue:
    def __init__(self, entries: ClaudeEntries) -> None:
        self._entries = entries
        self._queued: list[QueuedText] = []
        self._delivered: list[QueuedText] = []
        self._waiting: dict[str, deque[QueuedText]] = {}  # of the current file, by text

    def start_file(self) -> None:
        """Forget what waits in the file before."""
        self._waiting = {}

    def enqueue(self, session: ClaudeSession, line: SourceLine, record: Record) -> bool:
        """Add a text, unless the program put it there itself."""
        text = text_of(record.content)
        if not text or text.startswith(NOTICE_TAGS) or text in OWN_COMMANDS:
            return False
        after = session.chain[-1] if session.chain else None
        queued = QueuedText(session, line, text, str(record.timestamp), after)
        self._queued.append(queued)
        self._waiting.setdefault(as_typed(text), deque()).append(queued)
        return True

    def deliver(self, text: str) -> bool:
        """Whether a record with this text is a queued one, given to the agent."""
        waiting = self._waiting.get(as_typed(text))
        if waiting:
            self._delivered.append(waiting.popleft())
            return True
        return False

    def add_undelivered(self, sessions: Mapping[str, ClaudeSession]) -> None:
        """Add entries for texts that no other record has. Text before the first record of a session
        is the unanswered prompt of one that never began; if it began, its own records have it."""
        texts: dict[str, str] = {}
        typed_after: dict[int, list[int]] = {}
        # Across files: a copy of a session may have lost the delivery, the original not.
        delivered = {queued.key() for queued in self._delivered}
        silent = {name for name, session in sessions.items() if not session.chain}
        for queued in self._queued:
            session = sessions[queued.session.session_id]
            begins, is_delivered = session.session_id in silent, queued.key() in delivered
            is_shown = is_delivered or begins or queued.after is not None
            material = self._entries.material
            material.count("queue-operation", "derived" if is_shown else "unmapped")
            if is_delivered or not is_shown:
                continue
            after = session.chain[-1] if begins and session.chain else queued.after
            entry = self._add(queued, after, texts)
            if entry is None:
                continue
            if begins:
                session.chain.append(entry)
                session.last_at = self._entries.times[entry]
                session.first_at = session.first_at or session.last_at
            elif after is not None:
                typed_after.setdefault(after, []).append(entry)
        self._entries.insert(typed_after)

    def _add(self, queued: QueuedText, after: int | None, texts: dict[str, str]) -> int | None:
        """The new entry; None if another file has the same text."""
        # Queue operations have no uuid, and the same text may be typed twice.
        uuid = f"{queued.session.session_id}:queued:{queued.typed_at}"
        if texts.setdefault(uuid, queued.text) != queued.text:  # typed in the same instant
            uuid = f"{uuid}:{zlib.crc32(queued.text.encode(errors='replace')):08x}"
        if self._entries.find(uuid) is not None:
            return None
        self._entries.ids.add(uuid)
        at = milliseconds(queued.typed_at)
        read = ReadRecord(uuid, "queued", queued.line, at, None, after, MAIN)
        return self._entries.add(read, [queued.line.file.id])
