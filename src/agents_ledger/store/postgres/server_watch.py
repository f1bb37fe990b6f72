"""Ends the wait for a server that no longer answers.

The kernel notices when a machine is gone (`postgres_address.KEEPALIVE`). It does not notice a
server, or a pooler before it, that has stopped but whose machine still acknowledges what is sent. A
statement may take long for good reasons, so an overdue one is no proof either: the server is asked
on a new connection, and only if it does not answer there, the overdue connections are shut down.
Whoever waits on one of them gets the driver's error for a lost connection.
"""

from __future__ import annotations

import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from agents_ledger.model.errors import OutcomeUnknown

PLAIN_WARNING = "01000"  # the code of a cancelled wait; others tell of a ROLLBACK without BEGIN
CHECKS = 4  # in the time after which an answer is overdue


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that can be shut down while another thread waits on it."""

    is_pooled = False  # a pooler stands before the server
    waiting_since: float | None = None
    _descriptor: int | None = None
    _warning = ""

    def watch(self) -> None:
        """Keep a descriptor of our own, for as long as this object lives: the number of the
        driver's may be another file's by the time it is used."""
        copy = socket.fromfd(self.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        self._descriptor = copy.detach()
        weakref.finalize(self, socket.close, self._descriptor)
        self.add_notice_handler(self._note_warning)

    def _note_warning(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == PLAIN_WARNING:
            self._warning = notice.message_primary or "warning"

    @contextmanager
    def confirmed(self) -> Iterator[None]:
        """Raise if a commit within the block is reported with a warning: the wait for a standby was
        cancelled, and a failover may lose what is committed here."""
        self._warning = ""
        yield
        if self._warning:
            raise OutcomeUnknown(f"the commit is not confirmed by a standby: {self._warning}")

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        self.waiting_since = time.monotonic()
        try:
            return super().wait(*args, **kwargs)
        finally:
            self.waiting_since = None

    def shut_down(self) -> None:
        if self._descriptor is None:
            return
        own = socket.socket(fileno=self._descriptor)
        try:
            with suppress(OSError):  # it is closed already
                own.shutdown(socket.SHUT_RDWR)
        finally:
            own.detach()


class Watch:
    """A thread that looks for overdue answers on the connections of one database."""

    def __init__(self, conninfo: str, overdue_seconds: float) -> None:
        self._conninfo = conninfo
        self._overdue_seconds = overdue_seconds
        self._connections: weakref.WeakSet[WatchedConnection] = weakref.WeakSet()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agents-ledger-watch", daemon=True)
        self._thread.start()

    def add(self, connection: WatchedConnection) -> None:
        """Watch a connection until it is closed."""
        connection.watch()
        self._connections.add(connection)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._overdue_seconds / CHECKS):
            overdue = self._overdue()
            if overdue and not self._answers():
                # Those that were answered meanwhile are not overdue any more.
                for connection in overdue & self._overdue():
                    connection.shut_down()

    def _overdue(self) -> set[WatchedConnection]:
        before = time.monotonic() - self._overdue_seconds
        return {
            connection
            for connection in list(self._connections)
            if (since := connection.waiting_since) is not None and since < before
        }

    def _answers(self) -> bool:
        """Whether the server answers a new connection, if only to refuse it: it may have no
        connection left because of statements as long as those that are overdue."""
        try:
            psycopg.connect(self._conninfo).close()
        except psycopg.errors.ConnectionTimeout:
            return False
        except psycopg.Error:
            return True
        return True
