"""A PostgreSQL server and its standby."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

from agents_ledger.model.ids import new_id
from agents_ledger.store.postgres.standby import POSITION
from tests.trust import harness
from tests.trust.server import OwnServer, own_server
from tests.waiting import until


class Pair(NamedTuple):
    primary: OwnServer
    standby: str  # its address

    def address(self, *, read_from: str = "standby") -> str:
        """A new ledger, by an address of both servers."""
        sockets = [address.split("host=")[1] for address in (self.primary.address, self.standby)]
        host = ",".join(sockets)
        schema = f"ledger_{new_id().lower()}"
        return f"postgresql://postgres@/postgres?host={host}&schema={schema}&read_from={read_from}"

    @contextmanager
    def lagging(self) -> Iterator[None]:
        """The standby receives what is written, but does not show it."""
        with psycopg.connect(self.standby, autocommit=True) as connection:
            connection.execute("SELECT pg_wal_replay_pause()")
            paused = "SELECT pg_get_wal_replay_pause_state()"
            until(lambda: connection.execute(paused).fetchone() == ("paused",))
        try:
            yield
        finally:
            with psycopg.connect(self.standby, autocommit=True) as connection:
                connection.execute("SELECT pg_wal_replay_resume()")

    def catch_up(self) -> None:
        with (
            psycopg.connect(self.primary.address, autocommit=True) as connection,
            psycopg.connect(self.standby, autocommit=True) as behind,
        ):
            written = connection.execute(POSITION).fetchall()
            until(lambda: behind.execute(POSITION).fetchall() >= written)


@contextmanager
def replicated_servers() -> Iterator[Pair]:
    with own_server() as primary, harness.workplace(on_disk=True) as folder:
        primary.set("fsync = off")
        with primary.replica(folder) as standby:
            yield Pair(primary, standby)
