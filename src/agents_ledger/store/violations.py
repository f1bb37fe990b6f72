"""Rows that a constraint refuses, in our words."""

from __future__ import annotations

from agents_ledger.model.errors import Refused

# What SQLite and PostgreSQL call the constraint.
_DUPLICATES = (
    (
        ("messages.id", '"messages_pkey"'),
        "there is a message with this id already",
        "The ids of messages are unique in a ledger: use a new one.",
    ),
    (
        ("tool_calls.turn_id, tool_calls.id", '"tool_calls_pkey"'),
        "the turn has a tool call with this id already",
        "The ids of tool calls are unique in a turn: use a new one.",
    ),
)


def violation(text: str) -> Refused:
    """The refusal that a message of the database stands for."""
    for names, message, hint in _DUPLICATES:
        if text.endswith(names):
            return Refused(message, hint)
    return Refused(f"the ledger's rules forbid this: {text}")
