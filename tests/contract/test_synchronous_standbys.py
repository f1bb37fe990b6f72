"""With synchronous replication, a write is acknowledged when a standby has it, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from agents_ledger import Ledger, OutcomeUnknown, Unreachable
from agents_ledger.model.ids import new_id
from tests.trust.server import OwnServer, own_server
from tests.waiting import PATIENCE_S, until

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


class Unconfirmed:
    """A server whose synchronous standby never answers, and calls that wait for it."""

    def __init__(self, server: OwnServer, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        self.ledger = ledger
        self._server = server
        self._threads = threads

    def begin(self, call: Callable[[], object]) -> Future[object]:
        """A call that waits for the standby now, in a thread of its own."""
        future = self._threads.submit(call)
        until(lambda: future.done() or self.waits_in(""))
        assert not future.done()
        return future

    def cancel(self) -> None:
        """End the wait as an administrator can: the transaction stays committed here."""
        with psycopg.connect(self._server.address, autocommit=True) as connection:
            connection.execute(f"SELECT pg_cancel_backend(pid) FROM ({WAITING}) AS waiting")

    def confirm(self) -> None:
        self._server.set("synchronous_standby_names = ''")

    def waits_in(self, statement: str) -> bool:
        """Whether a statement that contains this text waits for the standby."""
        with psycopg.connect(self._server.address, autocommit=True) as connection:
            rows = connection.execute(f"{WAITING} AND query LIKE %s", (f"%{statement}%",))
            return rows.fetchone() is not None


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@pytest.fixture
def unconfirmed(server: OwnServer) -> Iterator[Unconfirmed]:
    with Ledger.open(server.address) as ledger, ThreadPoolExecutor(1) as threads:
        ledger.record("main", "q", "r")
        server.set("synchronous_standby_names = 'nobody'")
        calls = Unconfirmed(server, ledger, threads)
        try:
            yield calls
        finally:
            calls.confirm()
        assert ledger.audit() == ()


def test_a_cancelled_wait_is_no_acknowledgement(unconfirmed: Unconfirmed) -> None:
    ledger = unconfirmed.ledger
    call = unconfirmed.begin(lambda: ledger.fork("main", label="other"))
    unconfirmed.cancel()
    with pytest.raises(OutcomeUnknown, match="not confirmed by a standby"):
        call.result(PATIENCE_S)


def test_a_retry_waits_for_what_the_first_try_stored(unconfirmed: Unconfirmed) -> None:
    ledger, turn_id = unconfirmed.ledger, new_id()

    def record() -> str:
        return ledger.record("main", "Which?", "This one.", id=turn_id).id

    call = unconfirmed.begin(record)  # of its own accord it is made again on another connection
    unconfirmed.cancel()
    until(lambda: unconfirmed.waits_in("COMMIT") or call.done())
    assert not call.done()
    unconfirmed.confirm()
    assert call.result(PATIENCE_S) == record() == turn_id


@contextmanager
def demoted(server: OwnServer) -> Iterator[None]:
    """The server is a standby meanwhile, with all that it has committed."""
    signal = server.server.pgdata / "standby.signal"
    signal.touch()
    server.restart("fast")
    try:
        yield
    finally:
        signal.unlink()
        server.restart("fast")


def test_a_handle_that_writes_refuses_a_standby_and_says_what_to_do(server: OwnServer) -> None:
    with Ledger.open(server.address) as ledger:
        ledger.record("main", "q", "r")
        with demoted(server):
            for call in (lambda: ledger.fork("main", label="other"), lambda: ledger.thread("main")):
                with pytest.raises(Unreachable, match="is a standby") as refused:
                    call()
                assert "retry the call" in (refused.value.hint or "")
            with pytest.raises(Unreachable, match="is a standby"):
                Ledger.open(server.address)
            with Ledger.open(server.address, read_only=True) as reader:
                assert reader.thread("main").turns
        ledger.record("main", "q2", "r2")


def test_what_a_demoted_server_keeps_is_neither_refused_nor_shown(
    server: OwnServer, unconfirmed: Unconfirmed
) -> None:
    ledger, turn_id = unconfirmed.ledger, new_id()
    call = unconfirmed.begin(lambda: ledger.record("main", "q", "r", id=turn_id))
    with demoted(server):
        # The first try is stored there, the second one refused: together they prove nothing.
        with pytest.raises(OutcomeUnknown, match="is a standby") as unknown:
            call.result(PATIENCE_S)
        assert unknown.value.turn_id == turn_id
        with pytest.raises(Unreachable):
            ledger.get_turn(turn_id)
        with Ledger.open(server.address, read_only=True) as reader:
            assert reader.get_turn(turn_id)
