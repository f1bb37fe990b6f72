"""pi and OpenClaw: the turns of a family as a tree. A turn is known by its place among them, and
stands after its parent."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from agents_ledger.importers.sources.pi.nodes import (
    ASSISTANT,
    BRANCH,
    COMPACTION,
    COPY,
    PROMPT,
    USAGE,
    Nodes,
)
from agents_ledger.importers.transcript.turn_tree import NONE, Groups, in_turns, roots_first

OPENERS = (PROMPT, BRANCH, COMPACTION)
ASKING = (PROMPT, BRANCH)


class Tree:
    """The turns of some entries."""

    def __init__(self, nodes: Nodes, order: Sequence[int]) -> None:
        self.nodes = nodes
        for entry in order:
            if nodes.kinds[entry] == COMPACTION and nodes.parents[entry] < 0:
                nodes.kinds[entry] = BRANCH  # all that it summarised is lost: the session begins
        answers = array("i", (entry for entry in order if nodes.kinds[entry] == ASSISTANT))
        found = in_turns(order, nodes.parents, answers, opens=self._opens, joins=self._joins)
        self.tops = array("i", roots_first(found.turns, found.above))  # the entry that opens each
        places = array("i", [NONE]) * (len(nodes) + 1)  # the last: of none
        for turn, top in enumerate(self.tops):
            places[top] = turn
        self.parents = array("i", (places[found.above[top]] for top in self.tops))
        self.turn_of = found.turn_of  # of every entry, or NONE
        for entry, top in enumerate(found.turn_of):
            self.turn_of[entry] = places[top]
        self._rows = self._in_rows() if nodes.kept else array("i")
        self._follow_calls()
        self.members = Groups(self.turn_of, len(self.tops), order)
        self.followed, self.answered = bytearray(len(self.tops)), bytearray(len(self.tops))
        for answer in answers:
            self.answered[self.turn_of[answer]] = 1
        for turn, parent in enumerate(self.parents):
            if parent >= 0:
                self.followed[parent] = 1
                self.answered[turn] |= nodes.kinds[self.tops[turn]] == COMPACTION

    def __len__(self) -> int:
        return len(self.tops)

    def _opens(self, entry: int) -> bool:
        """A prompt opens a turn, a compaction does, and what goes on after a compaction."""
        kinds, above = self.nodes.kinds, self.nodes.parents[entry]
        goes_on = above >= 0 and kinds[above] == COMPACTION and kinds[entry] != USAGE
        return kinds[entry] in OPENERS or goes_on

    def _joins(self, opener: int, above: int, *, waits: bool) -> bool:
        """Prompts that follow each other without an answer are one query."""
        kinds = self.nodes.kinds
        return waits and kinds[opener] in ASKING and kinds[above] != COMPACTION

    def _follow_calls(self) -> None:
        """A result belongs to the turn of its call, even if another prompt came between."""
        kinds, tops = self.nodes.kinds, self.tops
        for entry, caller in enumerate(self.nodes.callers):
            if caller >= 0 and kinds[entry] != COPY and tops[self.turn_of[entry]] != entry:
                self.turn_of[entry] = self.turn_of[self.nodes.first(caller)]

    def _in_rows(self) -> array[int]:
        """For each turn the one since which all stand below the one before: what many compactions
        keep is found from row to row."""
        rows = array("i", range(len(self.tops)))
        for turn, parent in enumerate(self.parents):
            if 0 <= parent == turn - 1:
                rows[turn] = rows[parent]
        return rows

    def name(self, turn: int) -> str | None:
        """What a turn is called: as the entry that opens it."""
        return self.nodes.name(self.tops[turn]) if turn >= 0 else None

    def head(self, entry: int) -> str | None:
        """The nearest answered turn at or above an entry: a pending prompt is never a head."""
        turn = self.turn_of[self.nodes.first(entry)]
        while turn >= 0 and not self.answered[turn]:
            turn = self.parents[turn]
        return self.name(turn)

    def kept(self, turn: int) -> int:
        """The first turn that a compaction kept; NONE if it kept none that is above, or there is
        nothing before it to summarise."""
        first = self.nodes.kept.get(self.tops[turn], NONE)
        if first == NONE:
            return NONE
        kept, at = self.turn_of[self.nodes.first(first)], self.parents[turn]
        while at > kept and self._rows[at] > kept:
            at = self.parents[self._rows[at]]
        return kept if at >= kept and self.parents[kept] >= 0 else NONE
