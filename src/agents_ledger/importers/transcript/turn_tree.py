"""Turns as a tree: which turn follows which, and which entries each is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from agents_ledger.importers.transcript.columns import (
    NONE,
    Groups,
    Links,
    nearest_above,
    roots_first,
)

_UNSEEN = _SEVERAL = -2


class TurnTree:
    """Turns by number, from 0. A turn may be settled: answered, failed, or a compaction."""

    def __init__(self) -> None:
        self._parents = Links()
        self._settled = bytearray()
        self._followed = bytearray()

    def __len__(self) -> int:
        return len(self._parents)

    def name(self, turn: int) -> str:
        """The id of a turn."""
        raise NotImplementedError

    def optional_name(self, turn: int | None) -> str | None:
        return None if turn is None else self.name(turn)

    def head_name(self, turn: int | None) -> str | None:
        """The id of the nearest settled turn at or above one."""
        return self.optional_name(self.nearest_settled(turn))

    def add(self, parent: int | None, *, settled: bool = False) -> int:
        """The number of one more turn."""
        self._parents.append(parent)
        self._settled.append(settled)
        self._followed.append(False)
        if parent is not None:
            self._followed[parent] = True
        return len(self._parents) - 1

    def parent(self, turn: int) -> int | None:
        """The turn above, None for a root."""
        return self._parents[turn]

    def order(self) -> Sequence[int]:
        """The turns, each after its parent."""
        return range(len(self))

    def settle(self, turn: int) -> None:
        """Note that a turn was answered, or ended without an answer."""
        self._settled[turn] = True

    def is_settled(self, turn: int) -> bool:
        """Whether a turn was answered, failed, or is a compaction."""
        return bool(self._settled[turn])

    def is_followed(self, turn: int) -> bool:
        """Whether another turn has this one as its parent."""
        return bool(self._followed[turn])

    def nearest_settled(self, turn: int | None) -> int | None:
        """The nearest settled turn at or above one: a prompt without an answer is never a head."""
        parents, settled = self._parents.numbers, self._settled
        at = NONE if turn is None else turn
        while at >= 0 and not settled[at]:
            at = parents[at]
        return at if at >= 0 else None

    def steps_towards(self, ancestors: Mapping[int, int]) -> dict[int, int]:
        """For turns and possible ancestors of them: the child of the ancestor that leads to the
        turn. Turns that are not below theirs are left out. The tree is walked once."""
        if not ancestors:
            return {}
        first_child, sibling = self._child_lists()
        steps: dict[int, int] = {}
        path = array("i")
        depths = array("i", [NONE]) * len(self)  # of the turns on the path
        turn = first_child[len(self)]
        while turn >= 0:
            depths[turn] = depth = len(path)
            above = depths[ancestors[turn]] if turn in ancestors else NONE
            path.append(turn)
            if 0 <= above < depth:
                steps[turn] = path[above + 1]
            following = first_child[turn]
            # No child: the next sibling, or that of the parent.
            while following < 0 and path:
                left = path.pop()
                depths[left] = NONE
                following = sibling[left]
            turn = following
        return steps

    def _child_lists(self) -> tuple[array[int], array[int]]:
        """The first child of each turn and, last, the first root; and the next sibling of each."""
        first_child = array("i", [NONE]) * (len(self) + 1)
        sibling = array("i", [NONE]) * len(self)
        for turn in range(len(self) - 1, -1, -1):
            parent = self._parents.numbers[turn]  # NONE is the last
            sibling[turn] = first_child[parent]
            first_child[parent] = turn
        return first_child, sibling


class Grouping(NamedTuple):
    """Entries by the turn they are in, while a turn is known by the entry that opens it."""

    openers: array[int]  # in order
    opener_of: array[int]  # by entry
    parents: Links  # by opener, the opener of the turn above


class OpenerChildren:
    """Whether a turn has no child, one, or several. Turns are known by their openers."""

    def __init__(self, groups: Grouping) -> None:
        self._only = array("i", [NONE]) * len(groups.parents)
        for opener in groups.openers:
            parent = groups.parents.numbers[opener]
            if parent >= 0:
                self._only[parent] = opener if self._only[parent] == NONE else _SEVERAL

    def only(self, opener: int) -> int | None:
        """The only child, if there is just one."""
        child = self._only[opener]
        return child if child >= 0 else None

    def none(self, opener: int) -> bool:
        return self._only[opener] == NONE

    def several(self, opener: int) -> bool:
        return self._only[opener] == _SEVERAL


class EntryTree(TurnTree, ABC):
    """Turns made of entries: an entry that opens one, and all below it up to the next openers.

    A source says which entries open a turn, and which of those belong to the turn above all the
    same. It may then fold turns into others, and move single entries.
    """

    def __init__(self, parents: Links, order: Sequence[int]) -> None:
        """`parents` are those of the entries, `order` has all entries that are in a turn."""
        super().__init__()
        groups = self._group(parents, order)
        folded = self.fold(groups)
        remaining = (opener for opener in groups.openers if opener not in folded)
        self._openers = array("i", roots_first(remaining, groups.parents))
        # NONE is -1, so that it indexes the last place.
        numbers = array("i", [NONE]) * (len(parents) + 1)  # the last: of no entry
        for turn, opener in enumerate(chain(self._openers, folded)):
            numbers[opener] = turn
        for opener in self._openers:
            above = numbers[groups.parents.numbers[opener]]
            self.add(above if above >= 0 else None)
        self._turn_of = groups.opener_of  # of every entry its turn, or NONE
        for entry, opener in enumerate(groups.opener_of):
            self._turn_of[entry] = numbers[opener]
        folds = [
            (
                numbers[opener],
                None if into is None else numbers[into],
                groups.parents[opener] is None,
            )
            for opener, into in folded.items()
        ]
        del groups, numbers  # as large as all entries
        self.move_entries()
        self._segments = Groups(self._turn_of, len(self._openers) + len(folded), order)
        # By turn, what was folded into it: before its entries.
        self._leading: dict[int, int] = {}
        self._trailing: dict[int, list[int]] = {}  # and after them
        for segment, target, leads in folds:
            self._fold(segment, target, leads=leads)

    # -- what a source decides ----------------------------------------------------------------

    @abstractmethod
    def opens(self, entry: int) -> bool:
        """Whether an entry opens a turn."""

    @abstractmethod
    def joins(self, opener: int, above: int, *, waits: bool) -> bool:
        """Whether an opener belongs to the turn of the opener above it. `waits`: that one has no
        answer, and is followed by this one alone."""

    @abstractmethod
    def ends(self, entry: int) -> bool:
        """Whether the turn of an entry no longer waits for an answer."""

    def fold(self, groups: Grouping) -> Mapping[int, int | None]:
        """Turns that are none: the entries of each belong to another turn, or to none. Both are
        given by their openers."""
        return {}

    def move_entries(self) -> None:
        """Put single entries into other turns."""

    # -- the turns ----------------------------------------------------------------------------

    def opener(self, turn: int) -> int:
        return self._openers[turn]

    def turn_of(self, entry: int) -> int | None:
        turn = self._turn_of[entry]
        return turn if turn >= 0 else None

    def move(self, entry: int, turn: int | None) -> None:
        """Put an entry into another turn; only while `move_entries` runs."""
        self._turn_of[entry] = NONE if turn is None else turn

    def members(self, turn: int) -> Sequence[int]:
        """The entries of a turn in order."""
        entries = self._segments[turn]
        if turn in self._leading:
            entries = self._segments[self._leading[turn]] + entries
        for segment in self._trailing.get(turn, ()):
            entries += self._segments[segment]
        return entries

    def free_entries(self) -> None:
        """Free what only the building of the tree needs: a million turns may yet be written."""
        self._turn_of = array("i")

    def _fold(self, segment: int, turn: int | None, *, leads: bool) -> None:
        for entry in self._segments[segment]:
            self.move(entry, turn)
        if turn is not None and leads:
            self._leading[turn] = segment
        elif turn is not None:
            self._trailing.setdefault(turn, []).append(segment)

    def _group(self, parents: Links, order: Sequence[int]) -> Grouping:
        above_entry = parents.numbers
        opener_of = nearest_above(order, parents, self.opens)
        above = array("i", [_UNSEEN]) * len(parents)
        openers = array("i")
        for entry in order:
            opener = opener_of[entry]
            if above[opener] == _UNSEEN:
                up = above_entry[opener]
                above[opener] = opener_of[up] if up >= 0 else NONE
                openers.append(opener)
        answered = bytearray(len(parents))
        for entry in order:
            if self.ends(entry):
                answered[opener_of[entry]] = 1
        joined = _ends_of_chains(self._joined(openers, above, answered))
        if joined:
            for entry in order:
                opener_of[entry] = joined.get(opener_of[entry], opener_of[entry])
            openers = array("i", (opener for opener in openers if opener not in joined))
        for opener in openers:
            up = joined.get(above[opener], above[opener])
            above[opener] = NONE if up == opener or up in joined else up
        return Grouping(openers, opener_of, Links(above))

    def _joined(
        self, openers: Iterable[int], above: Sequence[int], answered: Sequence[int]
    ) -> dict[int, int]:
        """The openers that open no turn of their own, and those above them."""
        children = bytearray(len(above))  # none, one, or more
        for opener in openers:
            if above[opener] >= 0:
                children[above[opener]] = min(2, children[above[opener]] + 1)
        joined: dict[int, int] = {}
        for opener in openers:
            up = above[opener]
            if up < 0 or up == opener:
                continue
            if self.joins(opener, up, waits=not answered[up] and children[up] == 1):
                joined[opener] = up
        return joined


def _ends_of_chains(targets: Mapping[int, int]) -> dict[int, int]:
    """Where each chain of targets ends; a cycle, at one of its own."""
    ends: dict[int, int] = {}
    for start in targets:
        path: dict[int, None] = {}
        at = start
        while at in targets and at not in ends and at not in path:
            path[at] = None
            at = targets[at]
        # Every chain is followed once, however many prompts without an answer it has.
        ends |= dict.fromkeys(path, ends.get(at, at))
    return ends


def parents_first(parents: dict[str, str | None]) -> Iterator[str]:
    """Every name after its parent. A name that leads back to itself becomes a root in `parents`."""
    names = list(parents)
    numbers = {name: number for number, name in enumerate(names)}
    above = Links(numbers.get(up, NONE) if up else NONE for up in parents.values())
    for number in roots_first(range(len(names)), above):
        if above[number] is None and parents[names[number]] in parents:
            parents[names[number]] = None
        yield names[number]
