"""How a session is continued in the agent it came from."""

from __future__ import annotations

import shlex

from agents_ledger.model.installation import program
from agents_ledger.model.sessions import Session

# By origin, as each agent's own help says it; {id} is the session's id there. What is missing
# cannot be continued from a shell.
COMMANDS = {
    "claude-code": "claude --resume {id}",
    "codex": "codex resume {id}",
    "copilot": "copilot --resume={id}",
    "gemini-cli": "gemini --resume {id}",
    "opencode": "opencode --session {id}",
    "pi": "pi --session {id}",
    "qwen-code": "qwen --resume {id}",
}


def command_there(session: Session, folder: str | None) -> str | None:
    """What to type to continue it in its own agent; None: that cannot be done."""
    pattern = COMMANDS.get(session.origin)
    if pattern is None or session.origin_session_id is None or session.is_subagent:
        return None
    command = pattern.format(id=shlex.quote(session.origin_session_id))
    return f"cd {shlex.quote(folder)} && {command}" if folder else command


def command_here(session: Session) -> str:
    """What to type to continue it in this ledger."""
    return f"{program.command(anywhere=True)} chat {shlex.quote(session.label)}"
