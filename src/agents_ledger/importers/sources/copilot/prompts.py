"""Copilot CLI: who wrote what stands in a log as the user's."""

from __future__ import annotations

import re
from typing import Any

from agents_ledger.importers.transcript.turn_tree import as_text
from agents_ledger.model.turns import MessageSource

BEGIN = "session.start"
PROMPT = "user.message"
SAID = (PROMPT, "assistant.message")
NOTICE = re.compile(r"\s*<(system_notification|system_reminder)>.*?</\1>\s*", re.DOTALL)


def written_by(source: Any, text: str = "") -> MessageSource:
    """Whom the source of a message means. What is nothing but notices is the program's."""
    said = as_text(source) or "user"
    if said == "user":
        return "event" if _is_notice(text) else "human"
    return "agent" if said.startswith("agent") else "event"


def _is_notice(text: str) -> bool:
    end = 0
    while found := NOTICE.match(text, end):
        end = found.end()
    return 0 < end == len(text)


class Interactions:
    """What is being worked on in a log."""

    def __init__(self) -> None:
        self._now: dict[str | None, str] = {}  # by the call that started a subagent
        self._has_begun = False  # the log has its beginning

    def is_added(self, kind: str, caller: str | None, interaction: Any, source: Any) -> bool:
        """Whether the program added an event to what is being worked on: it names that interaction,
        or one whose beginning the log has lost."""
        self._has_begun |= kind == BEGIN
        named = as_text(interaction)
        if named is None or kind not in SAID:
            return False
        before, self._now[caller] = self._now.get(caller), named
        if kind != PROMPT or written_by(source) != "event":
            return False
        return before == named or (before is None and not self._has_begun)
