"""Turns recorded in one call of the server are the rows that statement by statement would give."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from agents_ledger import (
    AsyncLedger,
    Conflict,
    HeadMoved,
    Ledger,
    Message,
    Refused,
    ToolCall,
    Turn,
    Usage,
)
from agents_ledger.ledger.core import Core
from agents_ledger.model.ids import new_id
from agents_ledger.store.database import UNDONE
from agents_ledger.store.postgres.call_queue import LEADERS
from agents_ledger.store.postgres.engine import PostgresDatabase
from agents_ledger.store.violations import violation
from tests.builders import a_call, a_full_turn, a_message, chain
from tests.raw import Raw
from tests.server_calls import ODD, begun, called, queueing, rows, together, transactions, work
from tests.waiting import PATIENCE_S, until

FULL = {
    **{k: v for k, v in a_full_turn().items() if k != "config"},
    "query": [a_message("first", thinking="hm", context_json='{"a": 1}'), a_message("second")],
    "response": a_message("answer", role="assistant", source=None, metadata_json='{"b": 2}'),
    "steps": [
        a_message("step", role="assistant", source=None),
        a_call("Read", id="call-1", result_json='{"text": "x"}', tool_number=15),
        a_call("Bash", id="call-2", error="exit 1", status="failed", source_status="aborted"),
    ],
}
# What record_turns() does.
SIMPLE: list[dict[str, Any]] = [
    {"query": "q", "response": "r"},
    FULL,
    {"query": [], "steps": [ToolCall("Read")]},
    {"query": "q", "response": None},
    {"query": ODD, "response": f"{ODD}\\u001a", "workspace_path": ODD, "model": "m"},
    {"query": "q", "steps": [ToolCall("Read", '{"a":"\\u0000"}', '"\\ud800"')], "provider": "p"},
    {"query": "q", "response": "r", "usage": Usage(1, None, 3)},
    {"query": "q", "response": "r", "id": "chosen"},
    {"query": "q", "response": "r", "system_prompt": f"be kind {ODD}"},
]
# What it leaves.
OTHERS: list[dict[str, Any]] = [
    a_full_turn(),
    {"query": "q", "status": "failed", "error": "broke"},
    {"query": "q", "response": "r", "thread_key": "key"},
    {"query": "q", "steps": [a_call("Task", spawned_session_label="child")]},
    {"query": "x" * 600_000},
]


@pytest.fixture
def db(database: Callable[[], PostgresDatabase]) -> PostgresDatabase:
    return database()


@pytest.fixture
def ledger(db: PostgresDatabase) -> Ledger:
    return Ledger(Core(db))


def test_one_call_writes_the_rows_of_the_statements(
    database: Callable[[], PostgresDatabase],
) -> None:
    """Each by itself, all at once, and statement by statement: the same rows in every table."""
    alone, together, by_statement = database(), database(), database()
    roots = [work(f"s{n}", model="root", usage=Usage(5, 6)) for n in range(len(SIMPLE))]
    works = [work(f"s{n}", **said) for n, said in enumerate(SIMPLE)]
    for db in (alone, together, by_statement):
        begun(db, roots)

    one_by_one = [called(alone, each)[0] for each in works]
    at_once = called(together, *works)
    plain = [by_statement.write_alone(each) for each in works]

    assert at_once == one_by_one == plain
    assert rows(together) == rows(alone) == rows(by_statement)
    for db in (alone, together):
        assert Ledger(Core(db)).audit() == ()


def test_what_is_not_so_simple_is_left_and_nothing_of_it_written(
    db: PostgresDatabase, ledger: Ledger
) -> None:
    names = [f"s{n}" for n in range(len(OTHERS))]
    begun(db, [work(name) for name in names])
    before = rows(db)

    results = called(db, *(work(n, **said) for n, said in zip(names, OTHERS, strict=True)))
    assert results == [UNDONE] * len(OTHERS)
    assert rows(db) == before
    for name, said in zip(names, OTHERS, strict=True):
        ledger.record(name, **said)
    assert ledger.audit() == ()


def test_what_a_session_does_not_allow_is_left(db: PostgresDatabase, ledger: Ledger) -> None:
    first, second = chain(ledger, "moved", 2)
    for name in ("archived", "good", "taken"):
        chain(ledger, name, 1)
    ledger.archive("archived")
    ledger.fork(first, label="fork")
    ledger.create_session("empty")
    before = rows(db)

    results = called(
        db,
        work("moved", parent=first),
        work("archived"),
        work("fork"),
        work("empty"),
        work("new"),
        work("taken", id=second),
        work("taken", id="good"),
    )

    assert results == [UNDONE] * 7
    assert rows(db) == before
    with pytest.raises(HeadMoved):
        ledger.record("moved", "q", "r", parent=first)
    with pytest.raises(Refused, match="archived"):
        ledger.record("archived", "q", "r")
    with pytest.raises(Conflict):
        ledger.record("taken", "q", "r", id=second)
    assert ledger.record("moved", "q", "r", parent=second).depth == 3


def test_of_sessions_with_one_head_the_first_goes_on_and_the_others_fork(
    db: PostgresDatabase, ledger: Ledger
) -> None:
    chain(ledger, "main", 1)
    ledger.fork("main", label="fork")
    ledger.alias("other-name", "main")
    chain(ledger, "third", 1)

    results = called(db, *map(work, ("main", "fork", "other-name", "third")))

    assert results.count(UNDONE) == 2
    assert results[3] is not UNDONE
    for name in ("main", "fork", "other-name"):
        ledger.record(name, "q", "r")
    assert ledger.audit() == ()


def test_if_a_row_cannot_be_written_its_turn_fails_alone(
    db: PostgresDatabase, ledger: Ledger
) -> None:
    for name in ("good", "bad", "fine"):
        chain(ledger, name, 1)
    works = [work(name, workspace_path=name) for name in ("good", "bad", "fine")]
    with Raw(db.address) as raw:
        raw.execute(
            "ALTER TABLE turns ADD CONSTRAINT planted CHECK (workspace_path IS DISTINCT FROM 'bad')"
        )
        assert called(db, *works) == [UNDONE] * 3

        outcomes = together(*(lambda each=each: db.write(each) for each in works))
        raw.execute("ALTER TABLE turns DROP CONSTRAINT planted")

    assert [isinstance(outcome, Turn) for outcome in outcomes] == [True, False, True]
    assert type(outcomes[1]) is type(violation("planted"))
    assert [ledger.thread(name).depth for name in ("good", "bad", "fine")] == [2, 1, 2]


@pytest.mark.parametrize("way", ["threads", "tasks"])
def test_writers_that_wait_share_a_transaction(
    db: PostgresDatabase, ledger: Ledger, way: str
) -> None:
    names = [f"s{n}" for n in range(48)]
    for name in names:
        chain(ledger, name, 1)

    with queueing(db, len(names)):
        if way == "threads":
            together(*(lambda name=name: ledger.record(name, "q", "r") for name in names))
        else:

            async def record_all() -> None:
                others = AsyncLedger.over(ledger)
                await asyncio.gather(*(others.record(name, "q", "r") for name in names))

            asyncio.run(record_all())

    assert transactions(db, "turns", "parent_turn_id IS NOT NULL") <= LEADERS
    assert [ledger.thread(name).depth for name in names] == [2] * 48
    assert ledger.audit() == ()


def test_tasks_of_one_session_record_in_the_order_they_came(ledger: Ledger) -> None:
    async def record_all() -> None:
        others = AsyncLedger.over(ledger)
        await others.record("main", "root", "r")
        await asyncio.gather(*(others.record("main", str(n), "r") for n in range(30)))

    asyncio.run(record_all())

    asked = [turn.query[0].content for turn in ledger.thread("main").turns]
    assert asked == ["root", *map(str, range(30))]


def test_whoever_waits_for_a_session_waits_alone(db: PostgresDatabase, ledger: Ledger) -> None:
    names = [f"s{n}" for n in range(10)]
    for name in ("busy", *names):
        chain(ledger, name, 1)
    with Raw(db.address) as raw, raw.transaction():
        raw.execute("SELECT 1 FROM sessions WHERE label = 'busy' FOR UPDATE")
        busy = threading.Thread(target=ledger.record, args=("busy", "q", "r"))
        busy.start()

        for _ in range(3):
            together(*(lambda name=name: ledger.record(name, "q", "r") for name in names))

        assert busy.is_alive()
        assert [ledger.thread(name).depth for name in ("busy", *names)] == [1, *[4] * 10]
    busy.join(PATIENCE_S)
    assert ledger.thread("busy").depth == 2


def test_a_call_whose_answer_was_lost_is_not_done_twice(
    db: PostgresDatabase, ledger: Ledger
) -> None:
    chain(ledger, "main", 1)
    lost = work("main", parent=ledger.head("main"))
    [turn] = called(db, lost)
    before = rows(db)

    assert db.write_alone(lost.repeat) == ledger.get_turn(turn.id)
    assert rows(db) == before
    with pytest.raises(Conflict):
        db.write_alone(work("main", id=turn.id).repeat)


@pytest.mark.parametrize("count", [1, 8])
def test_turns_are_recorded_once_though_their_connection_is_lost(
    db: PostgresDatabase, ledger: Ledger, postgres_server: str, count: int
) -> None:
    names = [f"s{n}" for n in range(count)]
    for name in names:
        chain(ledger, name, 1)
    with Raw(db.address) as raw, psycopg.connect(postgres_server, autocommit=True) as other:
        with raw.transaction():
            raw.execute("LOCK TABLE search_waiting IN EXCLUSIVE MODE")
            writing = threading.Thread(
                target=lambda: together(
                    *(lambda name=name: ledger.record(name, "q", "r") for name in names)
                )
            )
            writing.start()
            ended: list[Any] = []

            def end_calls() -> bool:
                ended.extend(
                    other.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE query LIKE 'SELECT * FROM %%record_turns%%'"
                        " AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
                    ).fetchall()
                )
                return bool(ended)

            until(end_calls)
        writing.join(PATIENCE_S)

    assert [ledger.thread(name).depth for name in names] == [2] * count
    assert ledger.audit() == ()


def test_asyncio_closes_after_what_was_queued(new_schema: Callable[[], str]) -> None:
    address = new_schema()

    async def main() -> list[Any]:
        async with AsyncLedger.open(address) as ledger:
            for n in range(20):
                await ledger.record(f"s{n}", "q", "r")
            tasks = [asyncio.ensure_future(ledger.record(f"s{n}", "q", "r")) for n in range(20)]
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(main())

    stored = sum(isinstance(outcome, Turn) for outcome in outcomes)
    with Ledger.open(address) as ledger:
        assert sum(ledger.thread(f"s{n}").depth for n in range(20)) == 20 + stored
    assert all(isinstance(outcome, (Turn, Refused)) for outcome in outcomes)


def test_a_turn_with_a_number_that_no_column_holds_is_refused(ledger: Ledger) -> None:
    chain(ledger, "main", 1)

    with pytest.raises(Refused):
        ledger.record("main", "q", "r", usage=Usage(1 << 70))
    assert ledger.record("main", "q", "r").depth == 2


def test_a_newer_schema_is_refused_as_before(db: PostgresDatabase, ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    with Raw(db.address) as raw:
        raw.execute("INSERT INTO schema_migrations VALUES (9999, 'newer', 0)")

    assert called(db, work("main")) == [UNDONE]
    with pytest.raises(Exception, match="was brought to schema 9999"):
        ledger.record("main", "q", "r")


def test_a_chosen_id_that_is_recorded_already_is_returned(ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    turn_id = new_id()
    steps = [Message("assistant", "hm")]

    first = ledger.record("main", "q", "r", id=turn_id, steps=steps)

    assert ledger.record("main", "q", "r", id=turn_id, steps=steps).id == first.id
    assert ledger.thread("main").depth == 2
