"""The files that two branches wrote, as each branch left them, reconstructed from tool calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from agents_ledger.ledger.reports import compare
from agents_ledger.ledger.turns import threads
from agents_ledger.ledger.turns.threads import DEEPEST
from agents_ledger.model.errors import Refused
from agents_ledger.model.files.file_contents import FileContents, difference
from agents_ledger.model.files.file_tools import touched
from agents_ledger.model.reports.comparison import Replaced, Side, WrittenFile
from agents_ledger.store.database import Transaction

# Turns before the fork that are searched for a file's content.
LOOK_BACK = 400
LINES_MAX = 400  # of one diff
CHANGES_MAX = 20  # of one file and branch
CHANGE_MAX = 4000


class _FileCall(NamedTuple):
    turn_id: str
    tool_name: str
    status: str
    params_json: str
    id: str
    depth: int
    sequence: int


def compare_files(tx: Transaction, a: str, b: str, *, limit: int) -> tuple[WrittenFile, ...]:
    """The first `limit` files by path."""
    if limit < 1:
        raise Refused(f"limit is {limit}; it must be positive")
    heads = [compare.turn_of(tx, target) for target in (a, b)]
    shared = threads.shared(tx, *heads)
    depth = threads.place_of(tx, shared).depth
    branches = [_calls(tx, head, depth + 1) for head in heads]
    paths = sorted({path for calls in branches for path in _written(calls)})[:limit]
    before = FileContents()
    if shared is not None:
        _follow(tx, before, _calls(tx, shared, max(1, depth - LOOK_BACK + 1)), paths)
    sides = []
    for calls in branches:
        contents = FileContents(before.contents)
        _follow(tx, contents, calls, paths)
        sides.append(contents)
    return tuple(_file(path, *sides) for path in paths)


def _calls(tx: Transaction, head: str, from_depth: int) -> list[_FileCall]:
    """Calls that succeeded, oldest first."""
    within = {"turn_id": head, "from_depth": from_depth, "to_depth": DEEPEST}
    calls = [_FileCall(*row) for row in tx.run("range_calls", **within)]
    done = [call for call in calls if call.status == "completed"]
    return sorted(done, key=lambda call: (call.depth, call.sequence))


def _written(calls: Iterable[_FileCall]) -> Iterable[str]:
    for call in calls:
        for kind, path in touched(call.tool_name, call.params_json):
            if kind == "written":
                yield path


def _follow(
    tx: Transaction, contents: FileContents, calls: Iterable[_FileCall], paths: Collection[str]
) -> None:
    wanted = set(paths)
    for call in calls:
        files = [file for file in touched(call.tool_name, call.params_json) if file[1] in wanted]
        if any(kind == "written" for kind, _ in files):
            contents.wrote(call.tool_name, call.params_json)
        for kind, path in files:
            if kind == "read":
                rows = tx.run("call_result", turn_id=call.turn_id, id=call.id)
                contents.read(path, call.params_json, rows[0][0])


def _file(path: str, a: FileContents, b: FileContents) -> WrittenFile:
    names: tuple[tuple[Side, FileContents], ...] = (("a", a), ("b", b))
    by = tuple(name for name, side in names if path in side.changes)
    left, right = a.contents.get(path), b.contents.get(path)
    if left is not None and right is not None:
        return WrittenFile(path, by, difference(left, right, LINES_MAX))
    return WrittenFile(path, by, None, _replaced(path, a), _replaced(path, b))


def _replaced(path: str, side: FileContents) -> tuple[Replaced, ...]:
    changes = side.changes.get(path, [])[-CHANGES_MAX:]
    return tuple(Replaced(old[:CHANGE_MAX], new[:CHANGE_MAX]) for old, new in changes)
