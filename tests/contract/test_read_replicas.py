"""A ledger whose reads go to a standby: it reads what it wrote, and goes on without the standby."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from agents_ledger import AsyncLedger, Ledger, OutcomeUnknown, Refused, Unreachable
from agents_ledger.ledger.maintenance import doctor
from agents_ledger.model.ids import new_id
from agents_ledger.store.postgres import standby
from agents_ledger.store.postgres.address import split
from tests.builders import chain
from tests.pgbouncer import pgbouncer
from tests.replicated_servers import Pair, replicated_servers
from tests.trust import harness
from tests.waiting import until


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with replicated_servers() as pair:
        yield pair


LEDGERS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


def backends(address: str) -> int:
    """How many connections of ledgers a server has."""
    with psycopg.connect(address, autocommit=True) as connection:
        return int(connection.execute(f"SELECT count(*) {LEDGERS}").fetchall()[0][0])


def end_backends(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) {LEDGERS}")


def test_reads_go_to_the_standby_once_it_has_what_was_written(pair: Pair) -> None:
    with Ledger.open(pair.address()) as ledger:
        chain(ledger, "main", 3)
        pair.catch_up()

        assert ledger.thread("main").depth == 3
        assert backends(pair.standby) == 1
        assert ledger.audit() == ()


def test_a_handle_reads_what_it_wrote_while_the_standby_lags(pair: Pair) -> None:
    with Ledger.open(pair.address()) as ledger:
        chain(ledger, "main", 1)
        pair.catch_up()
        assert ledger.thread("main").depth == 1
        with pair.lagging():
            for depth in range(2, 6):
                turn = ledger.record("main", "q", "r")
                assert ledger.head("main") == turn.id
                assert ledger.thread("main").depth == depth
            with ledger.turn("main", "live") as live:
                assert ledger.live_turns() == (live.id,)
                live.respond("r")
            assert ledger.head("main") == live.id


def test_tasks_read_what_they_wrote_while_the_standby_lags(pair: Pair) -> None:
    async def main() -> list[int]:
        async with AsyncLedger.open(pair.address()) as ledger:

            async def write(name: str) -> int:
                for _ in range(3):
                    turn = await ledger.record(name, "q", "r")
                    assert await ledger.head(name) == turn.id
                return (await ledger.thread(name)).depth

            names = [f"s{n}" for n in range(8)]
            await asyncio.gather(*map(write, names))
            pair.catch_up()
            await ledger.head("s0")
            with pair.lagging():
                return await asyncio.gather(*map(write, names))

    assert asyncio.run(main()) == [6] * 8


def test_what_others_wrote_is_read_once_it_is_replayed(pair: Pair) -> None:
    address = pair.address()
    with Ledger.open(address) as ledger, Ledger.open(address) as other:
        chain(ledger, "main", 1)
        pair.catch_up()
        assert ledger.thread("main").depth == 1
        with pair.lagging():
            other.record("main", "q", "r")
            assert ledger.thread("main").depth == 1
        until(lambda: ledger.thread("main").depth == 2)


def test_a_token_that_was_revoked_elsewhere_is_refused_while_the_standby_lags(pair: Pair) -> None:
    address = pair.address()
    with Ledger.open(address) as ledger, Ledger.open(address) as other:
        _, secret = ledger.tokens.create("laptop", ("read",))
        pair.catch_up()
        assert ledger.tokens.find(secret) is not None
        with pair.lagging():
            other.tokens.revoke("laptop")
            assert ledger.tokens.find(secret) is None


def test_a_handle_that_only_reads_is_served_by_the_standby_alone(pair: Pair) -> None:
    address = pair.address()
    with Ledger.open(address) as ledger:
        chain(ledger, "main", 2)
    pair.catch_up()

    with Ledger.open(address, read_only=True) as ledger:
        assert ledger.thread("main").depth == 2
        assert backends(pair.standby) >= 1
        until(lambda: backends(pair.primary.address) == 0)
    facts = {fact.name: fact.value for fact in doctor.examine(address)[0]}
    assert facts["server_role"] == "standby"


def test_reads_go_to_the_primary_when_no_standby_answers(pair: Pair) -> None:
    with harness.workplace(on_disk=True) as folder, pair.primary.replica(folder) as address:
        lost = Pair(pair.primary, address)
        ledger = Ledger.open(lost.address())
        chain(ledger, "main", 1)
        lost.catch_up()
        assert ledger.thread("main").depth == 1
    with ledger:
        for depth in (2, 3):
            ledger.record("main", "q", "r")
            assert ledger.thread("main").depth == depth


def test_what_was_read_once_is_read_again_while_the_standby_lags(pair: Pair) -> None:
    """On the primary too, when the standby did not answer just then."""
    address = pair.address()
    with Ledger.open(address) as ledger, Ledger.open(address) as other:
        chain(ledger, "main", 1)
        pair.catch_up()
        assert ledger.thread("main").depth == 1
        with pair.lagging():
            newest = other.record("main", "q", "r")
            assert ledger.head("main") != newest.id
            end_backends(pair.standby)
            assert ledger.head("main") == newest.id
            assert ledger.get_turn(newest.id).depth == 2
            assert ledger.thread("main").depth == 2


def test_reads_go_back_to_the_standby_when_it_has_caught_up(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "LAG_PAUSE_SECONDS", 0)
    address = pair.address()
    with Ledger.open(address) as ledger, Ledger.open(address) as other:
        chain(ledger, "main", 1)
        with pair.lagging():
            assert ledger.thread("main").depth == 1
        pair.catch_up()
        assert ledger.thread("main").depth == 1
        with pair.lagging():
            other.record("main", "q", "r")
            assert ledger.thread("main").depth == 1


def test_a_standby_behind_a_pooler_is_not_read(pair: Pair) -> None:
    """The next transaction may be on another server than the one that was looked at."""
    with pgbouncer(pair.standby, "transaction") as pooler, contextlib.ExitStack() as stack:
        socket = pair.primary.address.split("host=")[1]
        port = urlsplit(pooler).port
        schema = f"ledger_{new_id().lower()}"
        hosts = f"host={socket},127.0.0.1&port=5432,{port}&schema={schema}"
        address = f"postgresql://postgres@/postgres?{hosts}"
        ledger = stack.enter_context(Ledger.open(f"{address}&read_from=standby"))
        other = stack.enter_context(Ledger.open(f"{address}&target_session_attrs=read-write"))
        chain(ledger, "main", 1)
        pair.catch_up()
        assert ledger.thread("main").depth == 1
        with pair.lagging():
            other.record("main", "q", "r")
            assert ledger.thread("main").depth == 2


def test_a_role_without_rights_on_the_server_reads_the_standby(pair: Pair) -> None:
    address = pair.address()
    with psycopg.connect(pair.primary.address, autocommit=True) as connection:
        connection.execute("CREATE ROLE ada LOGIN; GRANT CREATE ON DATABASE postgres TO ada")
    with Ledger.open(address.replace("postgres@", "ada@")) as ledger:
        chain(ledger, "main", 3)
        pair.catch_up()

        assert ledger.thread("main").depth == 3
        assert backends(pair.standby) == 1


def test_a_promoted_standby_is_written_and_a_former_primary_is_not_read() -> None:
    with replicated_servers() as pair, contextlib.ExitStack() as stack:
        address = pair.address()
        ledger = stack.enter_context(Ledger.open(address))
        chain(ledger, "main", 1)
        pair.catch_up()
        assert ledger.thread("main").depth == 1
        with psycopg.connect(pair.standby, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
        with psycopg.connect(pair.primary.address, autocommit=True) as connection:
            # Its log goes on for a while, and is longer than the other one from now on.
            connection.execute("CREATE TABLE unreplicated AS SELECT generate_series(1, 9999)")
        (pair.primary.server.pgdata / "standby.signal").touch()
        pair.primary.restart("fast")

        # It finds the former primary, which is a standby now.
        opened_later = stack.enter_context(Ledger.open(address))
        for depth in range(2, 8, 2):
            record_through_failover(ledger)
            assert ledger.thread("main").depth == depth
            record_through_failover(opened_later)
            assert opened_later.thread("main").depth == depth + 1
        assert ledger.audit() == ()


def record_through_failover(ledger: Ledger) -> None:
    """Make the call again, as the errors of a failover ask for."""
    turn_id = new_id()

    def is_recorded() -> bool:
        with contextlib.suppress(Unreachable, OutcomeUnknown):
            return ledger.record("main", "q", "r", id=turn_id).id == turn_id
        return False

    until(is_recorded)


def test_writes_go_to_the_primary_whichever_host_is_named_first(pair: Pair) -> None:
    address = pair.address()
    first, second = address.split("host=")[1].split("&")[0].split(",")
    turned = address.replace(f"{first},{second}", f"{second},{first}")

    with Ledger.open(turned) as ledger:
        assert ledger.record("main", "q", "r").depth == 1


def test_the_option_has_two_values() -> None:
    assert not split("postgresql://host/db?schema=team&read_from=primary").reads_standby
    assert split("postgresql://host/db?read_from=standby&sslmode=require") == (
        "postgresql://host/db?sslmode=require",
        "agents_ledger",
        True,
    )
    with pytest.raises(Refused, match="read_from"):
        split("postgresql://host/db?read_from=nearest")
