"""Statements that somebody types: they read tables and do nothing else, whoever asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from agents_ledger import Ledger, Refused
from agents_ledger.store.postgres.query import run_query
from tests.builders import chain
from tests.engines import on_postgres, on_sqlite
from tests.raw import Raw

# The role of the tests is a superuser's.
FORBIDDEN = [
    "COPY (SELECT 1) TO PROGRAM 'touch {file}'",
    "COPY (SELECT 1) TO '{file}'",
    "COPY sessions FROM PROGRAM 'touch {file}; true'",
    "SELECT pg_read_file('PG_VERSION')",
    "SELECT PG_READ_FILE('PG_VERSION')",
    "SELECT pg_catalog.\"pg_read_file\"('PG_VERSION')",
    "SELECT pg_read_file/**/('PG_VERSION')",
    "SELECT U&\"pg\\005fread\\005ffile\"('PG_VERSION')",
    "SELECT 1 AS \"a'\", pg_read_file('PG_VERSION') AS \"b'\"",
    "SELECT 1 LIMIT length(pg_read_file('PG_VERSION'))",
    "SELECT $a$'$a$, pg_read_file('PG_VERSION'), $a$'$a$",
    "SELECT E'\\'', pg_read_file('PG_VERSION'), E'\\''",
    "SELECT 1 /* ' */, pg_read_file('PG_VERSION') /* ' */",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_export(1, '{file}')",
    "SELECT lo_import('PG_VERSION')",
    "SELECT pg_reload_conf()",
    "SELECT query_to_xml('SELECT pg_read_file(''PG_VERSION'')', true, true, '')",
    "SELECT set_config('role', 'none', false)",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_terminate_backend(1)",
    "DO $$ BEGIN PERFORM 1; END $$",
    "SET ROLE NONE",
    "RESET ROLE",
    "LOCK TABLE sessions",
    "SELECT 1; SELECT 2",
    "SELECT 1; COMMIT; DELETE FROM names",
    "SHOW fsync; DELETE FROM names",
    "EXPLAIN SELECT 1; DELETE FROM names",
    "WITH gone AS (DELETE FROM names RETURNING 1) SELECT * FROM gone",
    "EXPLAIN ANALYZE DELETE FROM names",
    "EXPLAIN (ANALYZE, VERBOSE) DELETE FROM names",
    "SELECT * INTO mine FROM sessions",
    "SELECT * FROM sessions FOR UPDATE",
    "PREPARE mine AS SELECT 1",
    "LISTEN mine",
    "SELECT nextval('session_history_id_seq')",
]


@on_postgres
def test_a_superuser_can_neither_leave_the_database_nor_change_it_with_a_query(
    ledger: Ledger, raw: Raw, tmp_path: Path
) -> None:
    chain(ledger, "main", 1)
    before = raw.dump()
    file = tmp_path / "made"

    reached = []
    for statement in FORBIDDEN:
        try:
            ledger.query(statement.format(file=file))
        except Refused:
            continue
        reached.append(statement)

    assert reached == []
    assert raw.dump() == before
    assert not file.exists()
    assert "mine" not in raw.tables()


@on_postgres
def test_a_query_cannot_end_another_session(ledger: Ledger, postgres_server: str) -> None:
    with psycopg.connect(postgres_server) as other:
        with pytest.raises(Refused, match="may not call pg_terminate_backend"):
            ledger.query(f"SELECT pg_terminate_backend({other.info.backend_pid})")
        assert other.execute("SELECT 1").fetchone() == (1,)


@on_postgres
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT label FROM sessions",
        "SELECT label FROM sessions; -- the end",
        "WITH named AS (SELECT label FROM sessions) SELECT * FROM named",
        "SELECT label FROM sessions WHERE label LIKE 'm%'",
        "SELECT label FROM sessions WHERE label <> 'pg_read_file(1)'",
        "(SELECT label FROM sessions)",
    ],
)
def test_queries_of_every_kind_read(ledger: Ledger, statement: str) -> None:
    chain(ledger, "main", 1)
    assert ledger.query(statement) == (["label"], [("main",)])


@on_postgres
@pytest.mark.parametrize(
    ("statement", "part"),
    [
        ("VALUES (1, 'a')", "a"),
        ("TABLE schema_migrations", "0001"),
        ("SHOW server_encoding", "UTF8"),
        ("show Server_Encoding;", "UTF8"),
        ("EXPLAIN SELECT * FROM sessions", "sessions"),
        ("EXPLAIN ANALYZE VERBOSE SELECT * FROM sessions", "actual"),
        ("explain (analyze, format json) SELECT * FROM sessions", "Actual Rows"),
        ("SELECT current_user", "pg_read_all_data"),
    ],
)
def test_values_tables_plans_and_settings_can_be_asked_for(
    ledger: Ledger, statement: str, part: str
) -> None:
    chain(ledger, "main", 1)
    assert part in str(ledger.query(statement)[1])


@on_postgres
def test_a_query_leaves_nothing_on_its_connection(
    ledger: Ledger, new_address: Callable[[], str], postgres_server: str
) -> None:
    state = (
        "SELECT current_user, current_setting('search_path'),"
        " (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors)"
    )
    with psycopg.connect(postgres_server, autocommit=True, prepare_threshold=None) as connection:
        before = connection.execute(state).fetchone()
        for statement in ("SELECT 1", "EXPLAIN SELECT 1", "SHOW fsync"):
            with connection.transaction():
                connection.execute("SET TRANSACTION READ ONLY")
                run_query(connection.cursor(), statement)
            assert connection.execute(state).fetchone() == before


@on_sqlite
@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 7",
        "PRAGMA application_id = 7",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA wal_checkpoint",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA optimize",
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "PRAGMA temp_store_directory = '/'",
        "PRAGMA locking_mode = EXCLUSIVE",
        "SELECT load_extension('mine')",
        "SELECT writefile('{file}', 'x')",
        "SELECT readfile('/etc/hostname')",
        "ATTACH '{file}' AS mine",
        "VACUUM INTO '{file}'",
        "VACUUM",
        "REINDEX",
        "SELECT 1; DELETE FROM names",
    ],
)
def test_no_pragma_and_no_function_of_sqlite_writes(
    ledger: Ledger, address: str, raw: Raw, tmp_path: Path, statement: str
) -> None:
    chain(ledger, "main", 1)
    before, size = raw.dump(), os.stat(f"{address}-wal").st_size
    file = tmp_path / "made"

    with pytest.raises(Refused):
        ledger.query(statement.format(file=file))

    assert (raw.dump(), os.stat(f"{address}-wal").st_size) == (before, size)
    assert not file.exists()


@on_sqlite
@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA table_info(sessions)",
        "SELECT name FROM pragma_table_info('sessions')",
        "PRAGMA user_version",
        "PRAGMA integrity_check",
        "EXPLAIN QUERY PLAN SELECT * FROM sessions",
        "WITH a AS (SELECT 1) SELECT * FROM a",
    ],
)
def test_pragmas_of_sqlite_that_read_are_answered(ledger: Ledger, statement: str) -> None:
    assert ledger.query(statement)[1]
