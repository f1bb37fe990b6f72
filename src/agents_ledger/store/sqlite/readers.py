"""A pool of reading connections of one handle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agents_ledger.model.limits import LedgerLimits
from agents_ledger.store.sealed_cache import SealedCache
from agents_ledger.store.sqlite.statements import ReadStatements


class ReaderPool:
    """As many connections as there were readers at one time."""

    def __init__(
        self,
        connect: Callable[[], Any],
        cache: SealedCache,
        limits: LedgerLimits,
        *,
        wait: bool = True,
    ) -> None:
        self._connect = connect
        self._limits = limits
        self._cache = cache
        self._wait = wait  # for locks
        self._idle: list[ReadStatements] = []

    @contextmanager
    def reading(self) -> Iterator[ReadStatements]:
        """A connection for a while, without a transaction."""
        try:
            # Not `if self._idle`: another thread may take the last one in between.
            reading = self._idle.pop()
        except IndexError:
            reading = ReadStatements(self._connect(), self._cache, self._limits)
            if not self._wait:
                reading.connection.execute("PRAGMA busy_timeout=0")
        try:
            yield reading
        finally:
            # Not where Ctrl-C struck before its end: it would keep its snapshot.
            if reading.connection.in_transaction:
                reading.connection.close()
            else:
                self._idle.append(reading)

    @contextmanager
    def snapshot(self) -> Iterator[ReadStatements]:
        """A connection for a while that stands on one snapshot."""
        with self.reading() as reading:
            try:
                reading.begin()
                yield reading
            finally:
                reading.end()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().connection.close()
