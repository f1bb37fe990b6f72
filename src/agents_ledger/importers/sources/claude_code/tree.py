"""Claude Code: the turns of a family as a tree. A turn is known by its place among them, and stands
after its parent."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence, Set
from itertools import chain

from agents_ledger.importers.sources.claude_code.nodes import (
    ASSISTANT,
    BOUNDARY,
    COMMAND,
    COPY,
    FAILURE,
    NOTICE,
    OTHER,
    PRINTED,
    PROMPT,
    QUEUED,
    RESULT,
    SUMMARY,
    Nodes,
)
from agents_ledger.importers.sources.claude_code.turns import Kept
from agents_ledger.importers.transcript.turn_tree import (
    NONE,
    Groups,
    InTurns,
    in_turns,
    roots_first,
)

ASKED = {PROMPT, COMMAND}
OPENERS = (PROMPT, COMMAND, SUMMARY, BOUNDARY)
COMPACTING = (SUMMARY, BOUNDARY)
BESIDE = (NOTICE, PRINTED, OTHER, COPY, FAILURE)  # what neither asks nor answers
ENDING = (ASSISTANT, FAILURE)
MANY = UNKNOWN = -2
_BESIDE = sum(1 << kind for kind in BESIDE)
_ASKED = 1 << PROMPT | 1 << COMMAND | 1 << QUEUED
_ANSWERED = 1 << ASSISTANT | 1 << SUMMARY | 1 << BOUNDARY
_LOCAL = _BESIDE | 1 << COMMAND  # what a command leaves that the program itself answered


class Tree:
    """The turns of some records."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        order = nodes.order()
        self._behind = _behind(nodes)
        self._rehung = self._go_on(order)
        ends = (record for record, kind in enumerate(nodes.kinds) if kind in ENDING)
        found = in_turns(order, nodes.parents, ends, opens=self._opens, joins=self._joins)
        folded = self._fold(found)
        left = (top for top in found.turns if top not in folded)
        self.tops = array("i", roots_first(left, found.above))  # the record that opens each
        places = array("i", [NONE]) * len(nodes)
        for turn, top in enumerate(chain(self.tops, folded)):
            places[top] = turn
        self.parents = array("i", (_at(places, found.above[top]) for top in self.tops))
        self.turn_of = found.turn_of  # of every record, or NONE
        for record, top in enumerate(found.turn_of):
            self.turn_of[record] = places[top]
        self._segments = Groups(self.turn_of, len(self.tops) + len(folded), order)
        self._leading: dict[int, int] = {}  # what is folded into turns: before their own records
        self._trailing: dict[int, list[int]] = {}  # and after them
        for top, other in folded.items():
            self._move(places[top], _at(places, other), leads=found.above[top] < 0)
        self.ended = self._ended()

    def __len__(self) -> int:
        return len(self.tops)

    def _ended(self) -> bytearray:
        """Which turns were answered, or failed though something was asked in them."""
        kinds, said = self.nodes.kinds, array("H", bytes(2 * len(self.tops)))  # as bits
        for record, turn in enumerate(self.turn_of):
            if turn >= 0:
                said[turn] |= 1 << kinds[record]
        return bytearray(
            bool(each & _ANSWERED) or (bool(each & 1 << FAILURE) and bool(each & _ASKED))
            for each in said
        )

    # -- which records are a turn -------------------------------------------------------------

    def _opens(self, record: int) -> bool:
        """A prompt opens a turn, a compaction does, and the work that goes on after one."""
        kinds = self.nodes.kinds
        if kinds[record] in OPENERS:
            return True
        if kinds[record] in BESIDE:
            return False
        return bool(self._behind) and self._behind[record] >= 0

    def _go_on(self, order: Sequence[int]) -> set[int]:
        """What goes on after a compaction is one turn, and what is asked after that in the same
        file stands on it, though it may hang on the compaction itself: hooks that are told of late
        make it so. Returns the records that hang elsewhere now."""
        nodes, behind = self.nodes, self._behind
        starts: dict[tuple[int, int], int] = {}  # by compaction and file
        typed: dict[tuple[int, int], list[int]] = {}  # before the agent went on
        rehung: dict[int, int] = {}
        for record in order if behind else ():
            kind, above = nodes.kinds[record], behind[record]
            if above < 0 or kind in BESIDE or kind in COMPACTING:
                continue
            up = nodes.parents[above]
            above = up if up >= 0 and nodes.kinds[up] == BOUNDARY else above
            places = [(above, file_id) for file_id in nodes.files[nodes.file_sets[record]]]
            start = next((starts[place] for place in places if place in starts), NONE)
            if start >= 0:
                rehung[record] = start
            elif kind == QUEUED:
                for place in places:
                    typed.setdefault(place, []).append(record)
            elif kind in (ASSISTANT, RESULT):
                starts |= dict.fromkeys(places, record)
                rehung |= {each: record for place in places for each in typed.pop(place, ())}
        for record, start in rehung.items():
            nodes.parents[record], behind[record] = start, NONE
        return set(rehung)

    def _joins(self, opener: int, above: int, *, waits: bool) -> bool:
        """Prompts that follow each other without an answer are one query. A summary belongs to the
        boundary it hangs on."""
        kinds = self.nodes.kinds[opener], self.nodes.kinds[above]
        return kinds == (SUMMARY, BOUNDARY) or (waits and set(kinds) <= ASKED)

    def _fold(self, found: InTurns) -> dict[int, int]:
        """The turns in which nobody was asked anything, and those they belong to, or NONE: what was
        told before the first prompt belongs to that, a command that only the program itself
        answered belongs to the turn it was given after."""
        kinds, above = self.nodes.kinds, found.above
        said = array("H", bytes(2 * len(kinds)))  # the kinds of each turn's records, as bits
        for record, top in enumerate(found.turn_of):
            said[top] |= 1 << kinds[record]
        heirs = _heirs(found)
        roots = (top for top in found.turns if above[top] < 0)
        folded = {top: heirs[top] for top in roots if _is_told(said[top], heirs[top])}
        for other in folded.values():
            if other >= 0:
                above[other] = NONE
        local = [t for t in found.turns if said[t] & 1 << PRINTED and not said[t] & ~_LOCAL]
        _fold_before(found, {top for top in local if heirs[top] == MANY}, folded)
        for top in local:
            if above[top] >= 0 and heirs[top] == NONE:
                folded[top] = above[top]
        return folded

    def _move(self, turn: int, other: int, *, leads: bool) -> None:
        """The records of a turn are another's now, or nobody's."""
        for record in self._segments[turn]:
            self.turn_of[record] = other
        if other >= 0 and leads:
            self._leading[other] = turn
        elif other >= 0:
            self._trailing.setdefault(other, []).append(turn)

    def members(self, turn: int) -> array[int]:
        """The records of a turn in order."""
        found = self._segments[turn]
        if turn in self._leading:
            found = self._segments[self._leading[turn]] + found
        for each in self._trailing.get(turn, ()):
            found += self._segments[each]
        return found

    def let_go(self) -> None:
        """Of all but what is asked of turns while they are written."""
        self.turn_of, self.ended = array("i"), bytearray()
        self._behind, self._rehung = array("i"), set()
        self.nodes.let_go()

    # -- what they are to each other ----------------------------------------------------------

    def head(self, record: int) -> int:
        """The nearest turn at or above a record that was answered, or failed: a pending prompt is
        never a head."""
        turn = self.turn_of[record]
        while turn >= 0 and not self.ended[turn]:
            turn = self.parents[turn]
        return turn

    def name(self, turn: int) -> str | None:
        """What a turn is called: as the record that opens it."""
        return self.nodes.ids.name(self.tops[turn]) if turn >= 0 else None

    def half_way(self) -> dict[int, int]:
        """The prompts that hang on a record from which the agent went on, and that record."""
        asked, went_on = 1, 2
        state = bytearray(len(self.nodes))
        parents, kinds = self.nodes.parents, self.nodes.kinds
        for top in self.tops:
            if kinds[top] in ASKED and parents[top] >= 0:
                state[parents[top]] = asked
        for record, above in enumerate(parents):
            if (
                above >= 0
                and state[above] == asked
                and kinds[record] in (ASSISTANT, RESULT)
                and self.turn_of[above] == self.turn_of[record]
            ):
                state[above] = went_on
        return {
            turn: parents[top]
            for turn, top in enumerate(self.tops)
            if kinds[top] in ASKED and parents[top] >= 0 and state[parents[top]] == went_on
            if top not in self._rehung
        }

    def kept(self, preserved: Mapping[int, str]) -> dict[int, Kept]:
        """Of what compactions left in the context, the turns that each left whole. The tree is gone
        through once, whatever they name: a path leads from its root to where one is."""
        firsts: dict[int, int] = {}
        for record, first in preserved.items():
            firsts.setdefault(self.turn_of[record], self.nodes.ids.get(first))
        if not firsts:
            return {}
        first_child, sibling = self._below()
        found: dict[int, Kept] = {}
        path = array("i")
        depths = array("i", [NONE]) * len(self.tops)  # of the turns on the path
        turn = first_child[len(self.tops)]
        while turn >= 0:
            depths[turn] = depth = len(path)
            named = firsts.get(turn, NONE)
            at = depths[self.turn_of[named]] if named >= 0 and self.turn_of[named] >= 0 else NONE
            if 0 <= at < depth:
                at += named not in (self.tops[path[at]], self.members(path[at])[0])
                if 0 < at < depth:
                    found[turn] = Kept(str(self.name(path[at])), str(self.name(path[at - 1])))
            path.append(turn)
            following = first_child[turn]
            while following < 0 and path:  # nothing is below: the next beside it, or above
                left = path.pop()
                depths[left] = NONE
                following = sibling[left]
            turn = following
        return found

    def _below(self) -> tuple[array[int], array[int]]:
        """The first child of each turn and, last, the first root; and the next one beside each."""
        first_child = array("i", [NONE]) * (len(self.tops) + 1)
        sibling = array("i", [NONE]) * len(self.tops)
        for turn in range(len(self.tops) - 1, -1, -1):
            above = self.parents[turn]  # NONE is last
            sibling[turn] = first_child[above]
            first_child[above] = turn
        return first_child, sibling


def _behind(nodes: Nodes) -> array[int]:
    """For every record the compaction above it, if between them is only what neither asks nor
    answers; else NONE. Nothing if there is no compaction."""
    kinds, parents = nodes.kinds, nodes.parents
    if not any(kind in kinds for kind in COMPACTING):
        return array("i")
    found = array("i", [UNKNOWN]) * len(kinds)
    for record in range(len(kinds)):
        path, at, above = [], record, NONE
        while found[at] == UNKNOWN:
            found[at] = NONE
            path.append(at)
            above = parents[at]
            if above < 0 or kinds[above] not in BESIDE:
                above = above if above >= 0 and kinds[above] in COMPACTING else NONE
                break
            at = above
            above = found[at]
        for each in path:
            found[each] = above
    return found


def _at(places: Sequence[int], record: int) -> int:
    return places[record] if record >= 0 else NONE


def _heirs(found: InTurns) -> array[int]:
    """The one turn below each; NONE if there is none, MANY if there are more."""
    heirs = array("i", [NONE]) * len(found.above)
    for top in found.turns:
        above = found.above[top]
        if above >= 0:
            heirs[above] = top if heirs[above] == NONE else MANY
    return heirs


def _fold_before(found: InTurns, local: Set[int], folded: dict[int, int]) -> None:
    """Fold commands that only the program answered into the turn above, where what was asked after
    them was taken back and asked again: all of that stands where they stood."""
    for heir in found.turns if local else ():
        path: dict[int, None] = {}
        at = found.above[heir]
        while heir not in local and at in local and at not in path:
            path[at] = None
            at = found.above[at]
        if path and at >= 0 and at not in path:
            for each in (heir, *path):
                found.above[each] = at
            folded |= dict.fromkeys(path, at)


def _is_told(said: int, heir: int) -> bool:
    """Whether in a turn without a parent nothing was asked, and it leads to one other or to none:
    then only hooks left something."""
    return said == 1 << OTHER or (heir >= 0 and not said & ~_BESIDE)
