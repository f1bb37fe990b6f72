"""Claude Code: which call started which subagent.

The result of a call names its subagent (turns.py). Here are those that no result names: those at
work, which their progress names (2.1), those in the file of their parent (1.0), and those that were
interrupted. The last two are known by the prompt that the call gave them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from agents_ledger.importers.sources.claude_code import records
from agents_ledger.importers.sources.claude_code.entries import (
    MAIN,
    OWN_FILE,
    ClaudeEntries,
    ClaudeSession,
)
from agents_ledger.importers.sources.claude_code.records import Record
from agents_ledger.importers.sources.claude_code.rules import HELPERS, NAME


def helper_prompt(session: ClaudeSession, entries: ClaudeEntries) -> int | None:
    """The prompt that begins the thread of a helper: the first after the records that other files
    have. What is above it may be a subagent's, or in no other file."""
    if not (session.agent_id or "").startswith(HELPERS):
        return None
    has_copies, prompt = False, None
    for entry in session.chain:
        if entries.sides[entry] == MAIN or entries.files[entry] - session.file_ids:
            has_copies, prompt = True, None
        elif prompt is None and entries.kind(entry) == "prompt":
            prompt = entry
    return prompt if has_copies else None


class SubagentCalls:
    """The calls that gave a prompt to a subagent."""

    def __init__(self, entries: ClaudeEntries) -> None:
        self._entries = entries
        self._calls: dict[bytes, list[str]] = {}  # by prompt
        self._callers: dict[str, int] = {}  # by call, its entry
        self._at_work: dict[str, str] = {}  # by call, the subagent

    def add_calls(self, entry: int, record: Record, data: bytes) -> None:
        for prompt, call in records.subagent_prompts(record, data):
            if call not in self._callers:
                self._callers[call] = entry
                self._calls.setdefault(_digest(prompt), []).append(call)

    def add_progress(self, record: Record) -> bool:
        """Whether a record of progress names the subagent of its call."""
        agent = records.subagent_in_progress(record) if record.call_id else None
        if not (record.call_id and agent):
            return False
        return self._at_work.setdefault(record.call_id, agent) == agent

    def spawned(
        self, sessions: Iterable[ClaudeSession], inline: Iterable[tuple[str, int]]
    ) -> dict[int, dict[str, str]]:
        """Labels of the sessions that calls started, by the entry and the id of the call. `inline`
        has the first entry of each subagent that is in the file of a session."""
        labels: dict[int, dict[str, str]] = {}
        for call, agent in self._at_work.items():
            if call in self._callers:
                labels.setdefault(self._callers[call], {})[call] = f"{NAME}:agent-{agent}"
        for call, label in self._inline_calls(inline):
            labels.setdefault(self._callers[call], {})[call] = label
        for call, agent in self._only_calls(sessions):
            # By prompt last, and without overriding: an id is better evidence than equal text.
            labels.setdefault(self._callers[call], {}).setdefault(call, f"{NAME}:agent-{agent}")
        return labels

    def _inline_calls(self, inline: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str]]:
        """Calls in their order, each with the next subagent that was given the same prompt."""
        # Inline subagents (1.0) have no id; several calls may have given the same prompt.
        waiting = {
            prompt: iter([call for call in calls if call not in self._at_work])
            for prompt, calls in self._calls.items()
        }
        seen: set[int] = set()
        for session_id, root in inline:
            calls = iter(()) if root in seen else waiting.get(self._prompt(root), iter(()))
            seen.add(root)
            call = next(calls, None)
            if call is not None:
                yield call, f"{NAME}:{session_id}:{self._entries.name(root)}"

    def _only_calls(self, sessions: Iterable[ClaudeSession]) -> Iterator[tuple[str, str]]:
        """Calls that alone gave a prompt, and the one subagent that was given it."""
        agents_by_prompt: dict[bytes, list[str]] = {}
        for session in sessions if self._calls else ():
            if session.agent_id and session.chain:
                first = session.chain[0]
                if self._entries.sides[first] == OWN_FILE:
                    agents_by_prompt.setdefault(self._prompt(first), []).append(session.agent_id)
        for prompt, agents in agents_by_prompt.items():
            calls = self._calls.get(prompt, [])
            # With more of either, any pairing would be a guess.
            if len(calls) == len(agents) == 1:
                yield calls[0], agents[0]

    def _prompt(self, entry: int) -> bytes:
        return _digest(records.message_text(records.read_record(self._entries.data(entry))))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
