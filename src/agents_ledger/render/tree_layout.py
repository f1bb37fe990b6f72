"""The layout of a turn tree: rows from top to bottom, each in a lane. Pages and terminal draw it.

Lane 0 is the path to the head that matters most. At a fork the branches come first, each one lane
further right, then the path continues: the lanes left of a row all pass it, and no line crosses
another. A branch that no session points to is a single row until it is opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from msgspec import structs

from agents_ledger.model.reports.trees import Node, Subagent, Tree
from agents_ledger.render.turn_status import turn_status

BRANCHES_MAX = 12  # drawn at one turn
LANES_MAX = 8

RowKind = Literal["turn", "run", "branch", "subagent", "more", "above", "below"]
Mark = Literal["turn", "fork", "compaction", "failed", "live", "subagent", "run"]
Rank = tuple[int, int, int]


class TreeRow(NamedTuple):
    """What a row shows, and how its lane is joined to the others."""

    kind: RowKind
    lane: int
    joins: bool = False  # leaves the lane to its left here
    above: bool = True  # its lane comes from above
    below: bool = False  # its lane continues below
    node: Node | None = None
    subagent: Subagent | None = None
    forks: bool = False  # several turns follow this one
    turns: int = 0  # length of a run or a branch; of "more", the branches that are not drawn
    is_head: bool = False
    on_path: bool = False

    @property
    def mark(self) -> Mark:
        if self.kind == "subagent":
            return "subagent"
        if self.node is None or self.kind in ("run", "more", "above", "below"):
            return "run"
        turn = self.node.headline.turn
        if turn.turn_type == "compaction":
            return "compaction"
        status = turn_status(turn)
        if status == "failed":
            return "failed"
        if status == "being written":
            return "live"
        return "fork" if self.forks else "turn"


class _Start(NamedTuple):
    node: Node
    lane: int
    joins: bool


class TreeLayout:
    """A tree as rows. The path to `path_id`, or else to `head_id`, stays in lane 0."""

    def __init__(
        self,
        tree: Tree,
        *,
        head_id: str | None,
        path_id: str | None = None,
        opened: Collection[str] = (),
        unfold: bool = False,
        lanes_max: int = LANES_MAX,
        branches_max: int | None = BRANCHES_MAX,
    ) -> None:
        self._head_id = head_id
        self._path_id = path_id or head_id
        self._opened = frozenset(opened)
        self._unfold = unfold
        self._lanes_max = lanes_max
        self._branches_max = branches_max
        self._nodes = {_id(node): node for node in tree.nodes}
        self._top = tree.nodes[0]
        self._children: dict[str | None, list[Node]] = defaultdict(list)
        for node in tree.nodes:
            self._children[node.above_id].append(node)
        self._path = self._path_nodes()
        self._turns: dict[str, int] = {}
        self._rank: dict[str, Rank] = {}
        self._pointed: set[str] = set()
        # Parents precede their children in a tree, so the reverse order measures children first.
        for node in reversed(tree.nodes):
            self._measure(node)

    def _path_nodes(self) -> set[str]:
        path = set()
        at = self._path_id
        while at is not None and at in self._nodes:
            path.add(at)
            at = self._nodes[at].above_id
        return path

    def _measure(self, node: Node) -> None:
        """Sum up, children first, what decides which branch is straight and which is folded."""
        turn = node.headline.turn
        children = self._children[turn.id]
        self._turns[turn.id] = 1 + sum(self._turns[_id(child)] + child.folded for child in children)
        on_path = int(turn.id in self._path)
        rank: Rank = (on_path, 0, 0)
        for head in node.heads:
            is_main = head.created_as not in ("fork", "subagent") and head.status == "active"
            rank = max(rank, (on_path, int(is_main), head.updated_at))
        self._rank[turn.id] = max([rank, *(self._rank[_id(child)] for child in children)])
        is_alive = bool(node.heads) or turn.status in ("pending", "streaming")
        if is_alive or on_path or any(_id(child) in self._pointed for child in children):
            self._pointed.add(turn.id)

    def rows(self) -> Iterator[TreeRow]:
        """Every row, top first."""
        # A stack rather than recursion: a branch may have thousands of forks in a row.
        stack: list[_Start | TreeRow] = [_Start(self._top, 0, False)]
        while stack:
            entry = stack.pop()
            if isinstance(entry, TreeRow):
                yield entry
                continue
            branches, trunk = self._split(entry.node)
            yield from self._node_rows(entry, trunk)
            if trunk is not None:
                stack.append(_Start(self._with_run(trunk), entry.lane, False))
                stack += reversed(self._branch_rows(branches, entry.lane + 1))

    def _split(self, node: Node) -> tuple[list[Node], Node | None]:
        """The branches that leave a node, and the child that continues its lane."""
        children = self._children[_id(node)]
        if not children:
            return [], None
        trunk = max(children, key=lambda child: self._rank[_id(child)])
        return [child for child in children if child is not trunk], trunk

    def _node_rows(self, start: _Start, trunk: Node | None) -> Iterator[TreeRow]:
        node, lane, joins = start
        turn_id = _id(node)
        is_top, on_path, continues = node is self._top, turn_id in self._path, trunk is not None
        if node.folded and not is_top:
            yield TreeRow(
                "run", lane, joins, not joins, True, node, turns=node.folded, on_path=on_path
            )
            joins = False
        yield TreeRow(
            "turn",
            lane,
            joins,
            above=not (is_top or joins),
            below=continues or bool(node.subagents),
            node=node,
            forks=len(self._children[turn_id]) > 1,
            is_head=turn_id == self._head_id,
            on_path=on_path,
        )
        for number, subagent in enumerate(node.subagents, 1):
            below = continues or number < len(node.subagents)
            yield TreeRow("subagent", lane, below=below, node=node, subagent=subagent)

    def _with_run(self, node: Node) -> Node:
        """The node itself; the end of a folded run if the node only begins one, so that a run is
        one row between two that say something."""
        while self._is_plain(node):
            [child] = self._children[_id(node)]
            if not child.folded:
                break
            node = structs.replace(child, folded=node.folded + 1 + child.folded)
        return node

    def _is_plain(self, node: Node) -> bool:
        turn = node.headline.turn
        is_usual = turn.status == "completed" and turn.turn_type == "normal"
        is_named = bool(node.heads or node.subagents) or turn.id == self._path_id
        return is_usual and not is_named and len(self._children[turn.id]) == 1

    def _branch_rows(self, branches: list[Node], lane: int) -> list[_Start | TreeRow]:
        rows: list[_Start | TreeRow] = []
        if self._branches_max is not None and len(branches) > self._branches_max:
            # The newest branches are the last ones.
            hidden = len(branches) - self._branches_max
            rows.append(TreeRow("more", lane, True, False, node=branches[0], turns=hidden))
            branches = branches[hidden:]
        for branch in branches:
            turn_id = _id(branch)
            is_open = self._unfold or turn_id in self._pointed or turn_id in self._opened
            if is_open and lane < self._lanes_max:
                rows.append(_Start(branch, lane, True))
            else:
                turns = self._turns[turn_id] + branch.folded
                rows.append(TreeRow("branch", lane, True, False, node=branch, turns=turns))
        return rows


def last_rows(rows: list[TreeRow], rows_max: int) -> list[TreeRow]:
    """The last rows, beginning with a turn of the path. If turns precede them, the first row
    counts these."""
    at = max(0, len(rows) - rows_max)
    while 0 < at < len(rows) and not (rows[at].kind == "turn" and rows[at].on_path):
        at += 1
    # The branches of one turn fill all of them.
    if at == len(rows):
        at = len(rows) - rows_max
    first = next(row.node for row in rows[at:] if row.node is not None)
    preceding = first.headline.turn.depth - 1
    if preceding <= 0:
        return rows
    above = TreeRow("above", 0, above=False, below=True, turns=preceding, on_path=True)
    return [above, *rows[at:]]


def _id(node: Node) -> str:
    return node.headline.turn.id
