"""Turns that waited together are written together, and are what they would be alone."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agents_ledger import AsyncLedger, Config, HeadMoved, Ledger, Refused, ToolCall
from agents_ledger.ledger.core import Core
from agents_ledger.store.database import Database
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.builders import a_full_turn, chain
from tests.contract.test_group_commit import queued
from tests.engines import on_sqlite

SAID: list[dict[str, Any]] = [
    {"query": "q", "response": "r"},
    {"query": ["one", "two"], "response": "r", "model": "m", "provider": "p"},
    {"query": "q\x00 \ud800 \x1a", "response": "answer 日本"},
    {"query": "q", "steps": [ToolCall("Read", '{"a":1}', '"b"')]},
    # These are left to be written by themselves:
    a_full_turn(),
    {"query": "q", "status": "failed", "error": "broke"},
    {"query": "q", "response": "r", "config": Config({"model": "m"})},
    {"query": "q", "response": "r", "system_prompt": "be kind"},
]
OWN = {
    *("id", "turn_id", "parent_turn_id", "message_id", "query_message_ids", "response_message_id"),
    *("started_at", "completed_at", "created_at"),
}


def plain(value: Any) -> Any:
    """Without what differs between any two turns."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if hasattr(value, "__struct_fields__"):
        return {k: plain(v) for k, v in structs.asdict(value).items() if k not in OWN}
    return value


def test_a_turn_recorded_together_is_as_one_recorded_alone(ledger: Ledger, db: Database) -> None:
    for number in range(len(SAID)):
        chain(ledger, f"alone-{number}", 2)
        chain(ledger, f"joint-{number}", 2)
    alone = [ledger.record(f"alone-{number}", **said) for number, said in enumerate(SAID)]
    writes = [
        lambda number=number, said=said: ledger.record(f"joint-{number}", **said)
        for number, said in enumerate(SAID)
    ]

    with queued(db, *writes) as writers:
        pass

    assert [writer.error for writer in writers] == [None] * len(SAID)
    for number, (one, writer) in enumerate(zip(alone, writers, strict=True)):
        joint = writer.result
        stored = ledger.get_turn(joint.id)
        assert plain(joint) == plain(one)
        assert plain(stored) == plain(ledger.get_turn(one.id))
        assert plain(ledger.thread(f"joint-{number}", last=0)) == plain(
            ledger.thread(f"alone-{number}", last=0)
        )
        moves = ledger.history(f"joint-{number}"), ledger.history(f"alone-{number}")
        assert [move.reason for move in moves[0]] == [move.reason for move in moves[1]]
    assert len(ledger.search("answer 日本").hits) == 2


def test_sessions_that_share_a_head_fork_and_others_go_on(ledger: Ledger, db: Database) -> None:
    *_, head = chain(ledger, "main", 3)
    ledger.fork("main", label="fork")
    ledger.alias("other-name", "main")
    writes = [
        lambda name=name: ledger.record(name, "q", "r")
        for name in ("main", "fork", "other-name", "main", "new", "new")
    ]

    with queued(db, *writes) as writers:
        pass

    assert [writer.error for writer in writers] == [None] * 6
    assert ledger.thread("main").depth == 6
    assert ledger.thread("fork").depth == 4
    assert ledger.thread("new").depth == 2
    assert ledger.common_ancestor("main", "fork") == head


@on_sqlite
def test_turns_of_one_session_stand_in_the_order_they_came(address: str) -> None:
    async def main() -> list[str]:
        async with AsyncLedger.open(address) as ledger:
            await ledger.record("main", "root", "r")
            await ledger.alias("other-name", "main")
            names = itertools.cycle(["main", "other-name", "main"])
            await asyncio.gather(
                *(
                    ledger.record(next(names), str(n), "r", id=f"own-{n}")
                    if n % 2
                    else ledger.record(next(names), str(n), "r")
                    for n in range(12)
                )
            )
            return [str(turn.query[0].content) for turn in (await ledger.thread("main")).turns]

    assert asyncio.run(main()) == ["root", *map(str, range(12))]


@on_sqlite
def test_what_came_before_a_turn_is_done_before_it(address: str) -> None:
    async def main() -> Any:
        async with AsyncLedger.open(address) as ledger:
            for name in ("a", "b", "c"):
                await ledger.record(name, "root", "r")
            return await asyncio.gather(
                ledger.record("a", "q", "r"),
                ledger.archive("b"),
                ledger.record("b", "q", "r"),
                ledger.record("c", "q", "r"),
                return_exceptions=True,
            )

    _, _, refused, stored = asyncio.run(main())
    assert isinstance(refused, Refused)
    assert stored.depth == 2


def test_who_is_refused_spoils_nobody(ledger: Ledger, db: Database) -> None:
    first, _ = chain(ledger, "main", 2)
    for name in ("archived", "moved", "a", "b"):
        chain(ledger, name, 1)
    ledger.archive("archived")

    with queued(
        db,
        lambda: ledger.record("a", "q", "r"),
        lambda: ledger.record("archived", "q", "r"),
        lambda: ledger.record("moved", "q", "r", parent=first),
        lambda: ledger.record("b", "q", "r"),
    ) as (a, archived, moved, b):
        pass

    assert (a.error, b.error) == (None, None)
    assert isinstance(archived.error, Refused)
    assert isinstance(moved.error, HeadMoved)
    assert [ledger.thread(name).depth for name in ("a", "b", "archived", "moved")] == [2, 2, 1, 1]


BAD_TURN = "NEW.turn_id IN (SELECT id FROM turns WHERE workspace_path = 'bad')"


@pytest.mark.parametrize(
    ("table", "bad"),
    [
        ("turns", "NEW.workspace_path = 'bad'"),
        ("messages", BAD_TURN),
        ("tool_calls", BAD_TURN),
        ("places", BAD_TURN),
        ("search_waiting", BAD_TURN),
        ("session_history", "NEW.session_label = 'bad'"),
    ],
)
def test_if_one_row_fails_its_turn_fails_alone(tmp_path: Path, table: str, bad: str) -> None:
    db = SqliteDatabase(str(tmp_path / "ledger.db"))
    with Ledger(Core(db)) as ledger:
        for name in ("good", "bad", "fine"):
            chain(ledger, name, 1)
        planted = f"CREATE TEMP TRIGGER planted BEFORE INSERT ON main.{table} WHEN {bad}"
        planted += " BEGIN SELECT RAISE(ABORT, 'planted'); END"
        db.write(lambda tx: tx.execute(planted))
        writes = [
            lambda name=name: ledger.record(
                name, "q", "r", steps=[ToolCall("Read")], workspace_path=name
            )
            for name in ("good", "bad", "fine")
        ]

        with queued(db, *writes) as (good, failed, fine):
            pass

        assert (good.error, fine.error) == (None, None)
        assert "planted" in str(failed.error)
        assert [ledger.thread(name).depth for name in ("good", "bad", "fine")] == [2, 1, 2]
        assert ledger.audit() == ()


def test_together_they_are_looked_up_at_once(tmp_path: Path) -> None:
    looked: list[str] = []

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*args, **options)
        connection.set_trace_callback(looked.append)
        return connection

    db = SqliteDatabase(str(tmp_path / "ledger.db"), connect=connect)
    with Ledger(Core(db)) as ledger:
        names = [f"s{number}" for number in range(20)]
        for name in names:
            chain(ledger, name, 1)
        looked.clear()

        with queued(db, *(lambda name=name: ledger.record(name, "q", "r") for name in names)):
            pass

        assert sum("FROM names n" in sql for sql in looked) == 1
        assert [ledger.thread(name).depth for name in names] == [2] * 20
