"""Moves the write-ahead log of a SQLite ledger into its file, and keeps the log short."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class LogLimits(NamedTuple):
    """How long the log may get, and what is done to shorten it."""

    due_bytes: int = 16 * 1024 * 1024  # a checkpoint is due above this
    long_bytes: int = 64 * 1024 * 1024  # above this a checkpoint waits for readers to end
    wait_ms: int = 50  # so long, while nobody can write
    wait_every_seconds: float = 1.0


class LogKeeper:
    """The log of one ledger, as a handle that writes looks after it.

    SQLite reuses the log from its start once all of it is in the file and no reader needs it. One
    read that never ends prevents that, and so do short reads that overlap: there is always one that
    began before the last commit. While the log is long, a checkpoint therefore waits an instant for
    reads that are under way; those that begin meanwhile do not need the log.
    """

    def __init__(self, ledger: Path, limits: LogLimits, connect: Callable[[], Any]) -> None:
        self._path = f"{ledger}-wal"
        self._limits = limits
        self._connect = connect
        self._connection: Any = None
        self._try_above = limits.due_bytes
        self._wait_after = 0.0

    def size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except FileNotFoundError:
            return 0

    def is_due(self) -> bool:
        """Whether the log has grown so much that it is to be moved into the file."""
        if self.size() > self._limits.due_bytes:
            return True
        self._try_above = self._limits.due_bytes
        return False

    def checkpoint(self, writing: Any) -> None:
        """Move the log into the file, unless that was just tried. The caller keeps our writers out.

        Older SQLite can lose the log's order when a checkpoint races a write, so an empty
        transaction, or the checkpoint that waits, keeps out programs that do not know our queue.
        """
        size, limits = self.size(), self._limits
        waits = size > limits.long_bytes and time.monotonic() >= self._wait_after
        if not waits and size <= self._try_above:
            return
        self._try_above = size + limits.due_bytes  # not at every commit
        if waits:
            self._wait_after = time.monotonic() + limits.wait_every_seconds
            self._checkpoint("RESTART")
            return
        writing.execute("BEGIN IMMEDIATE")
        try:
            self._checkpoint("PASSIVE")
        finally:
            if writing.in_transaction:
                writing.execute("ROLLBACK")

    def _checkpoint(self, mode: str) -> None:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.execute(f"PRAGMA busy_timeout={self._limits.wait_ms}")
        self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
