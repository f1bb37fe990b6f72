"""A process that writes live turns to a PostgreSQL ledger, and the lease by which it lives."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg

from agents_ledger.model.errors import LedgerError
from agents_ledger.model.ids import new_id

if TYPE_CHECKING:
    from agents_ledger.store.postgres.engine import PostgresDatabase
    from agents_ledger.store.postgres.server_watch import WatchedConnection


class PostgresWriter:
    """A writer lives while it renews its lease, by the server's clock.

    A lock of the session would not do: behind a pooler a session is not ours.
    """

    def __init__(self, database: PostgresDatabase, lease_ms: int) -> None:
        self.id = new_id()
        self._database = database
        self._lease_ms = lease_ms
        self._stopped = threading.Event()
        self._connection: WatchedConnection | None = None
        self._renew()
        self._thread = threading.Thread(target=self._keep, name="agents-ledger-lease", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        """On a connection of its own: a pool that is exhausted must not end the lease."""
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect()
        self._database.attempt(
            self._connection, "write", lambda tx: tx.run("renew_writer", id=self.id)
        )

    def _keep(self) -> None:
        while not self._stopped.wait(self._lease_ms / 4000):
            try:
                self._renew()
            except (psycopg.Error, LedgerError):  # tried again; the lease is long
                if self._connection is not None:
                    self._connection.close()

    def forget(self, writer_id: str) -> None:
        """Nothing is left outside the tables."""

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self._connection is not None:
            self._connection.close()
