"""tree: the turns as a tree."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from agents_ledger.cli.command import (
    Invocation,
    command,
    complete_target,
    limit_option,
    since_option,
    until_option,
)
from agents_ledger.cli.explore.turn_printer import MARKS, status_word
from agents_ledger.cli.terminal import Output, Span, fit, note, width_of
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.reports.trees import Node, Subagent, Tree
from agents_ledger.model.text import humanize
from agents_ledger.render.summaries import compacted
from agents_ledger.render.tree_layout import BRANCHES_MAX, TreeLayout, TreeRow

TREES = 10
NODES_MAX = 2000
UNFOLDED_MAX = 100_000
# The figures should not be too far from their text.
WIDTH_MAX = 120
FIGURES = 17  # cells at the right, for tools and tokens
REMARK_MAX = 40
TEXT_MIN = 16
LABEL_MIN, LABEL_MAX = 8, 40
LANES_MIN = 8
LANE_WIDTH = 2  # cells
# Cells that must be left for the hint how to see a branch too far to the right.
HINT_ROOM = 64


@command
@click.argument("target", required=False, shell_complete=complete_target)
@click.option("--all", "unfold", is_flag=True, help="Show every turn and branch, unfolded.")
@click.option("--below", is_flag=True, help="Show only TARGET and its descendants.")
@since_option("Trees begun")
@until_option("Trees begun")
@limit_option(TREES, "trees")
def tree(
    run: Invocation,
    *,
    target: str | None,
    unfold: bool,
    below: bool,
    since: int | None,
    until: int | None,
    limit: int,
) -> None:
    """Draw the tree that contains TARGET, or all trees, newest first."""
    if below and target is None:
        raise click.UsageError("--below requires a TARGET")
    if target is not None and (since, until) != (None, None):
        raise click.UsageError("--since and --until do not apply to a TARGET")
    with run.reading() as ledger:
        draw = Draw(ledger, run, unfold=unfold)
        if target is not None:
            draw.one(ledger.lookup(target), below=below)
        else:
            draw.newest(limit, since=since, until=until)


class Draw:
    """Trees of one ledger on their way to the output."""

    def __init__(self, ledger: Ledger, run: Invocation, *, unfold: bool = False) -> None:
        self._ledger = ledger
        self._run = run
        self._unfold = unfold
        self._now = now_ms()

    def one(self, target: str, *, below: bool) -> None:
        """Draw the tree that contains a target, with the path to it as the leftmost line."""
        turn_id = self._ledger.thread(target, last=0).turn_id or self._failed(target)
        top = turn_id if below else self._ledger.ancestor_at(turn_id, 1)
        tree = self._tree(top or turn_id)
        if self._run.as_json:
            self._run.out.json(trees=[tree])
            return
        self._draw(tree, turn_id)

    def _failed(self, label: str) -> str:
        """The latest turn of a session whose turns have all failed."""
        failed = self._ledger.failed_turns(label)
        if not failed:
            raise Refused(f"session {label!r} is empty", "Record a turn on it first.")
        return failed[0].id

    def newest(self, limit: int, *, since: int | None = None, until: int | None = None) -> None:
        """Draw all trees, newest first."""
        roots = self._ledger.latest_roots(
            since=since, until=until, limit=limit + 1, subagents=self._unfold
        )
        if self._run.as_json:
            trees = [self._tree(root) for root in roots[:limit]]
            self._run.out.json(trees=trees, more=len(roots) > limit)
            return
        if not roots:
            start = "No turns. Import history or record a demonstration with `agents-ledger up`."
            note(as_typed(start) if since is until is None else "No tree matches.")
        for index, root in enumerate(roots[:limit]):
            if index:
                self._run.out.line()
            self._draw(self._tree(root), None)
        if len(roots) > limit:
            words = ["agents-ledger", "tree", "--limit", str(2 * limit)]
            for option, at in (("--since", since), ("--until", until)):
                words += [option, humanize.iso(at)] if at is not None else []
            words += ["--all"] if self._unfold else []
            more = f"There are more trees: `{shlex.join(words)}`."
            note((as_typed(more), "dim"))

    def _tree(self, top: str) -> Tree:
        limit = UNFOLDED_MAX if self._unfold else NODES_MAX
        return self._ledger.tree(top, fold=not self._unfold, limit=limit)

    def _draw(self, tree: Tree, target_id: str | None) -> None:
        out = self._run.out
        heads = [head for node in tree.nodes for head in node.heads]
        begun_at = tree.nodes[0].headline.turn.started_at
        facts = [
            humanize.count(tree.turn_count, "turn"),
            humanize.count(len(heads), "session"),
            f"begun {humanize.age(begun_at, self._now)}" if begun_at else "undated",
        ]
        out.line((" · ".join(facts), "dim"))
        lanes_max = max(LANES_MIN, out.width - HINT_ROOM) // LANE_WIDTH + 1
        layout = TreeLayout(
            tree,
            head_id=target_id,
            unfold=self._unfold,
            lanes_max=lanes_max,
            branches_max=None if self._unfold else BRANCHES_MAX,
        )
        for row in layout.rows():
            out.line((_lanes(row), "dim"), *_row(out, row, lanes_max))
        if tree.left_out:
            note((f"The oldest {tree.left_out:,} turns are folded too.", "dim"))


def _lanes(row: TreeRow) -> str:
    if row.kind == "subagent":
        return "│ " * row.lane + ("├┄" if row.below else "╰┄")
    return "│ " * (row.lane - 1) + "├─" if row.joins else "│ " * row.lane


def _row(out: Output, row: TreeRow, lanes_max: int) -> list[Span]:
    if row.node is None:
        return []
    if row.subagent is not None:
        return _subagent(out, row, row.subagent)
    if row.kind == "run":
        return [("┆ ", "dim"), (humanize.count(row.turns, "turn"), "dim")]
    if row.kind == "more":
        branches = humanize.count(row.turns, "older branch", "older branches")
        return [(f"… {branches} (--all)", "dim")]
    if row.kind == "branch" and row.lane >= lanes_max:
        drawn_by = shlex.join(["agents-ledger", "tree", row.node.headline.short_id, "--below"])
        return [(f"… {humanize.count(row.turns, 'turn')}: {drawn_by}", "dim")]
    return _node(out, row, row.node)


def _node(out: Output, row: TreeRow, node: Node) -> list[Span]:
    turn = node.headline.turn
    mark, style = MARKS[turn.status]
    if turn.compaction is not None:
        mark, style = "▬", "seam"
    elif row.forks and turn.status == "completed":
        mark = "◆"
    figures = _figures(turn.tool_call_count, turn.total_tokens)
    left: list[Span] = [(mark, style), " ", (node.headline.short_id, "id"), " "]
    room = min(out.width, WIDTH_MAX) - width_of(_lanes(row)) - _width(left) - len(figures)
    names = _names(node, room - TEXT_MIN)
    room -= _width(names)
    if room < TEXT_MIN:  # the text says more than the figures
        room, figures = room + len(figures), ""
    remark, remark_style = _remark(node, row)
    remark = fit(remark, min(REMARK_MAX, room // 2))
    room -= width_of(remark) + (2 if remark else 0)
    words = compacted(turn) if turn.compaction else node.headline.text
    text = fit(words or "no message", room)
    gap = " " * (room - width_of(text))
    here = "title" if row.is_head else "seam" if turn.compaction else "" if words else "dim"
    middle: list[Span] = [(text, here), "  ", (remark, remark_style)] if remark else [(text, here)]
    return [*left, *names, *middle, gap, (figures, "dim")]


def _names(node: Node, room: int) -> list[Span]:
    """The sessions at a turn, shortened to the room they have together."""
    spans: list[Span] = []
    for head in node.heads:
        status = "" if head.status == "active" else f" ({head.status})"
        name = fit(head.label, _label_width(room // len(node.heads) - len(status) - 3)) + status
        spans += [(f"[{name}]", "label"), " "]
    return spans


def _label_width(room: int) -> int:
    return max(LABEL_MIN, min(LABEL_MAX, room))


def _width(spans: Sequence[Span]) -> int:
    return sum(width_of(span if isinstance(span, str) else span[0]) for span in spans)


def _remark(node: Node, row: TreeRow) -> tuple[str, str]:
    """A remark after the text, and its style: a failure, a live turn, a branch without session."""
    turn = node.headline.turn
    if turn.status == "failed":
        return f"failed: {turn.error}", "bad"
    if turn.status != "completed":
        return status_word(turn), "live"
    if row.kind == "branch":
        return f"{humanize.count(row.turns, 'turn')}, no session", "dim"
    return "", ""


def _figures(tools: int, tokens: int | None) -> str:
    if not tools and tokens is None:
        return ""
    used = humanize.count(tools, "tool") if tools else ""
    return f"{used:>{FIGURES - 7}} {humanize.tokens(tokens):>6}"


def _subagent(out: Output, row: TreeRow, subagent: Subagent) -> list[Span]:
    session = subagent.session
    status = f", {session.task_status}" if session.task_status else ""
    facts = f"subagent{status} · {humanize.count(subagent.depth, 'turn')}"
    if subagent.total_tokens:
        facts += f" · {humanize.tokens(subagent.total_tokens)} tokens"
    room = out.width - width_of(_lanes(row)) - len(facts) - 4
    label = fit(session.label, _label_width(room))
    room -= width_of(label) + 4
    task = f"  {fit(session.task_description, room)}" if session.task_description else ""
    return ["◻ ", (label, "label"), "  ", (facts, "dim"), task]
