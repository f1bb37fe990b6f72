"""The hook protocols of the agents: how they name events, what they send, what they expect back.

Learned from Claude Code 2.1.197, Codex 0.169 and Gemini CLI 0.61 as they run, and from the
documentation of Cursor 2 (`hooks.json`, version 1). For opencode 1.18 our own plugin sends events
of the same shape.
"""

from __future__ import annotations

import json
import os
from typing import Any, Literal, NamedTuple

Event = Literal["session-start", "prompt", "compact", "session-end"]
AGENTS = ("claude-code", "codex", "cursor", "gemini-cli", "opencode")
# Agents' own names, without case and separators. Each has one for every event.
_EVENTS: dict[str, Event] = {
    "sessionstart": "session-start",
    "prompt": "prompt",
    "userpromptsubmit": "prompt",
    "beforeagent": "prompt",
    "beforesubmitprompt": "prompt",
    "compact": "compact",
    "precompact": "compact",
    "precompress": "compact",
    "sessionend": "session-end",
}
EVENTS: tuple[Event, ...] = ("session-start", "prompt", "compact", "session-end")


class HookEvent(NamedTuple):
    kind: Event
    agent: str
    session_id: str
    project: str | None  # None: no project, as in the home folder
    prompt: str
    transcript: str | None
    source: str  # why a session started: startup, resume, clear or compact
    native_name: str


def event_named(name: str) -> Event | None:
    return _EVENTS.get(name.lower().replace("-", "").replace("_", ""))


def read_event(kind: Event, agent: str, data: bytes) -> HookEvent:
    fields = json.loads(data or b"{}")
    if not isinstance(fields, dict):
        raise ValueError(  # noqa: TRY004 - the input is wrong, not the call
            f"the event must be a JSON object, not {type(fields).__name__}"
        )
    folder = _text(fields, "cwd", "directory")
    roots = fields.get("workspace_roots")
    if not folder and isinstance(roots, list) and roots and isinstance(roots[0], str):
        folder = roots[0]
    return HookEvent(
        kind,
        agent,
        _text(fields, "session_id", "conversation_id", "sessionID"),
        project_of(folder or os.getcwd()),
        _without_contexts(_text(fields, "prompt")),
        _text(fields, "transcript_path") or None,
        _text(fields, "source", "trigger"),
        _text(fields, "hook_event_name"),
    )


def _text(fields: dict[str, Any], *names: str) -> str:
    values = (fields.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value), "")


def _without_contexts(prompt: str) -> str:
    """A prompt without what hooks added to it: Gemini CLI 0.61 puts the answer of SessionStart into
    the prompt of BeforeAgent."""
    opening, closing = "<hook_context>", "</hook_context>"
    while prompt.startswith(opening) and closing in prompt:
        prompt = prompt.partition(closing)[2].lstrip()
    return prompt


def project_of(folder: str) -> str | None:
    """The repository that a folder is in, or the folder itself. Neither the home folder nor a root
    is a project: everything would be in it."""
    home = os.path.expanduser("~")
    folder = os.path.normpath(folder)
    above = folder
    while above not in (home, os.path.dirname(above)):
        if os.path.exists(os.path.join(above, ".git")):
            return above
        above = os.path.dirname(above)
    return None if folder in (home, os.path.dirname(folder)) else folder


def answer(event: HookEvent, context: str) -> str:
    """What an agent reads from stdout, to add a text to the context of its model."""
    if event.agent == "cursor":
        return json.dumps({"additional_context": context})
    if event.agent == "opencode":
        return json.dumps({"context": context})
    defaults = {"session-start": "SessionStart", "prompt": "UserPromptSubmit"}
    name = event.native_name or defaults[event.kind]
    return json.dumps({"hookSpecificOutput": {"hookEventName": name, "additionalContext": context}})
