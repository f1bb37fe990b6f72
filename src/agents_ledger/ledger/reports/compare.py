"""Compares two threads: where they diverge, and what each did since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from agents_ledger.ledger.reports import trees, usage
from agents_ledger.ledger.turns import threads
from agents_ledger.ledger.turns.threads import DEEPEST
from agents_ledger.model.errors import Refused
from agents_ledger.model.files.file_tools import touched
from agents_ledger.model.reports.comparison import Branch, Comparison, ToolCount, TouchedFile
from agents_ledger.model.turns import UNSUCCESSFUL_CALL, FileKind
from agents_ledger.store.database import Transaction

ANSWER_MAX = 2000


def compare(tx: Transaction, a: str, b: str, *, limit: int) -> Comparison:
    if limit < 0:
        raise Refused(f"limit is {limit}; it must not be negative")
    first, second = turn_of(tx, a), turn_of(tx, b)
    shared = threads.shared(tx, first, second)
    from_depth = threads.place_of(tx, shared).depth + 1
    left, right = (_branch(tx, head, from_depth, limit) for head in (first, second))
    both = {file.file_path for file in left.files} & {file.file_path for file in right.files}
    ancestor = trees.headlines(tx, [shared])[0] if shared else None
    return Comparison(ancestor, left, right, tuple(sorted(both)))


def turn_of(tx: Transaction, target: str) -> str:
    """The turn of a target. Refused if the session is empty."""
    turn_id = threads.resolve(tx, target)
    if turn_id is None:
        raise Refused(f"session {target!r} is empty", "Record a turn on it first.")
    return turn_id


def _branch(tx: Transaction, head: str, from_depth: int, limit: int) -> Branch:
    depth = threads.place_of(tx, head).depth
    listed = max(from_depth, depth - limit + 1)
    rows = tx.run("ancestry", turn_id=head, from_depth=listed, to_depth=DEEPEST)
    within = {"turn_id": head, "from_depth": from_depth, "to_depth": DEEPEST}
    spent = usage.of_range(tx, head, from_depth)
    calls = tx.run("range_calls", **within)
    named = {tuple(row) for row in tx.run("range_files", **within)}
    named |= {
        (turn_id, kind, path)
        for turn_id, tool, status, params, *_ in calls
        if status not in UNSUCCESSFUL_CALL
        for kind, path in touched(tool, params)
    }
    answers = (
        tx.run("turn_answer", turn_id=head, text_max=ANSWER_MAX) if depth >= from_depth else []
    )
    return Branch(
        head,
        max(0, depth - from_depth + 1),
        trees.headlines(tx, [turn_id for _, turn_id in sorted(rows)]),
        spent.spent,
        spent.models,
        count_tools((tool, status) for _, tool, status, *_ in calls),
        count_files(named),
        answers[0][0] if answers else None,
    )


def count_tools(calls: Iterable[tuple[str, str]]) -> tuple[ToolCount, ...]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for tool_name, status in calls:
        counts[tool_name][0] += 1
        counts[tool_name][1] += status == "failed"
    tools = [ToolCount(name, used, failed) for name, (used, failed) in counts.items()]
    return tuple(sorted(tools, key=lambda tool: (-tool.calls, tool.tool_name)))


def count_files(named: Iterable[tuple[str, FileKind, str]]) -> tuple[TouchedFile, ...]:
    turns: dict[str, set[str]] = defaultdict(set)
    kinds: dict[str, set[FileKind]] = defaultdict(set)
    for turn_id, kind, path in named:
        turns[path].add(turn_id)
        kinds[path].add(kind)
    return tuple(
        TouchedFile(path, tuple(sorted(kinds[path])), len(turns[path])) for path in sorted(turns)
    )
