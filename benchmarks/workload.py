"""The turn that is recorded, and the hand-written SQL that stores the same rows.

The reference's rows are what a real recording gave to the driver, so it stores exactly as much; it
has them ready beforehand, needs no ids, hashes, checks or locks, and reads nothing.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from unittest.mock import patch

from agents_ledger import Ledger, ToolCall, Usage
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.turns import recording
from agents_ledger.store.database import Transaction
from agents_ledger.store.sqlite.engine import SqliteDatabase

PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=0",
    "foreign_keys=ON",
    "recursive_triggers=ON",
)
_TEXT = (
    "the release notes say that every turn is written once and read many times so a test which"
    " fails here should name the file line and reason naïve café über Größe 日本 return self value"
    " import path def class if not in for raise error None True false null"
)
_WORDS = _TEXT.split()
_TOOLS = ("Read", "Bash", "Edit", "Grep", "Write")


class Turn(NamedTuple):
    """What a caller passes to record(): a query, three tool calls with results, a response."""

    query: str
    response: str
    steps: tuple[ToolCall, ...]

    def record(self, ledger: Any, session: str) -> Any:
        return ledger.record(session, self.query, self.response, steps=self.steps, **DETAILS)

    def work(self, session: str) -> Callable[[Transaction], object]:
        """The same, to be done with others in one transaction."""
        fields = {"steps": self.steps, **DETAILS}
        prepared = recording.recording(session, self.query, self.response, fields)
        return partial(recording.record, prepared=prepared)


DETAILS: dict[str, Any] = {
    "usage": Usage(12_480, 655, 11_200, 0, 210),
    "model": "claude-opus-5",
    "provider": "anthropic",
    "workspace_path": "/home/user/project",
}


def turns(count: int, seed: int = 7) -> list[Turn]:
    """Turns of 2 to 8 kB."""
    chance = random.Random(seed)

    def text(least: int, most: int) -> str:
        length, size, words = chance.randint(least, most), 0, []
        while size < length:
            words.append(chance.choice(_WORDS))
            size += len(words[-1]) + 1
        return " ".join(words)

    def call() -> ToolCall:
        params = {"path": f"src/{chance.choice(_WORDS)}.py", "limit": chance.randint(10, 400)}
        return ToolCall.of(chance.choice(_TOOLS), params, {"text": text(300, 1900)})

    return [Turn(text(100, 700), text(400, 1600), (call(), call(), call())) for _ in range(count)]


def small_turns(count: int) -> list[Turn]:
    """Turns without tool calls, for filling a ledger."""
    return [Turn(f"question {number}", f"answer {number}", ()) for number in range(count)]


# -- what the driver was given ----------------------------------------------------------------

Statement = tuple[str, Any]  # the values are a list for executemany


_heard: list[Statement] = []  # by the one capture at a time


class _ListeningCursor(sqlite3.Cursor):
    """Keeps every statement and its values."""

    def execute(self, sql: str, values: Any = (), /) -> Self:
        _heard.append((sql, values))
        return super().execute(sql, values)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Self:
        kept = list(rows)
        _heard.append((sql, kept))
        return super().executemany(sql, kept)


class _Listening(sqlite3.Connection):
    def cursor(self, factory: Any = _ListeningCursor) -> Any:
        return super().cursor(factory)


class Recorded(NamedTuple):
    """One turn as the driver was given it, and the same rows as plain values."""

    session: str
    statements: list[Statement]
    writes: list[Statement]


_HISTORY = "session_label, thread_id, changed_at, reason"


def capture(path: Path, work: Sequence[tuple[str, Turn]]) -> list[Recorded]:
    """Record turns for real, and keep what was sent to the driver."""
    connect = partial(sqlite3.connect, factory=_Listening)
    beside = sqlite3.connect(path)
    found = []
    with Ledger(Core(SqliteDatabase(str(path), connect=connect))) as ledger:
        ledger.recover()
        for session, turn in work:
            _heard.clear()
            turn.record(ledger, session)
            said = [each for each in _heard if each[0].startswith(("SELECT", "INSERT", "UPDATE"))]
            last = f"SELECT {_HISTORY} FROM session_history ORDER BY id DESC LIMIT 1"
            moved = beside.execute(last).fetchone()
            writes = [_plain(*each, moved) for each in said if not each[0].startswith("SELECT")]
            found.append(Recorded(session, said, writes))
    beside.close()
    return found


def _plain(sql: str, values: Any, moved: Any) -> Statement:
    """The history's line is copied from the session's; by hand it is written out."""
    if "INTO session_history" in sql:
        return f"INSERT INTO session_history ({_HISTORY}) VALUES (?, ?, ?, ?)", moved
    return sql, values


# -- by hand ----------------------------------------------------------------------------------


def connect(path: Path) -> sqlite3.Connection:
    """A connection as the ledger makes it."""
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=120, cached_statements=512, check_same_thread=False
    )
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def run(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    for sql, values in statements:
        if isinstance(values, list):
            connection.executemany(sql, values)
        else:
            connection.execute(sql, values).fetchall()


def commit_each(connection: sqlite3.Connection, turns: Iterable[Sequence[Statement]]) -> None:
    """One transaction per turn."""
    for statements in turns:
        commit_at_once(connection, statements)


def by_table(recorded: Iterable[Recorded]) -> list[Statement]:
    """All rows of a kind together: the fastest way to write them."""
    together: dict[str, list[Any]] = {}
    for turn in recorded:
        for sql, values in turn.writes:
            together.setdefault(sql, []).extend(values if isinstance(values, list) else [values])
    return list(together.items())


def commit_at_once(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """One transaction for all."""
    connection.execute("BEGIN IMMEDIATE")
    run(connection, statements)
    connection.execute("COMMIT")


# -- files ------------------------------------------------------------------------------------


def copy_of(template: Path, name: str) -> Path:
    """A fresh copy of a closed ledger."""
    path = template.with_name(name)
    for suffix in ("-wal", "-shm", ".lock", ".next"):
        path.with_name(name + suffix).unlink(missing_ok=True)
    shutil.copyfile(template, path)
    return path


def same_rows(one: Path, other: Path) -> bool:
    """Whether two ledgers hold the same rows in every table."""
    # Here: writers of an earlier commit import this module with their own sources.
    from agents_ledger.store.tables.copying import TABLES, TableDigest, digests

    def compared(tx: Transaction) -> dict[str, list[str]]:
        columns = {table: list(tx.columns(table)) for table in TABLES}
        # The session's last move, looked up when a leaf is written: written table by table, all
        # moves of the batch come before.
        columns["evidence"].remove("move_id")
        return columns

    def rows(path: Path) -> dict[str, TableDigest]:
        database = SqliteDatabase(str(path), read_only=True)
        try:
            return database.read(lambda tx: digests(tx, compared(tx)))
        finally:
            database.close()

    return rows(one) == rows(other)


@contextmanager
def unindexed() -> Iterator[None]:
    """Turns wait for the word index, which is measured by itself."""
    with (
        patch.object(index_queue, "recorded", lambda tx, turn: index_queue.grown(tx, [turn.id])),
        patch.object(
            index_queue, "written", lambda tx, turns: index_queue.grown(tx, [t.id for t in turns])
        ),
        patch.object(index_queue, "catch_up", lambda *_, **__: None),
        patch.object(index_queue, "put_in", lambda *_, **__: 0),
    ):
        yield


def fill(
    ledger: Ledger, works: Sequence[Callable[[Transaction], object]], at_once: int = 500
) -> None:
    """Write many works quickly, so many in one transaction."""
    for start in range(0, len(works), at_once):
        part = works[start : start + at_once]

        def run_all(
            tx: Transaction, part: Sequence[Callable[[Transaction], object]] = part
        ) -> None:
            for work in part:
                work(tx)

        ledger._core.db.write(run_all)
