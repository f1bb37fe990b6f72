"""Costs: how many statements, rows and pages a verb takes, so that a slower design is noticed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agents_ledger import Ask, Ledger, Message, Queue, ToolCall
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.sessions import queue_entries as queues
from agents_ledger.store.database import Database
from agents_ledger.store.sqlite import statements as sqlite_statements
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.builders import A_USAGE, a_call, a_full_turn, chain
from tests.engines import on_sqlite
from tests.raw import Raw
from tests.statements import Meddled

FRAME = 4096 + 24  # a page in the write-ahead log


@pytest.fixture
def counted(db: Database) -> Iterator[tuple[Meddled, Ledger]]:
    """A ledger whose statements are counted; one per row where there are many."""
    statements, database = Meddled.over(db)
    with Ledger(Core(database)) as ledger:
        yield statements, ledger


def test_a_plain_turn_takes_these_statements_at_any_depth(
    counted: tuple[Meddled, Ledger],
) -> None:
    statements, ledger = counted
    for depth in (2, 40):
        chain(ledger, "main", depth - ledger.thread("main", last=0).depth - 1 if depth > 2 else 1)

        turn = ledger.record("main", "q", "r", usage=A_USAGE)

        assert turn.depth == depth
        assert statements.ran == [
            "find_session",
            "place",
            "insert_turn",
            "insert_message",
            "insert_message",
            "mark_native_parent",
            "insert_place",
            "await_index",
            "move_head",
            "log_move",
            "insert_evidence",
            "COMMIT",
        ]


def test_each_further_part_takes_one_statement(counted: tuple[Meddled, Ledger]) -> None:
    statements, ledger = counted
    chain(ledger, "main", 1)
    ledger.record("main", "q", "r")
    plain = len(statements.ran)

    ledger.record("main", ["q", "q"], "r", steps=[a_call() for _ in range(5)], id="chosen")

    # A message, five calls, whether the id is known, and whether it names a session.
    assert len(statements.ran) == plain + 8


def test_the_first_turn_beside_another_takes_three_statements_more(
    counted: tuple[Meddled, Ledger],
) -> None:
    statements, ledger = counted
    first, _ = chain(ledger, "main", 2)
    plain = len(statements.ran)
    ledger.fork(first, label="other")

    ledger.record("other", "q", "r")

    # A segment, a place in it, and whether the turn it hangs on is a projection.
    assert len(statements.ran) == plain + 3
    assert "open_segment" in statements.ran


def test_a_fork_takes_four_rows_and_a_few_statements(
    counted: tuple[Meddled, Ledger], raw: Raw
) -> None:
    statements, ledger = counted
    first, _ = chain(ledger, "main", 2)
    before = raw.count()

    ledger.fork(first, label="other")

    # Session, name, move, and what covers the move.
    assert raw.count() == before + 4
    assert len(statements.ran) <= 13


def test_a_step_of_a_live_turn_takes_few_statements(counted: tuple[Meddled, Ledger]) -> None:
    statements, ledger = counted
    chain(ledger, "main", 1)
    with ledger.turn("main", "q") as turn:
        begun = len(statements.ran)
        call = turn.tool_call("Read")
        started = len(statements.ran)
        call.complete("1")
        finished = len(statements.ran)
        turn.stream("text")
        streamed = len(statements.ran)
        turn.respond("r")
        sealed = len(statements.ran)

    assert (started, finished, streamed) == (3, 3, 4)
    # One of the last covers what was sealed.
    assert (begun, sealed) == (10, 16)


def test_an_entry_of_the_queue_takes_these_statements(counted: tuple[Meddled, Ledger]) -> None:
    statements, ledger = counted
    chain(ledger, "main", 1)
    queue = Queue(ledger)
    for number in range(20):
        queue.enqueue("main", Ask((Message("user", f"q{number}"),)))

    assert statements.ran == [
        "queue_entry",
        "find_session",
        "waiting_count",
        "end_batch",
        "insert_queue_entry",
        "queue_entry",
        "COMMIT",
    ]
    claimed = ledger._core.db.write(lambda tx: queues.claim(tx, "me", "turn-1", label="main"))
    assert claimed is not None
    assert statements.ran == [
        "find_session_exactly",
        "is_claimed",
        "insert_writer",
        "first_waiting",
        "claim_entries",
        "session_exactly",
        "config_above",
        "COMMIT",
    ]


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[list[str], Ledger, Path]]:
    """What SQLite runs for a ledger, the ledger, and its write-ahead log."""
    asked: list[str] = []

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*args, **options)
        connection.set_trace_callback(asked.append)
        return connection

    file = tmp_path / "ledger.db"
    with Ledger(Core(SqliteDatabase(str(file), connect=connect))) as ledger:
        yield asked, ledger, file.with_name("ledger.db-wal")


def test_sqlite_is_asked_for_nothing_else(traced: tuple[list[str], Ledger, Path]) -> None:
    asked, ledger, _ = traced
    chain(ledger, "main", 3)
    asked.clear()

    ledger.record("main", "q", "r", usage=A_USAGE)

    plain = [sql for sql, _ in groupby(asked)]  # said again for each guard it meets
    assert plain[:2] == ["BEGIN IMMEDIATE", "PRAGMA schema_version"]
    assert plain[-1] == "COMMIT"
    assert len(plain) == 14, plain


def test_recording_makes_no_table_by_the_way(traced: tuple[list[str], Ledger, Path]) -> None:
    asked, ledger, log = traced
    chain(ledger, "main", 3)
    asked.clear()

    ledger.record("main", **a_full_turn())

    with closing(sqlite3.connect(log.with_name("ledger.db"))) as connection:
        connection.text_factory = bytes
        steps = [
            operation
            for sql in set(asked)
            if sql.startswith(("INSERT", "UPDATE"))
            for _, operation, *_ in connection.execute(f"EXPLAIN {sql}")
        ]
    assert len(steps) > 1000
    assert b"OpenEphemeral" not in steps


def test_reading_a_thread_takes_as_many_statements_as_a_turn(
    traced: tuple[list[str], Ledger, Path],
) -> None:
    asked, ledger, _ = traced
    chain(ledger, "main", 50)
    counts = []
    for last in (1, 50):
        asked.clear()
        assert len(ledger.thread("main", last=last).turns) == last
        counts.append(len(asked))

    assert counts[0] == counts[1] <= 7


def test_a_turn_writes_few_pages(traced: tuple[list[str], Ledger, Path]) -> None:
    _, ledger, log = traced
    chain(ledger, "main", 100)
    before = os.stat(log).st_size

    for _ in range(50):
        ledger.record("main", "q" * 200, "r" * 800, usage=A_USAGE)

    pages = (os.stat(log).st_size - before) / FRAME / 50
    # Two of them hold what covers the turn, and where that is found.
    assert pages <= 21, f"{pages} pages a turn"


SESSIONS = 32  # one after the other, so that no page is still there from the turn before


def test_a_turn_with_calls_writes_few_pages(traced: tuple[list[str], Ledger, Path]) -> None:
    _, ledger, log = traced
    before = _log_of_sessions(ledger, log)

    for number in range(SESSIONS):
        ledger.record(f"s{number}", "q" * 400, "r" * 1000, steps=_calls(), usage=A_USAGE)

    pages = (os.stat(log).st_size - before) / FRAME / SESSIONS
    assert pages <= 27, f"{pages} pages a turn"


def test_a_live_exchange_takes_few_commits_and_pages(
    traced: tuple[list[str], Ledger, Path],
) -> None:
    asked, ledger, log = traced
    before = _log_of_sessions(ledger, log)
    asked.clear()

    for number in range(SESSIONS):
        with ledger.turn(f"s{number}", "q" * 400) as turn:
            finished: list[ToolCall] = []
            for call in _calls():
                turn.add(*finished, replace(call, status="running", result_json=None))
                finished = [call]
            turn.respond("r" * 1000, steps=finished, usage=A_USAGE)

    assert asked.count("COMMIT") == 5 * SESSIONS
    pages = (os.stat(log).st_size - before) / FRAME / SESSIONS
    assert pages <= 45, f"{pages} pages an exchange"


def test_a_live_exchange_of_single_verbs_writes_few_pages(
    traced: tuple[list[str], Ledger, Path],
) -> None:
    asked, ledger, log = traced
    before = _log_of_sessions(ledger, log)
    asked.clear()

    for number in range(SESSIONS):
        with ledger.turn(f"s{number}", "q" * 400) as turn:
            for call in _calls():
                turn.tool_call(call.tool_name, call.params_json).complete(call.result_json)
            turn.respond("r" * 1000, usage=A_USAGE)

    assert asked.count("COMMIT") == 8 * SESSIONS  # each verb's promise
    pages = (os.stat(log).st_size - before) / FRAME / SESSIONS
    assert pages <= 45, f"{pages} pages an exchange"


def _log_of_sessions(ledger: Ledger, log: Path) -> int:
    """The size of the log once each session has a few turns."""
    ledger.recover()
    for _ in range(3):
        for number in range(SESSIONS):
            ledger.record(f"s{number}", "q" * 400, "r" * 1000, steps=_calls(), usage=A_USAGE)
    return os.stat(log).st_size


def _calls() -> list[ToolCall]:
    result = f'"{"x" * 1000}"'
    return [
        ToolCall(name, '{"path":"a"}', result, id=f"call_{name}")
        for name in ("Read", "Edit", "Bash")
    ]


def test_a_turn_takes_few_bytes_for_its_ancestry(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "main", 200)

    kept = sum(
        len(str(value)) if isinstance(value, str) else 8
        for table in ("places", "segments")
        for row in raw.execute(f"SELECT * FROM {table}")
        for value in row
        if value is not None
    )

    assert kept / 200 <= 160


@on_sqlite
def test_a_page_of_hits_takes_the_same_statements_however_many_there_are(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(ledger, "main", 30)
    ledger._core.index(least=1)
    ledger.search("question")
    ran: list[str] = []
    run = sqlite_statements.Statements._ran

    def counting(tx: Any, name: str, values: dict[str, object]) -> Any:
        ran.append(name)
        return run(tx, name, values)

    monkeypatch.setattr(sqlite_statements.Statements, "_ran", counting)
    for limit in (1, 20):
        ran.clear()
        assert len(ledger.search("question", limit=limit).hits) == limit
        assert ran == [
            "search_cutoff",
            "unindexed",
            "search_ranked",
            "document_turns",
            "document_messages",
            "tails",
        ]
