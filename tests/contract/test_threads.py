"""Threads: every question about ancestry, on random trees, against a plain dictionary."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agents_ledger import Ledger, NameTaken, NotFound, Refused, StoreUnavailable, Usage
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.turns import threads
from agents_ledger.store.database import Database, Transaction
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.builders import chain, grow

KINDS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "total_tokens",
)


class Tree:
    """What a tree of turns should be: a dictionary of parents, and the usage of each turn."""

    def __init__(self) -> None:
        self.parents: dict[str, str | None] = {}
        self.usage: dict[str, Usage] = {}

    def thread(self, turn_id: str) -> list[str]:
        thread = [turn_id]
        while (parent := self.parents[thread[-1]]) is not None:
            thread.append(parent)
        return thread[::-1]

    def children(self, turn_id: str | None) -> list[str]:
        return [child for child, parent in self.parents.items() if parent == turn_id]

    def common(self, first: str, second: str) -> str | None:
        shared = [
            a for a, b in zip(self.thread(first), self.thread(second), strict=False) if a == b
        ]
        return shared[-1] if shared else None


def plant(ledger: Ledger, seed: int, size: int, branching: float) -> Tree:
    """A random forest: turns hang on heads, or with luck anywhere; some fail, some are live."""
    chance = random.Random(seed)
    tree = Tree()
    sealed: list[str] = []
    labels: list[str] = []
    for number in range(size):
        if not labels or chance.random() < branching:
            labels.append(f"tree {seed} branch {number}")
            if sealed and chance.random() > 0.05:
                ledger.fork(chance.choice(sealed), label=labels[-1])
            else:
                ledger.create_session(labels[-1])
        label = chance.choice(labels[-8:])
        parent = ledger.head(label)
        usage = Usage(*(chance.choice([None, chance.randrange(9)]) for _ in KINDS))
        if chance.random() < 0.1:
            with ledger.turn(label, f"q{number}") as live:
                live.respond("r", usage=usage) if chance.random() < 0.5 else live.fail(
                    "no", usage=usage
                )
            turn_id = live.id
        else:
            failed = chance.random() < 0.1
            turn_id = ledger.record(
                label,
                f"q{number}",
                usage=usage,
                status="failed" if failed else "completed",
                error="no" if failed else None,
            ).id
        sealed.append(turn_id)
        tree.parents[turn_id] = parent
        tree.usage[turn_id] = usage
    return tree


class Planted(NamedTuple):
    """A tree as it should be, and as it is in a ledger. The tests only read it."""

    tree: Tree
    ledger: Ledger


@pytest.fixture(
    scope="module",
    params=[(1, 70, 0.05), (2, 70, 0.3), (3, 70, 0.9)],
    ids=["long", "mixed", "bushy"],
)
def planted(request: pytest.FixtureRequest, shared_address: str) -> Iterator[Planted]:
    """Trees of three shapes, beside each other in one ledger."""
    with Ledger.open(shared_address) as ledger:
        yield Planted(plant(ledger, *request.param), ledger)
        assert ledger.audit() == ()


def expected_total(tree: Tree, turn_id: str, kind: str) -> int:
    usages = (tree.usage[each] for each in tree.thread(turn_id))
    if kind == "total_tokens":
        return sum(usage.total or 0 for usage in usages)
    return sum(getattr(usage, kind) or 0 for usage in usages)


def test_a_random_tree_answers_like_a_dictionary(planted: Planted) -> None:
    tree, ledger = planted
    everyone = list(tree.parents)
    chance = random.Random(4)

    def ask(tx: Transaction) -> None:
        for turn_id in everyone:
            thread = tree.thread(turn_id)
            assert threads.ancestry(tx, turn_id) == tuple(thread)
            depth = chance.randrange(1, len(thread) + 1)
            assert threads.ancestor_at(tx, turn_id, depth) == thread[depth - 1]
            assert threads.ancestor_at(tx, turn_id, len(thread) + 1) is None
            children = sorted(tree.children(turn_id))
            assert [turn.id for turn in threads.children(tx, turn_id)] == children
        for _ in range(200):
            first, second = chance.choices(everyone, k=2)
            on_thread = first in tree.thread(second)
            assert threads.is_ancestor(tx, first, second) == on_thread
            assert threads.common_ancestor(tx, first, second) == tree.common(first, second)

    ledger._read(ask)


def test_a_thread_sums_up_every_kind_of_tokens(planted: Planted) -> None:
    tree, ledger = planted
    for turn_id in random.Random(5).sample(list(tree.parents), 25):
        thread = ledger.thread(turn_id, last=0)

        assert thread.depth == len(tree.thread(turn_id))
        assert {kind: getattr(thread, kind) for kind in KINDS} == {
            kind: expected_total(tree, turn_id, kind) for kind in KINDS
        }


def test_any_range_of_a_thread_can_be_read(planted: Planted) -> None:
    tree, ledger = planted
    deepest = max(tree.parents, key=lambda turn_id: len(tree.thread(turn_id)))
    thread = tree.thread(deepest)
    depth = len(thread)

    def ids(**part: Any) -> list[str]:
        return [turn.id for turn in ledger.thread(deepest, **part).turns]

    assert ids() == thread
    for last in (0, 1, 2, depth, depth + 5):
        assert ids(last=last) == (thread[-last:] if last else [])
    chance = random.Random(6)
    for _ in range(10):
        start, end = sorted(chance.choices(range(1, depth + 1), k=2))
        assert ids(from_depth=start, to_depth=end) == thread[start - 1 : end]
    assert ids(from_depth=depth + 1) == []
    assert ids(to_depth=0) == []
    assert [turn.depth for turn in ledger.thread(deepest).turns] == list(range(1, depth + 1))


def test_a_subtree_is_a_turn_and_all_below_it_shallow_first(planted: Planted) -> None:
    tree, ledger = planted
    for turn_id in random.Random(7).sample(list(tree.parents), 12):
        below = [each for each in tree.parents if turn_id in tree.thread(each)]

        found = ledger.subtree(turn_id)

        wanted = sorted(below, key=lambda each: (len(tree.thread(each)), each))
        assert [turn.id for turn in found] == wanted
        assert [turn.id for turn in ledger.subtree(turn_id, limit=2)] == wanted[:2]


def test_siblings_and_roots_are_found(planted: Planted) -> None:
    tree, ledger = planted
    roots = sorted(tree.children(None))

    assert [turn.id for turn in ledger.roots() if turn.id in tree.parents] == roots
    assert ledger.siblings(roots[0]) == ()
    for turn_id in random.Random(8).sample([t for t in tree.parents if tree.parents[t]], 15):
        siblings = sorted(set(tree.children(tree.parents[turn_id])) - {turn_id})
        assert [turn.id for turn in ledger.siblings(turn_id)] == siblings


def test_the_view_of_threads_tells_the_ancestry_too(planted: Planted) -> None:
    tree, ledger = planted
    _, rows = ledger.query("SELECT turn_id, ancestry, depth, total_tokens FROM threads")

    rows = [row for row in rows if row[0] in tree.parents]
    assert len(rows) == len(tree.parents)
    for turn_id, ancestry, depth, total in rows:
        thread = tree.thread(turn_id)
        assert ancestry.replace(" ", "") == "[" + ",".join(f'"{each}"' for each in thread) + "]"
        assert (depth, total) == (len(thread), expected_total(tree, turn_id, "total_tokens"))


def test_nested_forks_are_climbed_in_jumps(ledger: Ledger, db: Database) -> None:
    spine = [ledger.record("0", "q", "r").id]
    for level in range(1, 66):
        ledger.record(str(level - 1), "taken", "so that the next opens a segment")
        ledger.fork(spine[-1], label=str(level))
        spine.append(ledger.record(str(level), "q", "r").id)

    def ask(tx: Transaction) -> None:
        for depth in range(1, len(spine) + 1):
            assert threads.ancestor_at(tx, spine[-1], depth) == spine[depth - 1]
            assert threads.is_ancestor(tx, spine[depth - 1], spine[-1])
            taken = f"{depth - 1}"
            if depth < len(spine):
                assert threads.common_ancestor(tx, taken, spine[-1]) == spine[depth - 1]
                assert not threads.is_ancestor(tx, taken, spine[-1])

    db.read(ask)


def test_a_turn_stands_on_its_own_thread(ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)

    assert ledger.is_ancestor(second, second)
    assert ledger.is_ancestor(first, "main")
    assert not ledger.is_ancestor("main", first)
    assert ledger.common_ancestor(second, "main") == second


def test_trees_without_a_common_root_share_nothing(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2, 3-4")

    assert ledger.common_ancestor(ids["2"], ids["4"]) is None
    assert not ledger.is_ancestor(ids["1"], ids["4"])


def test_an_empty_session_has_no_ancestry(ledger: Ledger) -> None:
    ledger.create_session("main")
    [turn_id] = chain(ledger, "other", 1)

    assert ledger.ancestry("main") == ()
    assert ledger.ancestor_at("main", 1) is None
    assert ledger.children("main") == ()
    assert ledger.subtree("main") == ()
    assert ledger.compactions("main") == ()
    assert ledger.system_prompt("main") is None
    assert ledger.common_ancestor("main", turn_id) is None
    assert not ledger.is_ancestor("main", turn_id)


def test_a_thread_knows_the_latest_model_and_provider_said_on_it(ledger: Ledger) -> None:
    ledger.record("main", "q", "r", model="a", provider="x")
    ledger.record("main", "q", "r")
    ledger.record("main", "q", "r", model="b")
    ledger.record("main", "q", "r", model="")

    said = [
        (thread.model, thread.provider)
        for thread in (ledger.thread(turn.id) for turn in ledger.thread("main").turns)
    ]
    assert said[:3] == [("a", "x"), ("a", "x"), ("b", "x")]


def test_a_thread_is_found_by_its_key(ledger: Ledger) -> None:
    turn = ledger.record("main", "q", "r", thread_key="chat:1")
    ledger.record("main", "q", "r")

    _, rows = ledger.query("SELECT turn_id FROM threads WHERE thread_key = 'chat:1'")
    assert rows == [(turn.id,)]
    assert ledger.thread("main").thread_key is None
    with pytest.raises(NameTaken, match="chat:1"):
        ledger.record("main", "q", "r", thread_key="chat:1")


def test_what_is_not_there_is_not_found(ledger: Ledger) -> None:
    for ask in (
        ledger.thread,
        ledger.ancestry,
        ledger.children,
        ledger.siblings,
        ledger.subtree,
        ledger.compactions,
        ledger.system_prompt,
        lambda target: ledger.ancestor_at(target, 1),
        lambda target: ledger.common_ancestor(target, target),
    ):
        with pytest.raises(NotFound, match="no session or turn 'nothing'"):
            ask("nothing")


def test_a_negative_number_of_turns_is_refused(ledger: Ledger) -> None:
    chain(ledger, "main", 1)

    with pytest.raises(Refused, match="must not be negative"):
        ledger.thread("main", last=-1)


def test_a_read_that_fails_at_its_start_fails_alone(tmp_path: Path) -> None:
    class Failing(sqlite3.Cursor):
        fails = False

        def execute(self, sql: str, values: Any = (), /) -> Failing:
            if Failing.fails and sql == "PRAGMA user_version":
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, values)

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Failing:  # type: ignore[override]
            return Failing(self)

    connect = partial(sqlite3.connect, factory=Connection)
    with Ledger(Core(SqliteDatabase(str(tmp_path / "ledger.db"), connect=connect))) as ledger:
        ledger.record("main", "q", "r")
        ledger.thread("main")
        Failing.fails = True
        with pytest.raises(StoreUnavailable):
            ledger.thread("main")
        Failing.fails = False

        assert ledger.thread("main").depth == 1
