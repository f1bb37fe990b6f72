"""What reading costs: threads against hand-written SELECTs, and questions about ancestry."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agents_ledger import Ledger
from agents_ledger.ledger.turns import threads
from agents_ledger.model.turns import Message, ToolCall, Turn
from agents_ledger.store.database import Transaction
from benchmarks import depth, workload
from benchmarks.measure import Clock, Goal, Line, Took, interleaved, slower, timed

LONG = 10_000
NESTED = 1_000
ROUNDS = 7
CLOCKS: tuple[Clock, ...] = ("cpu", "wall")


def long_thread(folder: Path) -> Path:
    """A ledger with one thread of 10,000 turns of full size, kept for other parts of this run."""
    path = folder / "long.db"
    if not path.exists():
        turns = workload.turns(100)
        with Ledger.open(str(path)) as ledger:
            workload.fill(ledger, [turns[n % 100].work("main") for n in range(LONG)])
    return path


# -- by hand ----------------------------------------------------------------------------------

_HEAD = """
    SELECT p.segment_id, p.depth FROM sessions s JOIN places p ON p.turn_id = s.thread_id
    WHERE s.label = ?
"""


def _select(fields: tuple[str, ...], table: str, key: str, and_: str = "") -> str:
    columns = ", ".join(f"x.{field}" for field in fields)
    return (
        f"SELECT {columns}{and_} FROM places p JOIN {table} x ON x.{key} = p.turn_id"
        " WHERE p.segment_id = ? AND p.depth BETWEEN ? AND ? ORDER BY p.depth"
    )


_PARTS = (
    _select(Turn.__struct_fields__[:-4], "turns", "id", ", p.depth"),
    _select(Message.__struct_fields__[:-3], "messages", "turn_id"),
    _select(ToolCall.__struct_fields__, "tool_calls", "turn_id"),
)


def by_hand(connection: sqlite3.Connection, first: int, last: int) -> list[list[tuple[Any, ...]]]:
    """The same columns of the same rows, as plain tuples: of turns, messages and tool calls."""
    connection.execute("BEGIN")
    segment, _ = connection.execute(_HEAD, ("main",)).fetchone()
    found = [connection.execute(sql, (segment, first, last)).fetchall() for sql in _PARTS]
    connection.execute("ROLLBACK")
    return found


def reading(folder: Path) -> Iterator[Line]:
    """20 turns of 10,000 that were not read before, the last 20 again and again, and all."""
    path = long_thread(folder)
    connection = workload.connect(path)
    with Ledger.open(str(path), read_only=True) as ledger:

        def ours(first: int, last: int) -> int:
            return len(ledger.thread("main", from_depth=first, to_depth=last).turns)

        def hand(first: int, last: int) -> int:
            return len(by_hand(connection, first, last)[0])

        new = [(at, at + 19) for at in range(1, LONG, 20)]
        stretches = {
            "20 of 10,000, new ones each time": [new[at::ROUNDS][:50] for at in range(ROUNDS)],
            "the last 20 of 10,000, again": [[(LONG - 19, LONG)] * 50] * ROUNDS,
            "all of 10,000": [[(1, LONG)]] * ROUNDS,
        }
        for name, rounds in stretches.items():
            found = interleaved(
                {"ours": _each(ours, rounds), "hand": _each(hand, rounds)}, rounds=ROUNDS
            )
            for clock in CLOCKS:
                yield slower(f"{name} / SELECTs", found["ours"], found["hand"], clock, None)
    connection.close()


def _each(
    read: Callable[[int, int], int], rounds: Sequence[Sequence[tuple[int, int]]]
) -> Callable[[], Took]:
    """Reads the stretches of one round after the other."""
    left = iter(rounds)

    def work(stretches: Sequence[tuple[int, int]]) -> None:
        for first, last in stretches:
            assert read(first, last) == last - first + 1

    def measure() -> Took:
        stretches = next(left)
        return timed(partial(work, stretches), len(stretches))

    return measure


# -- questions --------------------------------------------------------------------------------


class Family:
    """A thread of 1,000 turns with a turn beside each, either all on one segment or all nested."""

    def __init__(self, path: Path, *, nested: bool) -> None:
        self.ledger = Ledger.open(str(path))
        works: list[Callable[[Transaction], object]] = []
        session = "s0"
        for number, turn in enumerate(workload.small_turns(NESTED)):
            works.append(turn.work(session))
            if number:
                beside = f"s{number}"
                works += [partial(depth.leave, from_=session, to=beside), turn.work(beside)]
                session = beside if nested else session
        workload.fill(self.ledger, works)
        self.path = self.ledger.ancestry(session)
        path_ids = set(self.path)
        self.beside = [
            child.id
            for parent in self.path[:-1:100]
            for child in self.ledger.children(parent)
            if child.id not in path_ids
        ]
        self.above = self.path[::100]

    def is_ancestor(self) -> None:
        """Half of those asked for are."""
        head = self.path[-1]
        for turn_id in self.above:
            assert self.ledger.is_ancestor(turn_id, head)
        for turn_id in self.beside:
            assert not self.ledger.is_ancestor(turn_id, head)

    def statements_alone(self) -> None:
        """is_ancestor() without a transaction and a search for the turns each time."""
        head = self.path[-1]

        def ask(tx: Transaction) -> None:
            for turn_id in (*self.above, *self.beside):
                threads.on_thread(tx, turn_id, head)

        self.ledger._core.db.read(ask)

    def common_ancestor(self) -> None:
        head = self.path[-1]
        for expected, turn_id in zip(self.above, self.beside, strict=True):
            assert self.ledger.common_ancestor(turn_id, head) == expected


def questions(folder: Path) -> Iterator[Line]:
    """1,000 nested forks against none on the way."""
    nested = Family(folder / "nested.db", nested=True)
    linear = Family(folder / "linear.db", nested=False)
    for name, goal in (
        ("is_ancestor", Goal("<=", 10)),
        ("statements_alone", None),
        ("common_ancestor", Goal("<=", 10)),
    ):

        def several(family: Family, name: str = name) -> None:
            for _ in range(5):
                getattr(family, name)()

        count = 5 * (len(nested.beside) + (0 if name == "common_ancestor" else len(nested.above)))
        found = interleaved(
            {
                "nested": partial(timed, partial(several, nested), count),
                "linear": partial(timed, partial(several, linear), count),
            },
            rounds=9,
        )
        said = "is_ancestor, statements alone" if name == "statements_alone" else name
        yield slower(f"{said}, nested / linear", found["nested"], found["linear"], "cpu", goal)
    nested.ledger.close()
    linear.ledger.close()
