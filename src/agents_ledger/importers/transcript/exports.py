"""Exports of chat services: one document with all conversations, of any size.

One conversation is in memory at a time. It is parsed for its tree, and again for the content of
its turns.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.parsing.json_spans import Pieces, objects_of
from agents_ledger.importers.parsing.lenient_json import BROKEN, UUID
from agents_ledger.importers.port.limits import ImportLimits
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.transcript.columns import NONE
from agents_ledger.importers.transcript.lazy_turns import LazyTurns
from agents_ledger.importers.transcript.lines import record_of
from agents_ledger.importers.transcript.message_tree import MessageKind, MessageNodes, MessageTree
from agents_ledger.importers.transcript.packed_store import PackedDict
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.importers.transcript.turn_tree import TurnTree
from agents_ledger.model.imports.sources import Derivation, DerivedSession, Fate
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import Turn

ExportCounts = Counter[tuple[str, Fate]]
ExportMember = tuple[str, MessageKind, dict[str, Any]]  # message id, kind, record


class ConversationHeader(Struct):
    """What an export says of a conversation besides its messages."""

    title: str | None = None
    created_at: int = 0
    updated_at: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


class ExportedConversation(ABC):
    """A conversation, merged from all exports that contain it."""

    def __init__(self, conversation_id: str, limits: ImportLimits) -> None:
        self.id = conversation_id
        self.nodes = MessageNodes(limits)
        self.current: str | None = None  # the last message of the branch that is shown
        self.header = ConversationHeader()

    @abstractmethod
    def add(self, pieces: Pieces, file_id: int, counts: ExportCounts) -> None:
        """Merge a further export: its messages win, and nothing is removed."""

    @abstractmethod
    def build(self, builder: TurnBuilder, members: list[ExportMember]) -> Turn:
        """The turn of these messages."""

    def scoped(self, name: str) -> str:
        """An id that no other message has."""
        return name if UUID.fullmatch(name) else f"{self.id}:{name}"


class _ExportedTurn(Struct, array_like=True):
    conversation: str
    number: int  # in the tree of the conversation
    record_ids: list[str]


class ExportTurns(LazyTurns):
    """The turns of all conversations of some exports, and their sessions."""

    def __init__(
        self,
        material: Material,
        name: str,
        version: int,
        identify: Callable[[bytes], str | None],
        conversation: Callable[[str, ImportLimits], ExportedConversation],
    ) -> None:
        self.material = material
        self.source = name
        self.version = version
        self.identify = identify
        self.conversation = conversation
        self.tree = TurnTree()
        self.turns = PackedDict(_ExportedTurn, material.limits)
        self.sessions: list[DerivedSession] = []
        self._spans: dict[str, list[SourceLine]] = {}  # of each conversation
        self._last: tuple[str, ExportedConversation, MessageTree] | None = None
        super().__init__(self.tree, version)
        for file in material.files:
            for span, data in objects_of(material, file):
                self._locate(span, data)
        for conversation_id in self._spans:
            self._add_conversation(conversation_id)

    def derivation(self) -> Derivation:
        return Derivation(
            turns=self,
            sessions=tuple(self.sessions),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _locate(self, span: SourceLine, data: bytes) -> None:
        try:
            conversation_id = self.identify(data)
        except BROKEN as error:
            self.material.fault(span, f"not a conversation: {error}")
            self.material.count("(malformed)", "malformed")
            return
        if conversation_id is None:
            self.material.count("(no conversation)", "unmapped")
            return
        self.material.count("conversation", "derived")
        self._spans.setdefault(conversation_id, []).append(span)

    def _add_conversation(self, conversation_id: str) -> None:
        conversation, messages = self._parse(conversation_id, is_new=True)
        for number, turn in enumerate(messages):
            if turn.id in self.turns:
                # Shared with the conversation that it was copied from.
                continue
            record_ids = [message_id for message_id, _ in turn.members]
            parent = NONE if turn.parent is None else self.turns.number(turn.parent)
            self.turns[turn.id] = _ExportedTurn(conversation_id, number, record_ids)
            self.tree.add(parent if parent != NONE else None)
        self.take_added()
        self.sessions.append(self._session(conversation, messages))

    def _parse(
        self, conversation_id: str, *, is_new: bool = False
    ) -> tuple[ExportedConversation, MessageTree]:
        """A conversation and its tree; the records of a new one are counted."""
        # Turns of one conversation are built one after the other: it is parsed once for all of
        # them.
        if self._last is not None and self._last[0] == conversation_id:
            return self._last[1], self._last[2]
        conversation = self.conversation(conversation_id, self.material.limits)
        for span in self._spans[conversation_id]:
            data = self.material.bytes_of(span)
            pieces = Pieces(self.material, span.file, span.offset, data)
            del data  # repairs make a copy; only one is held
            counts: ExportCounts = Counter()
            conversation.add(pieces, span.file.id, counts)
            if is_new:
                self._report(span, counts)
        tree = MessageTree(conversation.nodes)
        self._last = (conversation_id, conversation, tree)
        return conversation, tree

    def _report(self, span: SourceLine, counts: ExportCounts) -> None:
        self.material.counts.update(counts)
        malformed = sum(number for (_, fate), number in counts.items() if fate == "malformed")
        if malformed:
            messages = humanize.count(malformed, "message")
            self.material.fault(span, f"{messages} in this conversation cannot be read")

    def _session(self, conversation: ExportedConversation, tree: MessageTree) -> DerivedSession:
        nodes, header, current = conversation.nodes, conversation.header, conversation.current
        head = tree.head(NONE if current is None else nodes.number(current))
        digest = hashlib.sha256(msgspec.json.encode([self.version, head, header]))
        for node in nodes.values:
            digest.update(node.fingerprint)
        return DerivedSession(
            session_id=conversation.id,
            label=f"{self.source}:{conversation.id}",
            head=head,
            fingerprint=digest.hexdigest(),
            file_ids=self._file_ids(conversation.id),
            title=header.title,
            created_at=header.created_at,
            updated_at=header.updated_at,
            metadata=header.metadata,
        )

    def _file_ids(self, conversation_id: str) -> frozenset[int]:
        return frozenset(span.file.id for span in self._spans[conversation_id])

    # -- turns --------------------------------------------------------------------------------

    def name(self, turn: int) -> str:
        return self.turns.name(turn)

    def record_ids(self, turn: int) -> Iterable[str]:
        return self.turns.values.read(turn).record_ids

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        exported = self.turns.values.read(turn)
        conversation, tree = self._parse(exported.conversation)
        prints = tree[exported.number].prints(conversation.nodes)
        return prints, self._file_ids(exported.conversation)

    def build(self, turn: int) -> Turn:
        exported = self.turns.values.read(turn)
        conversation, tree = self._parse(exported.conversation)
        message_turn = tree[exported.number]
        nodes = [(m, conversation.nodes.read(node_id)) for m, node_id in message_turn.members]
        members = [(m, node.kind, record_of(self.material, node.record)) for m, node in nodes]
        limits = self.material.limits
        builder = TurnBuilder(message_turn.id, message_turn.parent, limits)
        return conversation.build(builder, members)
