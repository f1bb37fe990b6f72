"""Rendered HTML, and values that take long to compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

import msgspec
from markupsafe import Markup

from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.usage import SessionUsage
from agents_ledger.model.sessions import Session

T = TypeVar("T")

CHARACTERS_MAX = 32_000_000  # of keys and HTML together
# An entry may take 1/64 of the cache: a larger one would push out too many others.
SHARE = 64
FRESH_MS = 60_000
LONG_DEPTH = 2000  # turns; summing up fewer takes about a millisecond
LONG_FRESH_MS = 5 * 60_000
LONG_SESSIONS_MAX = 1000
WAIT_S = 0.05  # for a newer value
WAIT_FIRST_S = 1.0  # for the first value
STOP_S = 5.0

_encode = msgspec.msgpack.Encoder().encode


class RenderCache:
    """HTML, keyed by every value it shows: an entry cannot be stale, because whatever changes in
    the ledger changes the key. The least recently used entry is dropped first."""

    def __init__(self, characters_max: int = CHARACTERS_MAX) -> None:
        self._max = characters_max
        self._entries: dict[bytes, Markup] = {}
        self._characters = 0
        self._lock = threading.Lock()
        self.misses = 0

    def get(self, values: object, render: Callable[[], str]) -> Markup:
        """The HTML of `values`; `render` is called if it is not cached."""
        try:
            key = _encode(values)
        except UnicodeEncodeError:  # an unpaired surrogate
            return Markup(render())  # noqa: S704 - rendered by a template that escapes
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._entries[key] = entry  # now the most recently used
                return entry
            self.misses += 1
        entry = Markup(render())  # noqa: S704
        if len(key) + len(entry) <= self._max // SHARE:
            self._add(key, entry)
        return entry

    def _add(self, key: bytes, entry: Markup) -> None:
        with self._lock:
            if key not in self._entries:
                self._entries[key] = entry
                self._characters += len(key) + len(entry)
            while self._characters > self._max:
                oldest = next(iter(self._entries))
                self._characters -= len(oldest) + len(self._entries.pop(oldest))


class _SummedSession(NamedTuple):
    at: int
    head: tuple[str | None, int]
    usage: SessionUsage

    def is_valid(self, head: tuple[str | None, int], now: int) -> bool:
        return self.head == head and now - self.at <= LONG_FRESH_MS


class SessionUsageCache:
    """What sessions used. Of a long thread every turn is read for it, so its sum is kept for some
    minutes while its head stays; a subagent that goes on meanwhile is counted afterwards."""

    def __init__(self, read: Callable[[list[str]], dict[str, SessionUsage]]) -> None:
        self._read = read
        self._long: dict[str, _SummedSession] = {}
        self._lock = threading.Lock()

    def get(self, sessions: Sequence[tuple[Session, int]]) -> dict[str, SessionUsage]:
        """By label, of sessions with the depths of their threads."""
        now = now_ms()
        long = {
            s.label: (s.thread_id, s.updated_at) for s, depth in sessions if depth >= LONG_DEPTH
        }
        with self._lock:
            known = {
                label: self._long[label].usage
                for label, head in long.items()
                if label in self._long and self._long[label].is_valid(head, now)
            }
        read = self._read([s.label for s, _ in sessions if s.label not in known])
        with self._lock:
            for label in long.keys() & read.keys():
                self._long.pop(label, None)
                self._long[label] = _SummedSession(now, long[label], read[label])
            while len(self._long) > LONG_SESSIONS_MAX:
                self._long.pop(next(iter(self._long)))
        return read | known

    def clear(self) -> None:
        with self._lock:
            self._long.clear()


class _Computed(NamedTuple):
    at: int
    value: object


class BackgroundCache:
    """Values by name, each computed by one thread at a time. Requests wait only briefly."""

    def __init__(self) -> None:
        self._values: dict[str, _Computed] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._failures: dict[str, Exception] = {}
        self._lock = threading.Lock()

    def get(self, name: str, compute: Callable[[], T]) -> T | None:
        """A value at most a minute old, or older while a new one is computed; None if there is no
        value yet."""
        entry = self._values.get(name)
        if entry is not None and now_ms() - entry.at <= FRESH_MS:
            return cast(T, entry.value)
        self.start(name, compute).join(WAIT_FIRST_S if entry is None else WAIT_S)
        failure = self._failures.pop(name, None)
        if failure is not None:
            raise failure
        entry = self._values.get(name)
        return cast(T, entry.value) if entry is not None else None

    def start(self, name: str, compute: Callable[[], object]) -> threading.Thread:
        """Compute a value in a thread, unless one is at it."""
        with self._lock:
            thread = self._threads.get(name)
            if thread is None or not thread.is_alive():
                thread = threading.Thread(target=self._run, args=(name, compute), daemon=True)
                self._threads[name] = thread
                thread.start()
            return thread

    def _run(self, name: str, compute: Callable[[], object]) -> None:
        # The time before it is computed: the value shows the ledger as it was then.
        started = now_ms()
        try:
            self._values[name] = _Computed(started, compute())
        except Exception as failure:  # raised by the next get()
            self._failures[name] = failure

    def clear(self) -> None:
        self._values.clear()

    def stop(self) -> None:
        """Wait for the threads: they read a ledger that is about to be closed."""
        for thread in list(self._threads.values()):
            thread.join(STOP_S)
