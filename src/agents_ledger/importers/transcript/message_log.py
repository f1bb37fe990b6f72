"""The whole derivation of a source whose files are trees or rows of messages.

Such a source reads its files and builds the content of a turn; the rest is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.parsing.lenient_json import as_dict, parse_json, project_name
from agents_ledger.importers.port.material import HeldRecord, Material
from agents_ledger.importers.transcript.columns import NONE
from agents_ledger.importers.transcript.lines import DocumentStates
from agents_ledger.importers.transcript.message_tree import (
    MessageKind,
    MessageNode,
    MessageNodes,
    MessageTree,
    MessageTurn,
    MessageTurns,
    message_node,
)
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    SourceFile,
    SourceTitle,
)
from agents_ledger.model.turns import Turn


class LogMessage(NamedTuple):
    """A message of a turn, with its record."""

    id: str
    kind: MessageKind
    data: bytes

    @property
    def record(self) -> dict[str, Any]:
        """The record, parsed whole."""
        return as_dict(parse_json(self.data))


class MessageFamily(ABC):
    """The messages of a family of files, each of a session that the source numbers."""

    def __init__(self, material: Material, version: int) -> None:
        self.material = material
        self.version = version
        self.nodes = MessageNodes(material.limits)
        self.session_of = array("I")  # by message
        self.states = DocumentStates()
        self.titles: list[SourceTitle] = []

    @abstractmethod
    def build_turn(
        self, builder: TurnBuilder, turn: MessageTurn, messages: Iterable[LogMessage]
    ) -> None:
        """Add the messages of a turn to its builder."""

    @abstractmethod
    def derived_sessions(self, tree: MessageTree) -> Iterable[DerivedSession]:
        """The sessions of these messages."""

    def context(self, turn: MessageTurn) -> bytes:
        """What the content of a turn depends on besides its messages."""
        return b""

    def put(
        self,
        message: LogMessage,
        parent: str | None,
        record: HeldRecord,
        file: SourceFile,
        *,
        session: int = 0,
    ) -> int:
        """Add a message and return its number; a later one of the same id replaces it."""
        node = message_node(message.kind, parent, message.data, record, file.id)
        self.nodes.put(message.id, node)
        number = self.nodes.number(message.id)
        if number == len(self.session_of):
            self.session_of.append(session)
        return number

    def turns(self, tree: MessageTree) -> MessageTurns:
        return FamilyTurns(self, tree)

    def derivation(self) -> Derivation:
        tree = MessageTree(self.nodes)
        return Derivation(
            turns=self.turns(tree),
            sessions=tuple(self.derived_sessions(tree)),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            superseded=self.states.superseded(),
            titles=tuple(self.titles),
        )


class FamilyTurns(MessageTurns):
    def __init__(self, family: MessageFamily, tree: MessageTree) -> None:
        self.family = family
        super().__init__(tree, family.version)

    def context(self, turn: MessageTurn) -> bytes:
        return self.family.context(turn)

    def build_turn(self, turn: MessageTurn, messages: Sequence[tuple[str, MessageNode]]) -> Turn:
        builder = TurnBuilder(turn.id, turn.parent, self.family.material.limits)
        bytes_of = self.family.material.bytes_of
        members = (LogMessage(name, node.kind, bytes_of(node.record)) for name, node in messages)
        self.family.build_turn(builder, turn, members)
        return builder.build()


class LogSession(Struct):
    """A session, filled while its files are read."""

    id: str
    file_ids: set[int] = field(default_factory=set)
    parent_id: str | None = None  # of a subagent: the session that started it
    last: str | None = None  # the message that was added last
    title: str | None = None
    folder: str | None = None
    created_at: int = 0
    updated_at: int = 0

    def seen(self, at: int) -> None:
        """Note the time of a record."""
        self.created_at = self.created_at or at
        self.updated_at = max(self.updated_at, at)


class MessageLog(MessageFamily):
    """The messages and sessions of a family of files, in order or linked by parents."""

    name: ClassVar[str]  # of the source

    def __init__(self, material: Material, version: int) -> None:
        super().__init__(material, version)
        self.sessions: dict[str, LogSession] = {}
        for file in material.files:
            self._file = file
            self.read(file)

    @abstractmethod
    def read(self, file: SourceFile) -> None:
        """Read a file: call `session` and `add`."""

    @abstractmethod
    def build(self, builder: TurnBuilder, messages: Iterable[LogMessage]) -> None:
        """Add the messages of a turn to its builder."""

    def build_turn(
        self, builder: TurnBuilder, turn: MessageTurn, messages: Iterable[LogMessage]
    ) -> None:
        self.build(builder, messages)

    def session(self, session_id: str) -> LogSession:
        """The session of this id; a new one if it was not read before."""
        session = self.sessions.setdefault(session_id, LogSession(session_id))
        session.file_ids.add(self._file.id)
        return session

    def add(
        self, session: LogSession, message: LogMessage, parent: str | None, record: HeldRecord
    ) -> None:
        """Add a message; a later one of the same id replaces it."""
        self.put(message, parent, record, self._file)
        session.last = message.id

    def derived_sessions(self, tree: MessageTree) -> Iterator[DerivedSession]:
        for session in self.sessions.values():
            folder = session.folder
            yield DerivedSession(
                session_id=session.id,
                label=f"{self.name}:{session.id}",
                head=tree.head(NONE if session.last is None else self.nodes.number(session.last)),
                file_ids=frozenset(session.file_ids),
                title=session.title,
                created_at=session.created_at,
                updated_at=session.updated_at,
                is_subagent=session.parent_id is not None,
                parent_label=f"{self.name}:{session.parent_id}" if session.parent_id else None,
                routing_key=folder,
                metadata={"workspace_path": folder, "project": project_name(folder)}
                if folder
                else {},
            )
