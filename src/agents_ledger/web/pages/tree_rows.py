"""The turn tree as rows and lanes. Pure: a tree in, rows out; templates draw them.

Lane 0 is always the path to the head that is looked at. At a fork the branches are drawn first,
each in the next lane to the right, then the path goes on: so the lanes left of a row all pass it,
and no line ever crosses another. A branch nobody points to is one row until it is opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from msgspec import structs

from agents_ledger.model.reports.trees import Node, Subagent, Tree

LANES_MAX = 8
BRANCHES_MAX = 12  # at one turn
UNFOLDED_MAX = 50  # at one turn, if everything is asked for

Kind = Literal["turn", "run", "branch", "subagent", "more", "above", "below"]
Mark = Literal["turn", "fork", "compaction", "failed", "live", "subagent", "run"]


class Row(NamedTuple):
    """One row: where its own lane is, how it is joined to the others, and what it shows."""

    kind: Kind
    lane: int
    joins: bool = False  # it leaves the lane at its left here
    above: bool = True  # its lane comes from above
    below: bool = False  # its lane goes on below
    node: Node | None = None
    subagent: Subagent | None = None
    forks: bool = False  # several turns hang on this one
    turns: int = 0  # a run or a branch of so many turns, or so many branches not drawn
    is_head: bool = False
    on_path: bool = False

    @property
    def mark(self) -> Mark:
        """What its shape says."""
        if self.kind == "subagent":
            return "subagent"
        if self.node is None or self.kind in ("run", "more", "above", "below"):
            return "run"
        turn = self.node.headline.turn
        if turn.turn_type == "compaction":
            return "compaction"
        if turn.status == "failed":
            return "failed"
        if turn.status in ("pending", "streaming"):
            return "live"
        return "fork" if self.forks else "turn"


class Lanes:
    """A tree made ready to be drawn."""

    def __init__(
        self,
        tree: Tree,
        *,
        head_id: str | None,
        path_id: str | None = None,  # where the path ends in this tree
        opened: Collection[str] = (),
        unfold: bool = False,
        rows_max: int = 2000,
    ) -> None:
        self._head_id = head_id
        self._opened = frozenset(opened)
        self._unfold = unfold
        self._rows_max = rows_max
        self._nodes = {_id(node): node for node in tree.nodes}
        self._top = tree.nodes[0]
        self._below: dict[str | None, list[Node]] = defaultdict(list)
        for node in tree.nodes:
            self._below[node.above_id].append(node)
        self._path = self._path_to(path_id or head_id)
        self._turns: dict[str, int] = {}
        self._rank: dict[str, tuple[int, int, int]] = {}
        self._pointed: set[str] = set()
        for node in reversed(tree.nodes):
            self._measure(node)

    def _path_to(self, head_id: str | None) -> set[str]:
        path = set()
        at = head_id
        while at is not None and at in self._nodes:
            path.add(at)
            at = self._nodes[at].above_id
        return path

    def _measure(self, node: Node) -> None:
        """Add up, from the leaves, what decides which branch is the straight one."""
        turn = node.headline.turn
        below = self._below[turn.id]
        self._turns[turn.id] = 1 + sum(self._turns[_id(child)] + child.folded for child in below)
        own = (int(turn.id in self._path), 0, 0)
        for head in node.heads:
            is_main = head.created_as not in ("fork", "subagent") and head.status == "active"
            own = max(own, (own[0], int(is_main), head.updated_at))
        self._rank[turn.id] = max([own, *(self._rank[_id(child)] for child in below)])
        alive = bool(node.heads) or turn.status in ("pending", "streaming")
        if alive or turn.id in self._path or any(_id(child) in self._pointed for child in below):
            self._pointed.add(turn.id)

    def rows(self) -> list[Row]:
        """The rows, top first; of too many the last ones, from a turn of the path on. If there are
        turns above them, the first row says how many."""
        rows = list(self._all())
        at = max(0, len(rows) - self._rows_max)
        while 0 < at < len(rows) and not (rows[at].kind == "turn" and rows[at].on_path):
            at += 1
        if at == len(rows):  # what hangs on one turn fills it all
            at = len(rows) - self._rows_max
        first = next(row.node for row in rows[at:] if row.node is not None)
        above = first.headline.turn.depth - 1
        if above <= 0:
            return rows
        return [Row("above", 0, above=False, below=True, turns=above, on_path=True), *rows[at:]]

    def _all(self) -> Iterator[Row]:
        # What is still to be drawn, next last.
        waiting: list[tuple[Node, int, bool] | Row] = [(self._top, 0, False)]
        while waiting:
            entry = waiting.pop()
            if isinstance(entry, Row):
                yield entry
                continue
            node, lane, joins = entry
            is_top = node is self._top
            if node.folded and not is_top:
                yield Row(
                    "run", lane, joins, not joins, True, node=node, turns=node.folded,
                    on_path=_id(node) in self._path,
                )  # fmt: skip
                joins = False
            branches = self._children(node)
            trunk = branches.pop() if branches else None
            yield self._row(node, lane, joins, above=not (is_top or joins), trunk=trunk)
            goes_on = trunk is not None
            for subagent in node.subagents:
                yield Row("subagent", lane, above=True, below=goes_on, node=node, subagent=subagent)
            if trunk is not None:
                waiting.append((trunk, lane, False))
                waiting += reversed(self._branches(branches, lane + 1))

    def _row(self, node: Node, lane: int, joins: bool, *, above: bool, trunk: Node | None) -> Row:
        turn_id = _id(node)
        return Row(
            "turn",
            lane,
            joins,
            above,
            trunk is not None,
            node=node,
            forks=len(self._below[turn_id]) > 1,
            is_head=turn_id == self._head_id,
            on_path=turn_id in self._path,
        )

    def _children(self, node: Node) -> list[Node]:
        """What hangs on a node, the straight one last."""
        below = list(self._below[_id(node)])
        if below:
            trunk = max(below, key=lambda child: self._rank[_id(child)])
            below.remove(trunk)
            below.append(trunk)
        return below

    def _branches(self, branches: list[Node], lane: int) -> list[tuple[Node, int, bool] | Row]:
        drawn: list[tuple[Node, int, bool] | Row] = []
        most = UNFOLDED_MAX if self._unfold else BRANCHES_MAX
        if len(branches) > most:
            hidden = len(branches) - most
            drawn.append(Row("more", lane, True, False, turns=hidden, node=branches[0]))
            branches = branches[hidden:]
        for branch in branches:
            turns = self._turns[_id(branch)] + branch.folded
            is_open = self._unfold or _id(branch) in self._pointed | self._opened
            if lane >= LANES_MAX or not is_open:
                drawn.append(Row("branch", lane, True, False, node=branch, turns=turns))
            else:
                drawn.append((branch, lane, True))
        return drawn


def without_short_runs(tree: Tree, keep: str | None = None) -> Tree:
    """The same tree, but nodes that only begin a folded run are folded with it.

    A run of many turns is then one row between two that say something.
    """
    count: dict[str | None, int] = defaultdict(int)
    for node in tree.nodes:
        count[node.above_id] += 1
    after = {node.above_id: node for node in tree.nodes}
    dropped: dict[str, Node] = {}
    for node in tree.nodes[1:]:
        turn = node.headline.turn
        plain = turn.status == "completed" and turn.turn_type == "normal" and count[turn.id] == 1
        if not plain or node.heads or node.subagents or turn.id == keep:
            continue
        if after[turn.id].folded:
            dropped[turn.id] = node
    kept = (_hung_higher(node, dropped) for node in tree.nodes if _id(node) not in dropped)
    return structs.replace(tree, nodes=tuple(kept))


def _hung_higher(node: Node, dropped: Mapping[str, Node]) -> Node:
    while node.above_id is not None and node.above_id in dropped:
        above = dropped[node.above_id]
        folded = node.folded + 1 + above.folded
        node = structs.replace(node, above_id=above.above_id, folded=folded)
    return node


def _id(node: Node) -> str:
    return node.headline.turn.id
