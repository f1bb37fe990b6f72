"""Turns as values that are made whenever they are iterated: memory need not hold a million."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from agents_ledger.importers.port.material import fingerprint
from agents_ledger.importers.transcript.columns import SetColumn
from agents_ledger.importers.transcript.turn_tree import TurnTree
from agents_ledger.model.imports.sources import DerivedTurn
from agents_ledger.model.turns import Turn

_SIZE = 16  # bytes of a fingerprint


class LazyTurns(ABC):
    """The turns of a tree, each after its parent.

    Per turn only the fingerprint and the set of its files are held. They are computed at once, so
    that a source may free what they come from.
    """

    turn_tree: TurnTree

    def __init__(self, tree: TurnTree, version: int) -> None:
        """Call it last: it asks for the evidence of every turn. `version` is the parser's."""
        self.turn_tree = tree
        self._version = version
        # 16 bytes a turn: a session of 1,000,000 records may have 500,000 turns.
        self._fingerprints = bytearray()
        self._file_sets = SetColumn()
        self.take_added()

    def take_added(self) -> None:
        """Ask for the evidence of the turns that were added to the tree since the last call."""
        for turn in range(len(self._fingerprints) // _SIZE, len(self.turn_tree)):
            parts, file_ids = self.evidence(turn)
            self._fingerprints += fingerprint(self._version, parts)
            self._file_sets.append(file_ids)

    # -- what a source says -------------------------------------------------------------------

    def name(self, turn: int) -> str:
        """The id of a turn."""
        return self.turn_tree.name(turn)

    @abstractmethod
    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        """Everything that the content of a turn is made from, as parts of its fingerprint; and the
        ids of the files it is in."""

    @abstractmethod
    def record_ids(self, turn: int) -> Iterable[str]:
        """The ids of the records that are in this turn and in no other."""

    def repeated_ids(self, turn: int) -> Iterable[str]:
        """The ids of records that only repeat some of these."""
        return ()

    def owner(self, turn: int) -> str | None:
        """The label of the session that a turn belongs to even if it is on no session's thread."""
        return None

    @abstractmethod
    def build(self, turn: int) -> Turn:
        """The content of a turn."""

    # -- the derived turns --------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.turn_tree)

    def __iter__(self) -> Iterator[DerivedTurn]:
        return map(self._derived, self.turn_tree.order())

    def parent_name(self, turn: int) -> str | None:
        parent = self.turn_tree.parent(turn)
        return None if parent is None else self.name(parent)

    def _derived(self, turn: int) -> DerivedTurn:
        return DerivedTurn(
            self.name(turn),
            self.parent_name(turn),
            bytes(self._fingerprints[_SIZE * turn : _SIZE * turn + _SIZE]),
            self._file_sets[turn],
            _LazyIds(self.record_ids, turn),
            partial(self.build, turn),
            owner=self.owner(turn),
            repeated_ids=_LazyIds(self.repeated_ids, turn),
        )


class _LazyIds:
    """Ids that are read whenever they are iterated."""

    def __init__(self, ids: Callable[[int], Iterable[str]], turn: int) -> None:
        self._ids = ids
        self._turn = turn

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids(self._turn))
