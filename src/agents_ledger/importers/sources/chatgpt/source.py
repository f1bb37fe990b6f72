"""ChatGPT's data export: conversations.json, whole, in shards, or one conversation.

A conversation is a tree: answers generated again and prompts edited are branches. An export may
have hundreds of megabytes: exports.py reads one conversation at a time.
docs/sources/chatgpt.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.export_documents import Counts, Service, Told, derive
from agents_ledger.importers.parsing.json_spans import Pieces
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.source import Home, Look, Material, Project, Source
from agents_ledger.importers.transcript.message_tree import Kind, Node, Nodes, node_of
from agents_ledger.importers.transcript.packed_store import Named
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    UUID,
    as_dict,
    as_list,
    as_text,
    parsed,
    strictly,
)
from agents_ledger.model.imports.sources import Derivation, SourceKind
from agents_ledger.model.turns import CallStatus, Turn

NAME = "chatgpt"
FILE_NAME = re.compile(r"conversations(-\d+)?\.json")
ROLES: dict[str, Kind] = {"user": "prompt", "assistant": "reply", "tool": "reply"}
SAID = (
    "default_model_slug",
    "gizmo_id",
    "gizmo_type",
    "is_archived",
    "is_starred",
    "conversation_origin",
    "plugin_ids",
    "voice",
)
KEPT = (
    "attachments",
    "citations",
    "content_references",
    "finish_details",
    "is_visually_hidden_from_conversation",
    "search_result_groups",
)
MAPPING = re.compile(
    rb'"mapping"\s*:\s*\{\s*"[^"]*"\s*:\s*\{\s*(?:"id"\s*:\s*"[^"]*"\s*,\s*)?'
    rb'"(?:message"\s*:\s*(?:null|\{)|parent"\s*:\s*(?:null|")|children"\s*:\s*\[)'
)
FAILED = ("failed", "error")
EVERYONE = ("all", "", None)


class _Node(Struct):
    message: Raw = field(default_factory=lambda: Raw(b"null"))
    parent: Any = None
    children: Any = None


class _Listed(Struct, array_like=True):
    """A node among the others of its conversation."""

    node: Node | None  # None: it only holds the tree together
    parent: str | None
    children: list[str]


class _Brief(Struct):
    """A message, as far as the outline needs it."""

    author: Any = None
    content: Any = None


class _Conversation(Struct):
    """What one export says of a conversation."""

    mapping: dict[str, Raw] = field(default_factory=dict)
    title: Any = None
    create_time: Any = None
    update_time: Any = None
    current_node: Any = None
    conversation_id: Any = None
    id: Any = None
    default_model_slug: Any = None
    gizmo_id: Any = None
    gizmo_type: Any = None
    is_archived: Any = None
    is_starred: Any = None
    conversation_origin: Any = None
    plugin_ids: Any = None
    voice: Any = None


_decode = msgspec.json.Decoder(_Conversation).decode
_brief = msgspec.json.Decoder(_Brief | None).decode
_node = msgspec.json.Decoder(_Node).decode


class ChatGpt(Source):
    """Reader of ChatGPT exports."""

    name = NAME
    version = 3
    kind: SourceKind = "document"

    def roots(self, home: Home) -> Sequence[Path]:
        """An export lies wherever it was put."""
        return ()

    def wants(self, path: Path) -> bool:
        """The conversations, whole or in shards."""
        return FILE_NAME.fullmatch(path.name) is not None

    def recognises(self, path: Path, head: bytes) -> bool:
        """A mapping of nodes; the first may be longer than what is looked at."""
        start = head.lstrip()
        return start[:1] in (b"[", b"{") and MAPPING.search(start) is not None

    def family(self, path: Path) -> str:
        """One file; a conversation that moved to another is found by its messages."""
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
        self.told = Told(
            as_text(said.title),
            milliseconds(said.create_time),
            milliseconds(said.update_time),
            {name: value for name in SAID if (value := getattr(said, name))},
        )
        listed = Named(_Listed)
        for name, raw in said.mapping.items():
            listed[name] = self._listed(_node_of(raw), pieces, file_id, counts)
        for number in _in_order(listed):
            name, node = listed.name(number), listed.values.read(number).node
            if node is not None:
                node.parent = self._parent(listed, name)
                self.nodes.put(self._scoped(name), node)
        current = said.current_node
        if not isinstance(current, str) or current not in listed:
            current = listed.name(len(listed) - 1) if listed else None
        if current is not None and listed.read(current).node is None:
            self.current = self._parent(listed, current) or self.current
        elif current is not None:
            self.current = self._scoped(current)

    def _listed(self, node: _Node, pieces: Pieces, file_id: int, counts: Counts) -> _Listed:
        kind = self._kind(node.message, pieces, counts)
        message = bytes(node.message)
        listed: Node | None = None
        if kind is not None:
            listed = node_of(kind, None, message, pieces.held(message), file_id)
        return _Listed(
            listed,
            node.parent if isinstance(node.parent, str) else None,
            [each for each in as_list(node.children) if isinstance(each, str)],
        )

    @staticmethod
    def _kind(message: Raw, pieces: Pieces, counts: Counts) -> Kind | None:
        """What a node is; None: it only holds the tree together."""
        try:
            brief = pieces.decode(_brief, bytes(message))
        except BROKEN:
            counts["(malformed)", "malformed"] += 1
            return None
        if brief is None:
            counts["(empty node)", "unmapped"] += 1
            return None
        role = _role(brief.author)
        said = as_dict(brief.content)
        if role not in ROLES and not any(as_list(said.get("parts"))):
            counts[role or "(no role)", "unmapped"] += 1
            return None
        counts[role or "(no role)", "derived"] += 1
        if said.get("content_type") in ("user_editable_context", "model_editable_context"):
            return "notice"
        return ROLES.get(role, "notice")

    def _parent(self, listed: Named[_Listed], name: str) -> str | None:
        """The nearest node above that says something."""
        seen = {name}
        above = listed.read(name).parent
        while above is not None and above in listed and above not in seen:
            if listed.read(above).node is not None:
                return self._scoped(above)
            seen.add(above)
            above = listed.read(above).parent
        return None

    def _scoped(self, name: str) -> str:
        return name if UUID.fullmatch(name) else f"{self.id}:{name}"

    def build(self, builder: TurnBuilder, members: list[tuple[str, Kind, dict[str, Any]]]) -> Turn:
        """The turn these messages make."""
        contents = _Contents(builder)
        for member in members:
            contents.add(*member)
        return builder.build()


def _role(author: Any) -> str:
    return as_text(author) or as_text(as_dict(author).get("role")) or ""


def _node_of(raw: Raw) -> _Node:
    try:
        return _node(raw)
    except BROKEN:
        return _Node(Raw(b"0"))  # not a message either


def _in_order(listed: Named[_Listed]) -> Iterator[int]:
    """All nodes, each after its parent, siblings as the parent lists them."""
    met = bytearray(len(listed))
    for root, node in enumerate(listed.values):
        if node.parent in listed:
            continue
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if number >= 0 and not met[number]:
                met[number] = 1
                yield number
                below = listed.values.read(number).children
                waiting += [listed.number(name) for name in reversed(below)]
    yield from (number for number, is_met in enumerate(met) if not is_met)


def _identify(data: bytes) -> str | None:
    said = strictly(_decode, data)
    return as_text(said.conversation_id) or as_text(said.id) or next(iter(said.mapping), None)


SERVICE = Service(NAME, ChatGpt.version, _identify, _Tree)


# -- content ----------------------------------------------------------------------------------


class _Contents:
    """Puts messages into a turn, one after the other."""

    def __init__(self, builder: TurnBuilder) -> None:
        self.builder = builder
        self.call: str | None = None  # without a result yet

    def add(self, message_id: str, kind: Kind, said: dict[str, Any]) -> None:
        at = milliseconds(said.get("create_time"))
        role = _role(said.get("author"))
        metadata = _metadata(said)
        if kind == "prompt":
            text = _words(said, metadata)
            self.builder.message(message_id, "user", text, at=at, source="human", metadata=metadata)
        elif kind == "notice":
            text = _words(said, metadata)
            self.builder.message(
                message_id, "system", text, at=at, source="event", metadata=metadata
            )
        elif role == "tool":
            self._result(message_id, said, metadata, at)
        else:
            self._reply(message_id, said, metadata, at)

    def _reply(
        self, message_id: str, said: dict[str, Any], metadata: dict[str, Any], at: int
    ) -> None:
        model = as_text(as_dict(said.get("metadata")).get("model_slug"))
        self.builder.model = model or self.builder.model
        self.builder.provider = "openai"
        recipient = said.get("recipient")
        if recipient not in EVERYONE:
            self.builder.call(message_id, str(recipient), _params(said), at=at)
            self.call = message_id
            return
        thinking = _thinking(said)
        text = None if thinking is not None else _words(said, metadata)
        self.builder.message(
            message_id, "assistant", text, at=at, thinking=thinking, metadata=metadata
        )

    def _result(
        self, message_id: str, said: dict[str, Any], metadata: dict[str, Any], at: int
    ) -> None:
        name = as_text(as_dict(said.get("author")).get("name"))
        text = _words(said, metadata)
        if self.call is not None:
            told: dict[str, Any] = {"text": text, **metadata}
            status, error = _status(said, text)
            word = as_text(said.get("status"))
            self.builder.result(
                self.call, told, at=at, status=status, error=error, source_status=word
            )
            self.call = None
            return
        if name:
            metadata["name"] = name
        self.builder.message(message_id, "tool", text, at=at, metadata=metadata)


def _status(said: dict[str, Any], text: str) -> tuple[CallStatus, str | None]:
    ran = as_text(as_dict(as_dict(said.get("metadata")).get("aggregate_result")).get("status"))
    content_type = as_dict(said.get("content")).get("content_type")
    if (ran or "").startswith(FAILED) or content_type == "system_error":
        return "failed", text or ran or "failed"
    return "completed", None


def _params(said: dict[str, Any]) -> Any:
    """What a tool was asked: an object where it is one, else the code or text."""
    content = as_dict(said.get("content"))
    text = _words(said, {})
    found = parsed(text.encode("utf-8", "replace"))
    if isinstance(found, dict):
        return found
    name = "code" if content.get("content_type") == "code" else "input"
    return {name: text, **({"language": content["language"]} if content.get("language") else {})}


def _words(said: dict[str, Any], metadata: dict[str, Any]) -> str:
    """The text of a message; parts that are no text are noted by what they point to."""
    content = as_dict(said.get("content"))
    words: list[str] = [said["content"]] if isinstance(said.get("content"), str) else []
    others: list[Any] = []
    for part in as_list(content.get("parts")):
        text = part if isinstance(part, str) else as_dict(part).get("text")
        if isinstance(text, str):
            words.append(text)
        elif part:
            others.append(part)
    for name in ("text", "result", "content", "user_profile", "user_instructions"):
        if isinstance(content.get(name), str) and content[name]:
            words.append(content[name])
    if others:
        metadata["parts"] = others
    if content.get("content_type") not in ("text", None):
        metadata["content_type"] = content["content_type"]
    return "\n\n".join(word for word in words if word)


def _thinking(said: dict[str, Any]) -> str | None:
    content = as_dict(said.get("content"))
    if content.get("content_type") == "reasoning_recap":
        return as_text(content.get("content"))
    if content.get("content_type") != "thoughts":
        return None
    told = []
    for thought in as_list(content.get("thoughts")):
        words = [as_dict(thought).get(name) for name in ("summary", "content")]
        told.append(": ".join(word for word in words if isinstance(word, str) and word))
    return "\n\n".join(each for each in told if each)


def _metadata(said: dict[str, Any]) -> dict[str, Any]:
    told = as_dict(said.get("metadata"))
    found = {name: told[name] for name in KEPT if told.get(name)}
    if said.get("weight") == 0:
        found["weight"] = 0  # discarded
    status = said.get("status")
    if status not in (None, "finished_successfully", "finished"):
        found["status"] = status
    return found
