"""What takes a while to find out is made beside the requests, which wait for it only briefly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from agents_ledger.model.ids import now_ms

T = TypeVar("T")

FRESH_MS = 60_000
WAIT_S = 0.05  # for something newer
WAIT_FIRST_S = 1.0  # for the first there is
STOP_S = 5.0


class _Made(NamedTuple):
    at: int
    value: object


class Keeper:
    """Values by name, each made by one thread at a time."""

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}
        self._making: dict[str, threading.Thread] = {}
        self._failed: dict[str, Exception] = {}
        self._lock = threading.Lock()

    def get(self, name: str, make: Callable[[], T]) -> T | None:
        """Not older than a minute, unless making it takes long; None while there is nothing."""
        made = self._made.get(name)
        if made is not None and now_ms() - made.at <= FRESH_MS:
            return cast(T, made.value)
        self.start(name, make).join(WAIT_FIRST_S if made is None else WAIT_S)
        failure = self._failed.pop(name, None)
        if failure is not None:
            raise failure
        made = self._made.get(name)
        return cast(T, made.value) if made is not None else None

    def start(self, name: str, make: Callable[[], object]) -> threading.Thread:
        """Begin to make it, unless somebody is at it."""
        with self._lock:
            thread = self._making.get(name)
            if thread is None or not thread.is_alive():
                thread = threading.Thread(target=self._make, args=(name, make), daemon=True)
                self._making[name] = thread
                thread.start()
            return thread

    def _make(self, name: str, make: Callable[[], object]) -> None:
        started = now_ms()
        try:
            self._made[name] = _Made(started, make())
        except Exception as failure:  # told to whoever asks next
            self._failed[name] = failure

    def forget(self) -> None:
        """Everything is to be made anew."""
        self._made.clear()

    def stop(self) -> None:
        """Wait for what is being made: it reads a ledger that is about to be closed."""
        for thread in list(self._making.values()):
            thread.join(STOP_S)
