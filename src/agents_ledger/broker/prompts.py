"""The system prompt of a turn, and the metadata of its messages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from agents_ledger.broker.policy import Persona
from agents_ledger.ledger.context.contexts import Context
from agents_ledger.model.queue import Claim, QueueEntry
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, TurnRole, to_json

MANAGER = (
    "You talk with people and delegate work. Give a worker what it must know: it does not see this"
    " conversation. Its result comes back to you as a message."
)
WORKER = (
    "You are a worker. Do the task you were given, with the tools you have, and answer with its"
    " result: the answer goes to whoever delegated it, not to a person."
)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def system_prompt(persona: Persona, role: TurnRole, session: Session) -> str | None:
    """The system prompt of a persona; None keeps the prompt of the thread.

    It contains nothing that changes from turn to turn, so it is stored once.
    """
    identity = persona.identity
    name = " ".join(part for part in (identity.name, identity.emoji) if part)
    parts = [identity.soul.strip(), f"Your name is {name}." if name else ""]
    if role == "manager":
        parts.append(MANAGER)
    if role == "worker":
        parts.append(WORKER)
        if session.task_description:
            parts.append(f"Your task: {session.task_description}")
    return "\n\n".join(filter(None, parts)) or None


def messages_of(claim: Claim) -> tuple[Message, ...]:
    """The messages of a claim's entries, with their delivery in the metadata."""
    messages: list[Message] = []
    for entry in claim.entries:
        if entry.ask is None:
            continue
        if entry.ask.left_out:
            messages.append(_dropped(entry.ask.left_out))
        messages += (_delivered(message, entry) for message in entry.ask.messages)
    return tuple(messages)


def _dropped(beginnings: Sequence[str]) -> Message:
    lines = "\n".join(f"- {beginning}" for beginning in beginnings)
    text = f"[{len(beginnings)} earlier messages were omitted; they began:]\n{lines}"
    return Message("user", text, "event", context_json=to_json({"injections": ["left_out"]}))


def _delivered(message: Message, entry: QueueEntry) -> Message:
    queue = {"entry_id": entry.id, "mode": entry.mode, "enqueued_at": entry.enqueued_at}
    event: dict[str, Any] = {"source": message.source or "human"}
    if entry.ask is not None and entry.ask.source_event_id:
        event["id"] = entry.ask.source_event_id
    context: dict[str, Any] = {"event": event}
    if message.files:
        context["attachments"] = [file.file_path for file in message.files]
    return replace(
        message,
        metadata_json=with_more(message.metadata_json, {"queue": queue}),
        context_json=with_more(message.context_json, context),
    )


def with_context(
    messages: Sequence[Message], persona_id: str, persona: Persona, context: Context
) -> tuple[Message, ...]:
    """The messages; the last one gets the persona and a summary of the assembled context."""
    more: dict[str, Any] = {"persona": {"id": persona_id}}
    if persona.identity.soul:
        soul = hashlib.sha256(persona.identity.soul.encode()).hexdigest()
        more["persona"]["soul_hash"] = soul[:16]
    more["assembled"] = {
        "turn_id": context.turn_id,
        "compaction_turn_id": context.compaction_turn_id,
        "turns": context.turns,
        "tokens": context.tokens,
    }
    *first, last = messages
    return (*first, replace(last, context_json=with_more(last.context_json, more)))


def with_more(text: str | None, more: Mapping[str, Any]) -> str:
    """A JSON object with further keys. Existing keys win; invalid JSON is returned as is."""
    if text is None:
        return to_json(more)
    try:
        return to_json({**more, **_decode(text)})
    except msgspec.DecodeError:
        return text
