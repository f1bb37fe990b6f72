"""Claude Code: the turns of a family as a tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from agents_ledger.importers.claude_code_turns import ASKED, BESIDE, Kept
from agents_ledger.importers.outlines import answered_above, openers

LOCAL = BESIDE | {"command"}  # what a command leaves that the program itself answered


class Tree(NamedTuple):
    """The turns of an outline."""

    turn_of: dict[str, str]
    parents: dict[str, str | None]
    members: dict[str, list[str]]
    answered: set[str]

    @property
    def below(self) -> dict[str | None, list[str]]:
        """The children of each turn; of None, the roots."""
        found: dict[str | None, list[str]] = {}
        for turn, parent in self.parents.items():
            found.setdefault(parent, []).append(turn)
        return found

    def fold(self, kind: Callable[[str], str]) -> None:
        """Take away turns in which nobody was asked anything: a command that only the program
        itself answered belongs to the turn it was given after, what was told before the first
        prompt belongs to that."""
        below = self.below
        for turn in below.get(None, ()):
            heirs = below.get(turn, ())
            kinds = set(map(kind, self.members[turn]))
            if kinds == {"other"}:
                self._taken(turn, turn)
            elif len(heirs) == 1 and kinds <= BESIDE:
                self.parents[heirs[0]] = None
                self.members[heirs[0]][:0] = self._taken(turn, heirs[0])
        for turn, parent in list(self.parents.items()):
            if parent is not None and turn not in below:
                kinds = set(map(kind, self.members[turn]))
                if "printed" in kinds and kinds <= LOCAL:
                    self.members[parent] += self._taken(turn, parent)

    def _taken(self, turn: str, other: str) -> list[str]:
        """The records of a turn, which are another's now."""
        del self.parents[turn]
        moved = self.members.pop(turn)
        self.turn_of.update(dict.fromkeys(moved, other))
        return moved

    def head(self, uuid: str) -> str | None:
        """The nearest answered turn at or above a record: a pending prompt is never a head."""
        return answered_above(self.turn_of[uuid], self.parents, self.answered.__contains__)

    def kept(self, preserved: Mapping[str, str]) -> dict[str, Kept]:
        """Of what compactions left in the context, the turns that each left whole. The tree is gone
        through once, whatever they name: a path leads from its root to where one is."""
        firsts: dict[str, str] = {}
        for uuid, first in preserved.items():
            firsts.setdefault(self.turn_of[uuid], first)
        below = self.below if firsts else {}
        found: dict[str, Kept] = {}
        path: list[str] = []
        places: dict[str, int] = {}  # of the turns on the path
        waiting = [(root, 0) for root in below.get(None, ())]
        while waiting:
            turn, depth = waiting.pop()
            for left in path[depth:]:
                del places[left]
            del path[depth:]
            named = firsts.get(turn)
            at = places.get(self.turn_of.get(named or "", ""), depth)
            if named is not None and at < depth:
                at += named not in (path[at], self.members[path[at]][0])
                if 0 < at < depth:
                    found[turn] = Kept(path[at], path[at - 1])
            places[turn] = depth
            path.append(turn)
            waiting += [(child, depth + 1) for child in below.get(turn, ())]
        return found

    def half_way(
        self, above: Mapping[str, str | None], kind: Callable[[str], str]
    ) -> dict[str, str]:
        """The prompts that hang on a record from which the agent went on, and that record."""
        prompts = {
            top: up for top in self.parents if kind(top) in ASKED and (up := above[top]) is not None
        }
        asked_at = set(prompts.values())
        went_on = {
            up
            for uuid, up in above.items()
            if up in asked_at
            and kind(uuid) in ("assistant", "result")
            and self.turn_of[up] == self.turn_of[uuid]
        }
        return {top: up for top, up in prompts.items() if up in went_on}


def begin_below(parents: dict[str, str | None], unsaid: set[str]) -> None:
    """What hooks left before anything was said is no part of a thread, which begins below."""
    tops = openers(unsaid, lambda uuid: uuid not in unsaid, parents.__getitem__)
    before = {uuid for uuid in unsaid if tops[uuid] in unsaid}
    for uuid, above in parents.items():
        if above in before:
            parents[uuid] = None
