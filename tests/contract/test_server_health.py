"""Doctor knows the PostgreSQL server: settings that weaken promises, poolers, bloat, indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from agents_ledger import Ledger
from agents_ledger.ledger.maintenance import doctor
from agents_ledger.ledger.maintenance.doctor import Fact
from agents_ledger.model.ids import new_id
from agents_ledger.store.postgres import health
from tests.conftest import schemas
from tests.pgbouncer import Mode, pgbouncer
from tests.raw import Raw


def facts(address: str) -> dict[str, Fact]:
    known, error = doctor.examine(address)
    assert error is None
    return {fact.name: fact for fact in known}


@pytest.fixture
def ledger_of_role(
    postgres_server: str, new_schema: Callable[[], str]
) -> Iterator[Callable[..., str]]:
    """The address of a ledger for a role of its own that has these settings."""
    address, role = new_schema(), f"health_{new_id().lower()}"
    Ledger.open(address).close()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")

        def new(**settings: str) -> str:
            for name, value in settings.items():
                connection.execute(f"ALTER ROLE {role} SET {name} TO '{value}'")
            return address.replace("//postgres", f"//{role}", 1)

        yield new
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize(
    ("name", "value", "level", "remark"),
    [
        ("synchronous_commit", "on", "ok", ""),
        ("synchronous_commit", "remote_apply", "ok", ""),
        ("synchronous_commit", "remote_write", "note", "crash together"),
        ("synchronous_commit", "local", "note", "a failover can lose"),
        ("synchronous_commit", "off", "problem", "a crash can lose"),
        ("statement_timeout", "5s", "note", "audits, backups and imports"),
        ("statement_timeout", "1h", "ok", ""),
        ("idle_in_transaction_session_timeout", "0", "note", "keeps its locks"),
        ("idle_in_transaction_session_timeout", "10min", "ok", ""),
        ("wal_sender_timeout", "0", "note", "holds up every commit"),
        ("zero_damaged_pages", "on", "problem", "hides damaged pages"),
    ],
)
def test_a_setting_of_the_role_that_weakens_a_promise_is_named(
    ledger_of_role: Callable[..., str], name: str, value: str, level: str, remark: str
) -> None:
    fact = facts(ledger_of_role(**{name: value}))[name]

    assert fact.level == level
    assert remark in fact.remark


def test_a_server_that_does_not_flush_is_a_problem(
    postgres_server: str, new_schema: Callable[[], str]
) -> None:
    """The server of the tests is such a one."""
    address = new_schema()
    Ledger.open(address).close()

    with psycopg.connect(postgres_server) as connection:
        for name in ("fsync", "full_page_writes"):
            [(value,)] = connection.execute(f"SHOW {name}").fetchall()
            assert facts(address)[name].level == ("ok" if value == "on" else "problem")


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("data_checksums", "off", "note"),
        ("autovacuum", "off", "note"),
        ("tcp_keepalives_idle", 7200, "note"),
        ("tcp_keepalives_idle", 0, "ok"),  # a Unix socket
        ("asynchronous_standbys", 1, "note"),
        ("standby_lag_bytes", 1 << 30, "note"),
        ("standby_lag_bytes", 0, "ok"),
        ("replay_delay_seconds", 60, "note"),
        ("replay_delay_seconds", None, "ok"),  # it has replayed nothing yet
        ("inactive_slot_bytes", 1 << 34, "note"),
        ("transaction_age", 1 << 30, "problem"),
        ("transaction_age", 200_000_000, "ok"),
    ],
)
def test_values_of_a_server_are_judged(name: str, value: Any, level: str) -> None:
    assert doctor._judge(name, value).level == level


def test_missing_and_unused_indexes_are_named(new_schema: Callable[[], str]) -> None:
    address = new_schema()
    Ledger.open(address).close()
    assert facts(address)["missing_indexes"].value == []
    assert facts(address)["unused_indexes"].value == []
    with Raw(address) as raw:
        raw.execute("DROP INDEX idx_turns_started")
        raw.execute("CREATE INDEX idx_of_mine ON turns (model)")

    found = facts(address)

    assert (found["missing_indexes"].value, found["missing_indexes"].level) == (
        ["idx_turns_started"],
        "problem",
    )
    assert (found["unused_indexes"].value, found["unused_indexes"].level) == (
        ["idx_of_mine"],
        "note",
    )


def test_a_table_with_many_dead_rows_is_named(new_schema: Callable[[], str]) -> None:
    address = new_schema()
    Ledger.open(address).close()
    assert facts(address)["bloated_tables"].value == []
    with Raw(address) as raw:
        raw.execute("CREATE TABLE large (n BIGINT) WITH (autovacuum_enabled = off)")
        raw.execute("INSERT INTO large SELECT generate_series(1, 30000)")
        raw.execute("DELETE FROM large WHERE n > 10000")
        raw.execute("SELECT pg_stat_force_next_flush()")

    fact = facts(address)["bloated_tables"]

    assert fact.value == ["large: 20,000 dead rows, 10,000 live ones"]
    assert "VACUUM" in fact.remark


def test_a_table_that_is_much_larger_than_its_rows_is_named() -> None:
    megabyte = 1 << 20
    tables = [
        ("sparse", 1000, 0, 100 * megabyte, 20 * megabyte),
        ("full", 1000, 0, 100 * megabyte, 60 * megabyte),
        ("small", 10, 0, 10 * megabyte, megabyte),
        ("unknown", 10, 0, 100 * megabyte, None),
    ]

    assert health.bloated(tables) == ["sparse: 100 MB, its rows take about 20 MB"]


@contextmanager
def own_database(server: str) -> Iterator[str]:
    name = f"pooled_{new_id().lower()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield server.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_and_its_mode_are_named(postgres_server: str, mode: Mode) -> None:
    with (
        own_database(postgres_server) as server,
        pgbouncer(server, mode) as pooled,
        schemas(pooled) as new,
    ):
        address = new()
        Ledger.open(address).close()

        assert facts(address)["pooler"].value == f"{mode} mode"


def test_without_a_pooler_none_is_named(new_schema: Callable[[], str]) -> None:
    address = new_schema()
    Ledger.open(address).close()

    assert facts(address)["pooler"].value == "none"
