"""Events of hooks as the agents send them.

Their shapes were recorded from Claude Code 2.1.197, Codex 0.169.0, Gemini CLI 0.61.0, and from our
plugin in opencode 1.18.33; those of Cursor are from the documentation of its version 2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

AGENTS = ("claude-code", "codex", "cursor", "gemini-cli", "opencode")
Event = dict[str, Any]


class AgentEvents:
    """The events of a session of an agent in a project."""

    def __init__(self, agent: str, session: str, project: Path, transcript: Path | None = None):
        self._agent = agent
        self._project = str(project)
        self._transcript = str(transcript) if transcript else None
        self._session = session

    def _event(self, name: str, **fields: Any) -> Event:
        if self._agent == "opencode":
            return {"session_id": self._session, "cwd": self._project, **fields}
        if self._agent == "cursor":
            return {
                "conversation_id": self._session,
                "generation_id": "5c0f8a8e",
                "model": "composer-2",
                "hook_event_name": name,
                "cursor_version": "2.6.1",
                "workspace_roots": [self._project],
                "user_email": None,
                "transcript_path": self._transcript,
                **fields,
            }
        common = {
            "session_id": self._session,
            "transcript_path": self._transcript,
            "cwd": self._project,
            "hook_event_name": name,
        }
        own: dict[str, Event] = {
            "claude-code": {"prompt_id": "1771ca57-da49-42b2-a89e-7d6aad6d28fb"},
            "codex": {"model": "gpt-5", "permission_mode": "default"},
            "gemini-cli": {"timestamp": "2026-11-19T06:11:53.134Z"},
        }
        return {**common, **own[self._agent], **fields}

    def start(self, source: str = "startup") -> Event:
        if self._agent == "cursor":
            fields: Event = {"is_background_agent": False, "composer_mode": "agent"}
            return self._event("sessionStart", session_id=self._session, **fields)
        if self._agent == "opencode":
            return self._event("")
        return self._event("SessionStart", source=source)

    def prompt(self, text: str) -> Event:
        names = {"gemini-cli": "BeforeAgent", "cursor": "beforeSubmitPrompt"}
        name = names.get(self._agent, "UserPromptSubmit")
        attachments: Event = {"attachments": []} if self._agent == "cursor" else {}
        return self._event(name, prompt=text, **attachments)

    def compact(self) -> Event:
        names = {"gemini-cli": "PreCompress", "cursor": "preCompact"}
        return self._event(names.get(self._agent, "PreCompact"), trigger="auto")

    def end(self) -> Event:
        name = "sessionEnd" if self._agent == "cursor" else "SessionEnd"
        return self._event(name, reason="exit")


def context_of(agent: str, output: str) -> str:
    """The text in a hook's answer, as the agent takes it from there; "" without an answer."""
    if not output:
        return ""
    answer = json.loads(output)
    if agent == "cursor":
        return str(answer["additional_context"])
    if agent == "opencode":
        return str(answer["context"])
    fields = answer["hookSpecificOutput"]
    assert fields["hookEventName"] in ("SessionStart", "UserPromptSubmit", "BeforeAgent")
    return str(fields["additionalContext"])
