"""Claude.ai's data export: conversations.json, an array of conversations.

Newer exports name each message's parent and so tell a tree; older ones are a line. Neither tells
models or tokens. docs/sources/claude-ai.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.export_documents import Counts, Service, Told, derive
from agents_ledger.importers.parsing.json_spans import Pieces
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.source import Home, Look, Material, Project, Source
from agents_ledger.importers.transcript.message_tree import Kind, Nodes, node_of
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    UUID,
    as_dict,
    as_list,
    as_text,
    strictly,
    without_data,
)
from agents_ledger.model.imports.sources import Derivation, SourceKind
from agents_ledger.model.turns import Turn

NAME = "claude-ai"
SENDERS: dict[str, Kind] = {"human": "prompt", "assistant": "reply"}
SIGNS = (rb'"chat_messages"\s*:\s*\[', rb'"uuid"\s*:')


class _Brief(Struct):
    """A message, as far as the outline needs it."""

    uuid: Any = None
    sender: Any = None
    parent_message_uuid: Any = None


class _Conversation(Struct):
    uuid: Any = None
    name: Any = None
    summary: Any = None
    created_at: Any = None
    updated_at: Any = None
    chat_messages: list[Raw] = field(default_factory=list)
    current_leaf_message_uuid: Any = None


_decode = msgspec.json.Decoder(_Conversation).decode
_brief = msgspec.json.Decoder(_Brief).decode


class ClaudeAi(Source):
    """Reader of Claude.ai exports."""

    name = NAME
    version = 1
    kind: SourceKind = "document"

    def roots(self, home: Home) -> Sequence[Path]:
        """An export lies wherever it was put."""
        return ()

    def wants(self, path: Path) -> bool:
        """The conversations."""
        return path.name == "conversations.json"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Conversations with chat messages."""
        start = head.lstrip()
        return start[:1] in (b"[", b"{") and all(re.search(sign, start) for sign in SIGNS)

    def family(self, path: Path) -> str:
        """One file; a conversation that stands in another too is found by its messages."""
        return f"{NAME}:{path}"

    def projects(self, _: Path, __: Look) -> Collection[Project] | None:
        """Chats on a page have no folder."""
        return ()

    def derive(self, material: Material) -> Derivation:
        """What the conversations say."""
        return derive(SERVICE, material)


class _Tree:
    """A conversation, out of all exports that hold it."""

    def __init__(self, conversation_id: str) -> None:
        self.id = conversation_id
        self.nodes = Nodes()
        self.current: str | None = None
        self.told = Told()

    def add(self, pieces: Pieces, file_id: int, counts: Counts) -> None:
        """Take what a further export says; it wins, and takes nothing away."""
        said = pieces.read(_decode)
        summary = as_text(said.summary)
        self.told = Told(
            as_text(said.name),
            milliseconds(said.created_at),
            milliseconds(said.updated_at),
            {"summary": summary} if summary else {},
        )
        last: str | None = None
        for number, raw in enumerate(said.chat_messages):
            data = bytes(raw)
            try:
                brief = pieces.decode(_brief, data)
            except BROKEN:
                counts["(malformed)", "malformed"] += 1
                continue
            sender = str(brief.sender)
            counts[sender, "derived" if sender in SENDERS else "unmapped"] += 1
            above = as_text(brief.parent_message_uuid)
            parent = self._scoped(above) if above else last
            last = self._scoped(as_text(brief.uuid) or str(number))
            kind = SENDERS.get(sender, "notice")
            self.nodes.put(last, node_of(kind, parent, data, pieces.held(data), file_id))
        leaf = as_text(said.current_leaf_message_uuid)
        self.current = self._scoped(leaf) if leaf else last or self.current

    def _scoped(self, name: str) -> str:
        return name if UUID.fullmatch(name) else f"{self.id}:{name}"

    def build(self, builder: TurnBuilder, members: list[tuple[str, Kind, dict[str, Any]]]) -> Turn:
        """The turn these messages make."""
        for message_id, kind, said in members:
            at = milliseconds(said.get("created_at"))
            if kind == "reply":
                _reply(builder, message_id, said, at)
            else:
                text, metadata = _words(said)
                role, source = ("user", "human") if kind == "prompt" else ("system", "event")
                builder.message(
                    message_id,
                    role,  # type: ignore[arg-type]
                    text,
                    at=at,
                    source=source,  # type: ignore[arg-type]
                    metadata=metadata,
                )
        return builder.build()


def _identify(data: bytes) -> str | None:
    return as_text(strictly(_decode, data).uuid)


SERVICE = Service(NAME, ClaudeAi.version, _identify, _Tree)


# -- content ----------------------------------------------------------------------------------


def _words(said: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text of a message, and what came with it."""
    blocks = [as_dict(block) for block in as_list(said.get("content"))]
    words = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    metadata: dict[str, Any] = {}
    attached = [as_dict(each) for each in as_list(said.get("attachments"))]
    if attached:
        metadata["attachments"] = attached
    if as_list(said.get("files")):
        metadata["files"] = said["files"]
    return "\n\n".join(words) or as_text(said.get("text")) or "", metadata


def _reply(builder: TurnBuilder, message_id: str, said: dict[str, Any], at: int) -> None:
    builder.provider = "anthropic"
    text, metadata = _words(said)
    blocks = [as_dict(block) for block in as_list(said.get("content"))]
    thoughts = [block.get("thinking") for block in blocks if block.get("type") == "thinking"]
    builder.message(
        message_id,
        "assistant",
        text,
        at=at,
        thinking="\n\n".join(t for t in thoughts if isinstance(t, str)) or None,
        metadata=metadata,
    )
    last = ""
    for number, block in enumerate(blocks):
        when = milliseconds(block.get("start_timestamp")) or at
        if block.get("type") == "tool_use":
            last = as_text(block.get("id")) or f"{message_id}:{number}"
            name = as_text(block.get("name")) or "unknown"
            builder.call(last, name, block.get("input") or {}, at=when, message_id=message_id)
        elif block.get("type") == "tool_result":
            failed = bool(block.get("is_error"))
            builder.result(
                as_text(block.get("tool_use_id")) or last,
                without_data(block.get("content")),
                at=milliseconds(block.get("stop_timestamp")) or when,
                status="failed" if failed else "completed",
                error="failed" if failed else None,
            )
