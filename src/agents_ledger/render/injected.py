"""Text that programs put into a conversation: which messages it is, and a name for each."""

from __future__ import annotations

import re

from agents_ledger.model.turns import Message

FOLDED_MIN = 150  # characters
# How injected texts begin. Claude Code 2.1: skills, reminders, notices of tasks. Codex 0.1:
# instructions, environment, permissions, notices of subagents. Copilot 0.0.3: system prompts.
_SKILL = re.compile(r"Base directory for this skill: [^\n]*?([^\n/\\]+)[/\\]?(?:\n|$)")
_NAMES = (
    ("# AGENTS.md instructions", "Instructions"),
    ("<user_instructions>", "Instructions"),
    ("<INSTRUCTIONS>", "Instructions"),
    ("<environment_context>", "Environment"),
    ("<environment_details>", "Environment"),
    ("<permissions instructions>", "Permissions"),
    ("<system-reminder>", "System reminder"),
    ("<subagent_notification>", "Notice of a subagent"),
    ("<task-notification>", "Notice of a task"),
    ("<bash-stdout>", "Output of a command"),
    ("<local-command-stdout>", "Output of a command"),
    ("<command-", "Slash command"),
    ("This session is being continued", "Summary of the conversation so far"),
    ("Implement the following plan:", "Plan"),
    ("You are ", "System prompt"),
)


def is_folded(message: Message) -> bool:
    """Whether a message is closed until a reader opens it: a long one that neither the model nor
    a person wrote, such as instructions that an agent injects."""
    text = message.content or ""
    # A manager's task for a subagent is of the source `agent`, as are notices of subagents.
    is_prompt = message.source in (None, "human") or (
        message.source == "agent" and not text.startswith("<")
    )
    is_spoken = message.role == "assistant" or (message.role == "user" and is_prompt)
    return not is_spoken and len(text) > FOLDED_MIN


def injected_name(message: Message) -> str:
    """What a folded message is, as in `Skill code-changes`; otherwise who wrote it."""
    text = (message.content or "").lstrip()
    skill = _SKILL.match(text)
    if skill:
        return f"Skill {skill[1]}"
    names = (name for beginning, name in _NAMES if text.startswith(beginning))
    return next(names, f"{message.role.capitalize()} message")
