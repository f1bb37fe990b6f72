"""Rows that a constraint refuses, in our words."""

from __future__ import annotations

from agents_ledger.model.errors import Refused

MESSAGE_IDS = ("messages.id", '"messages_pkey"')  # as SQLite and PostgreSQL name the constraint


def violation(text: str) -> Refused:
    """The refusal that a message of the database stands for."""
    if text.endswith(MESSAGE_IDS):
        return Refused(
            "there is a message with this id already",
            "The ids of messages are unique in a ledger: use a new one.",
        )
    return Refused(f"the ledger's rules forbid this: {text}")
