"""The lines of a drawn tree: what stands where. Pure; printing is left to others.

The path to the head that matters most is a straight line at the left. Branches leave it to the
right and are drawn before it goes on. A branch that no session points to is one line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from agents_ledger.model.reports.trees import Node, Subagent, Tree

BRANCHES_MAX = 12  # at one turn, unless everything is asked for


class Row(NamedTuple):
    """One line: the lanes at its left, and the one thing it shows."""

    lanes: str
    node: Node | None = None
    subagent: Subagent | None = None
    forks: bool = False  # several turns hang on this one
    folded: int = 0  # instead of a node: so many turns in a row
    branch_turns: int = 0  # the turns of a whole branch that is shown by its first
    hidden: int = 0  # instead of a node: so many branches or turns are not drawn
    below_id: str = ""  # where to go on reading them


class Layout:
    """A tree made ready to be drawn."""

    def __init__(self, tree: Tree, *, target_id: str | None, unfold: bool, lanes_max: int) -> None:
        self._tree = tree
        self._target_id = target_id
        self._unfold = unfold
        self._lanes_max = lanes_max
        self._below: dict[str | None, list[Node]] = defaultdict(list)
        self._rank: dict[str, tuple[int, ...]] = {}
        self._turns: dict[str, int] = {}
        self._pointed: set[str] = set()
        for node in tree.nodes:
            self._below[node.above_id].append(node)
        for node in reversed(tree.nodes):
            self._measure(node)

    def _measure(self, node: Node) -> None:
        """Add up, from the leaves, what decides how a branch is drawn."""
        turn = node.headline.turn
        below = self._below[turn.id]
        self._turns[turn.id] = 1 + sum(self._turns[_id(child)] + child.folded for child in below)
        own = (0, 0, 0)
        for head in node.heads:
            main = int(head.created_as not in ("fork", "subagent") and head.status == "active")
            own = max(own, (0, main, head.updated_at))
        if turn.id == self._target_id:
            own = (1, *own[1:])
        self._rank[turn.id] = max([own, *(self._rank[_id(child)] for child in below)])
        alive = turn.status in ("pending", "streaming") or bool(node.heads)
        if alive or any(_id(child) in self._pointed for child in below) or own[0]:
            self._pointed.add(turn.id)

    def rows(self) -> Iterator[Row]:
        """Every line, top first."""
        # What is still to be drawn, next last: a node, its first lanes, and those after.
        waiting: list[tuple[Node, str, str] | Row] = [(self._tree.nodes[0], "", "")]
        while waiting:
            entry = waiting.pop()
            if isinstance(entry, Row):
                yield entry
                continue
            node, first, lanes = entry
            if node.folded:
                yield Row(first, folded=node.folded)
                first = lanes
            *branches, trunk = self._children(node) or [None]
            yield Row(first, node, forks=bool(branches))
            goes_on = trunk is not None
            for at, subagent in enumerate(node.subagents, 1):
                last = at == len(node.subagents) and not goes_on
                yield Row(lanes + ("╰┄" if last else "├┄"), subagent=subagent)
            if trunk is not None:
                waiting.append((self._next_on_line(trunk), lanes, lanes))
                waiting += reversed(self._branches([b for b in branches if b], lanes))

    def _next_on_line(self, node: Node) -> Node:
        """The next node worth a line of its own: one that only begins a folded run is not."""
        below = self._below[_id(node)]
        turn = node.headline.turn
        plain = turn.status == "completed" and turn.turn_type == "normal" and len(below) == 1
        if not plain or node.heads or node.subagents or turn.id == self._target_id:
            return node
        [after] = below
        if not after.folded:
            return node
        return structs.replace(after, folded=node.folded + 1 + after.folded)

    def _children(self, node: Node) -> list[Node | None]:
        """What hangs on a node, the straight line last."""
        below: list[Node | None] = list(self._below[_id(node)])
        if below:
            trunk = max(below, key=lambda child: self._rank[_id(child)] if child else ())
            below.remove(trunk)
            below.append(trunk)
        return below

    def _branches(self, branches: Sequence[Node], lanes: str) -> list[tuple[Node, str, str] | Row]:
        drawn: list[tuple[Node, str, str] | Row] = []
        if len(branches) > BRANCHES_MAX and not self._unfold:
            hidden = len(branches) - BRANCHES_MAX
            drawn.append(Row(lanes + "├─", hidden=hidden))
            branches = branches[hidden:]
        for branch in branches:
            first, after = lanes + "├─", lanes + "│ "
            count = self._turns[_id(branch)] + branch.folded
            if len(after) > self._lanes_max:
                drawn.append(Row(first, hidden=count, below_id=branch.headline.short_id))
            elif _id(branch) not in self._pointed and not self._unfold:
                drawn.append(Row(first, branch, branch_turns=count))
            else:
                drawn.append((branch, first, after))
        return drawn


def _id(node: Node) -> str:
    return node.headline.turn.id
