"""Migrations: numbered files that add up to schema.sql, applied once, by whoever comes first."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from agents_ledger import Ledger, NewerLedger
from agents_ledger.store import migrations, queries
from agents_ledger.store.database import Engine, open_database
from agents_ledger.store.postgres.statements import WORDS as POSTGRES_WORDS
from agents_ledger.store.sqlite.statements import WORDS as SQLITE_WORDS
from agents_ledger.store.tables import copying as tables
from tests.raw import Raw
from tests.waiting import PATIENCE_S

PROCESSES = 8
OPEN = """
import sys
from agents_ledger import Ledger

print("ready", flush=True)
sys.stdin.readline()
with Ledger.open(sys.argv[1]) as ledger:
    ledger.record(sys.argv[2], "q", "r")
    ledger.record("shared", "q", "r")
print("done", flush=True)
"""
# Everything a server knows of a schema's tables, in words that name no schema.
CATALOGUE = """
SELECT 'column', c.table_name || '.' || c.column_name, concat_ws(' ', c.data_type, c.is_nullable,
    c.column_default, c.is_identity, c.identity_generation, c.collation_name)
FROM information_schema.columns c
JOIN pg_tables t ON t.schemaname = c.table_schema AND t.tablename = c.table_name
WHERE c.table_schema = current_schema()
UNION ALL
SELECT 'constraint', conrelid::regclass::text || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
UNION ALL
SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
ORDER BY 1, 2, 3
"""


def statements(engine: Engine, words: dict[str, str]) -> list[str]:
    """The statements of all migrations for one engine."""
    return [
        migrations.spelled(statement, engine, words)
        for path in queries.migration_files()
        for statement in queries.split(path.read_text(encoding="utf-8"))
    ]


def plain(sql: str | None) -> str:
    """SQL without comments, and with one kind of space."""
    one_space = re.sub(r"\s+", " ", re.sub(r"--.*", "", sql or "")).strip()
    return re.sub(r" ?([(),]) ?", r"\1", one_space)


def test_schema_sql_is_the_sum_of_the_migrations_on_sqlite(tmp_path: Path) -> None:
    catalogue = (
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'index') ORDER BY 1, 2"
    )
    Ledger.open(str(tmp_path / "ledger.db")).close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as made:
        new = [(kind, name, plain(sql)) for kind, name, sql in made.execute(catalogue)]
    with closing(sqlite3.connect(":memory:")) as migrated:
        for statement in statements("sqlite", SQLITE_WORDS):
            migrated.execute(statement)
        old = [(kind, name, plain(sql)) for kind, name, sql in migrated.execute(catalogue)]

    assert new == old
    assert len([kind for kind, _, _ in new if kind == "table"]) > 15


def test_schema_sql_is_the_sum_of_the_migrations_on_postgresql(
    new_schema: Callable[[], str], postgres_server: str
) -> None:
    migrated, made = new_schema(), new_schema()
    Ledger.open(made).close()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        name = migrated.rpartition("=")[2]
        connection.execute(f"CREATE SCHEMA {name}")
        connection.execute(f"SET search_path TO {name}")
        for statement in statements("postgresql", POSTGRES_WORDS):
            connection.execute(statement)
    described = []
    for address in (migrated, made):
        with Raw(address) as raw:
            name = address.rpartition("=")[2]
            described.append(
                [tuple(word.replace(name, "") for word in row) for row in raw.execute(CATALOGUE)]
            )

    assert described[0] == described[1]
    assert len(described[0]) > 100


def test_every_table_is_copied_and_compared(raw: Raw) -> None:
    made_anew = {table for table in raw.tables() if table.startswith("search_")}
    made_anew |= set(tables.DERIVED)

    assert set(tables.TABLES) == set(raw.tables()) - {"schema_migrations"} - made_anew


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in queries.migration_files()]

    assert numbers == list(range(1, migrations.newest() + 1))


def test_a_ledger_says_which_migrations_made_it(ledger: Ledger, raw: Raw) -> None:
    applied = raw.execute("SELECT number, name FROM schema_migrations ORDER BY number")

    assert applied == [(int(path.stem[:4]), path.stem) for path in queries.migration_files()]


def test_opening_again_applies_nothing(ledger: Ledger, address: str, raw: Raw) -> None:
    before = raw.dump()

    Ledger.open(address).close()

    assert raw.dump() == before


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(
    ledger: Ledger,
    address: str,
    raw: Raw,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger.record("main", "q", "r")
    ledger.close()
    bad = tmp_path / f"{migrations.newest() + 1:04}_bad.sql"
    bad.write_text("CREATE TABLE half (x TEXT);\nCREATE TABLE half (x TEXT);\n")
    files = [*queries.migration_files(), bad]
    before = raw.dump()

    with monkeypatch.context() as patch:
        patch.setattr(queries, "migration_files", lambda: files)
        with pytest.raises(Exception, match="half"):
            Ledger.open(address)

    assert raw.dump() == before
    with Ledger.open(address) as again:
        assert again.audit() == ()
        assert again.record("main", "q", "r").depth == 2


def test_a_ledger_of_an_older_version_is_brought_up_to_date(
    ledger: Ledger,
    address: str,
    raw: Raw,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger.record("main", "q", "r")
    ledger.close()
    number = migrations.newest() + 1
    later = tmp_path / f"{number:04}_later.sql"
    later.write_text("CREATE TABLE later (x TEXT);\n")
    files = [*queries.migration_files(), later]
    monkeypatch.setattr(queries, "migration_files", lambda: files)

    with Ledger.open(address) as again:
        assert again.audit() == ()
        assert again.record("main", "q", "r").depth == 2

    assert "later" in raw.tables()
    assert raw.one("SELECT max(number) FROM schema_migrations") == number
    monkeypatch.undo()
    with pytest.raises(NewerLedger):
        Ledger.open(address)


def test_eight_processes_open_the_same_new_ledger_at_once(address: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, address, f"session {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert out == "done\n", err

    with Ledger.open(address, create=False) as ledger:
        assert len(ledger.sessions()) == PROCESSES + 1
        assert ledger.thread("shared").depth == PROCESSES
        assert ledger.audit() == ()


def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.touch()

    with Ledger.open(str(file)) as ledger:
        ledger.record("main", "q", "r")

    with Ledger.open(str(file), read_only=True) as ledger:
        assert ledger.audit() == ()
        assert ledger.thread("main").depth == 1


def test_an_empty_schema_becomes_a_ledger(
    new_schema: Callable[[], str], postgres_server: str
) -> None:
    address = new_schema()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {address.rpartition('=')[2]}")

    with Ledger.open(address) as ledger:
        ledger.record("main", "q", "r")
        assert ledger.audit() == ()


def test_a_ledger_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"

    with Ledger.open(str(file)) as ledger:
        ledger.record("main", "q", "r")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

    assert set(modes.values()) == {0o600}, modes


def test_a_ledger_is_found_through_a_link_and_by_its_long_name(tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        ledger.record("main", "q", "r")
    (tmp_path / "link.db").symlink_to(tmp_path / "ledger.db")

    for address in (str(tmp_path / "link.db"), f"sqlite:///{tmp_path / 'ledger.db'}"):
        with Ledger.open(address) as ledger:
            ledger.record("main", "q", "r")

    assert not list(tmp_path.glob("link.db[.-]*"))


def test_a_program_stops_writing_once_a_newer_one_has_migrated_its_ledger(
    ledger: Ledger, address: str
) -> None:
    ledger.record("main", "q", "r")
    newer = migrations.newest() + 1
    with closing(open_database(address)) as other:
        other.restore(
            lambda tx: tx.run("insert_migration", number=newer, name="newer", applied_at=0)
        )

    for _ in range(2):
        with pytest.raises(NewerLedger, match=f"was brought to schema {newer}") as refused:
            ledger.record("main", "q", "r")
        assert "Restart this program with the newer version" in refused.value.hint

    with Raw(address) as raw:
        assert raw.one("SELECT count(*) FROM turns") == 1


def test_guards_made_anew_by_a_program_of_the_same_version_stop_nobody(
    ledger: Ledger, address: str
) -> None:
    ledger.record("main", "q", "r")
    with closing(open_database(address)) as other:
        other.restore(lambda tx: None)
    ledger.record("main", "q", "r")
    assert ledger.audit() == ()
