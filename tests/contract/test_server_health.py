"""Doctor knows the PostgreSQL server: settings that weaken promises, poolers, bloat, indexes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from agents_ledger import Ledger
from agents_ledger.ledger.maintenance import doctor, server_health
from agents_ledger.ledger.maintenance.doctor import Fact
from agents_ledger.model.ids import new_id
from tests.conftest import schemas
from tests.pgbouncer import Mode, pgbouncer
from tests.raw import Raw
from tests.replicated_servers import Pair, replicated_servers
from tests.waiting import until


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


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with replicated_servers() as pair:
        Ledger.open(pair.primary.address).close()
        pair.catch_up()
        yield pair


@contextmanager
def setting(pair: Pair, name: str, value: str) -> Iterator[None]:
    pair.primary.set(f"{name} = {value}")
    try:
        yield
    finally:
        pair.primary.set(f"{name} = DEFAULT")


def write_log(pair: Pair, megabytes: int) -> None:
    """Let the primary's log grow by so much."""
    with psycopg.connect(pair.primary.address, autocommit=True) as connection:
        text = "repeat('x', 1 << 20)"
        connection.execute(
            f"SELECT pg_logical_emit_message(FALSE, '', {text})"
            f" FROM generate_series(1, {megabytes})"
        )


@pytest.mark.parametrize(
    ("name", "value", "level", "remark"),
    [
        ("fsync", "off", "problem", "a crash can lose"),
        ("full_page_writes", "off", "problem", "a crash can lose"),
        ("full_page_writes", "on", "ok", ""),
        ("autovacuum", "off", "note", "tables grow"),
        ("autovacuum", "on", "ok", ""),
    ],
)
def test_a_setting_of_the_server_that_weakens_a_promise_is_named(
    pair: Pair, name: str, value: str, level: str, remark: str
) -> None:
    address = pair.primary.address
    with setting(pair, name, value):
        until(lambda: facts(address)[name].value == value)
        fact = facts(address)[name]

    assert fact.level == level
    assert remark in fact.remark


def test_an_asynchronous_standby_is_named_and_a_synchronous_one_is_not(pair: Pair) -> None:
    address = pair.primary.address
    fact = facts(address)["asynchronous_standbys"]
    assert (fact.value, fact.level) == (1, "note")
    assert "synchronous_standby_names" in fact.remark

    with setting(pair, "synchronous_standby_names", "'*'"):
        until(lambda: facts(address)["asynchronous_standbys"].value == 0)
        known = facts(address)

    assert known["standbys"].value == 1
    assert known["asynchronous_standbys"].level == "ok"
    assert "awaited_standbys" not in known


def test_a_standby_that_every_commit_waits_for_in_vain_is_a_problem(pair: Pair) -> None:
    with setting(pair, "synchronous_standby_names", "'nobody'"):
        until(lambda: "awaited_standbys" in facts(pair.primary.address))
        fact = facts(pair.primary.address)["awaited_standbys"]

    assert (fact.value, fact.level) == ("nobody", "problem")


def test_a_role_that_may_not_see_standbys_is_told_so(pair: Pair) -> None:
    with psycopg.connect(pair.primary.address, autocommit=True) as connection:
        connection.execute(
            "CREATE ROLE ada LOGIN; GRANT USAGE ON SCHEMA agents_ledger TO ada;"
            " GRANT SELECT ON ALL TABLES IN SCHEMA agents_ledger TO ada"
        )

    fact = facts(pair.primary.address.replace("postgres:@", "ada@"))["asynchronous_standbys"]

    assert (fact.value, fact.level) == (None, "note")
    assert "pg_read_all_stats" in fact.remark


def test_the_lag_of_a_standby_is_named_on_both_servers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.catch_up()
    assert facts(pair.primary.address)["standby_lag_bytes"].level == "ok"
    with pair.lagging():
        with Ledger.open(pair.primary.address) as ledger:
            ledger.record("main", "q", "r")
        write_log(pair, 70)
        until(lambda: facts(pair.primary.address)["standby_lag_bytes"].level == "note")
        until(lambda: facts(pair.standby)["replay_delay_seconds"].value >= 1)
        monkeypatch.setattr(server_health, "DELAY_SECONDS_MAX", 0)
        known = facts(pair.standby)
    pair.catch_up()

    assert known["server_role"].value == "standby"
    assert known["replay_delay_seconds"].level == "note"
    assert facts(pair.standby)["replay_delay_seconds"].value == 0


def test_a_standby_that_receives_nothing_is_named(pair: Pair) -> None:
    assert facts(pair.standby)["wal_receiver"].level == "ok"
    with psycopg.connect(pair.standby, autocommit=True) as connection:
        [(primary,)] = connection.execute("SHOW primary_conninfo").fetchall()

        def follow(conninfo: str) -> None:
            value = sql.Literal(conninfo)
            connection.execute(sql.SQL("ALTER SYSTEM SET primary_conninfo = {}").format(value))
            connection.execute("SELECT pg_reload_conf()")

        follow("")
        try:
            until(lambda: facts(pair.standby)["wal_receiver"].value == "none")
            fact = facts(pair.standby)["wal_receiver"]
        finally:
            follow(primary)
    until(lambda: facts(pair.standby)["wal_receiver"].value == "running")

    assert fact.level == "note"


def test_a_replication_slot_that_nobody_uses_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_health, "SLOT_BYTES_MAX", 1 << 20)
    address = pair.primary.address
    with psycopg.connect(address, autocommit=True) as connection:
        assert facts(address)["inactive_slot_bytes"].level == "ok"
        connection.execute("SELECT pg_create_physical_replication_slot('left_over', TRUE)")
        write_log(pair, 2)
        fact = facts(address)["inactive_slot_bytes"]
        connection.execute("SELECT pg_drop_replication_slot('left_over')")

    assert fact.level == "note"
    assert "pg_drop_replication_slot" in fact.remark


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("data_checksums", "off", "note"),
        ("tcp_keepalives_idle", 7200, "note"),
        ("tcp_keepalives_idle", 0, "ok"),  # a Unix socket
        ("replay_delay_seconds", None, "ok"),  # it has replayed nothing yet
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


def test_a_table_that_is_much_larger_than_its_rows_is_named(new_schema: Callable[[], str]) -> None:
    address = new_schema()
    Ledger.open(address).close()
    with Raw(address) as raw:
        for name, share in (("sparse", 10), ("dense", 100)):
            raw.execute(f"CREATE TABLE {name} (word TEXT) WITH (fillfactor = {share})")
            raw.execute(f"INSERT INTO {name} SELECT repeat('x', 400) FROM generate_series(1, 9000)")
            raw.execute(f"ANALYZE {name}")

    [sparse] = facts(address)["bloated_tables"].value

    assert re.fullmatch(r"sparse: \d\d MB, its rows take about 3 MB", sparse)


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
