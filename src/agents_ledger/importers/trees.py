"""Trees of turns, as readers find them: in any order, with gaps, even with loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping


def parents_first(parents: dict[str, str | None]) -> Iterator[str]:
    """Every turn after its parent. One whose parent is missing, or that leads back to itself, is
    made a root."""
    done: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at not in done and at not in path:
            path[at] = None
            above = parents[at]
            if above is not None and above not in parents:
                parents[at] = above = None
            at = above
        if at is not None and at in path:
            parents[at] = None
            path = _from_root(path, at)
        for each in reversed(path):
            done.add(each)
            yield each


def _from_root(path: dict[str, None], root: str) -> dict[str, None]:
    """The path with its loop cut open at `root`, which comes last: it is the highest now."""
    before = list(path)
    at = before.index(root)
    loop = before[at + 1 :]  # the turns above the root, which now hang below it
    return dict.fromkeys([*before[:at], *loop, root]) if not loop else _cut(before, at)


def _cut(path: list[str], at: int) -> dict[str, None]:
    # path[at] names path[at + 1] as its parent, ..., and the last names path[at].
    return dict.fromkeys([*path[:at], *path[at + 1 :], path[at]])


def answered_above(
    turn: str | None, parents: Mapping[str, str | None], answered: Collection[str]
) -> str | None:
    """The nearest turn that was answered: a pending prompt is never a head."""
    while turn is not None and turn not in answered:
        turn = parents.get(turn)
    return turn
