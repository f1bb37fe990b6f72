"""Postpones Ctrl-C while a write is between two sound states.

Python runs signal handlers in the main thread, between any two bytecodes, and most of them raise:
Ctrl-C, the time limits of job queues, a SystemExit on SIGTERM. Raised between BEGIN and the block
that would roll it back, or between taking a lock and the block that would release it, such an
exception leaves the lock held; a second one can interrupt the clean-up after the first. Inside
`held()` these signals wait. What may be abandoned half way, because everything around it cleans up,
is called through `Hold.interruptible`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[int, FrameType | None], Any]

# Handlers of these raise in practice; job queues use the last two.
_NAMES = ("SIGINT", "SIGBREAK", "SIGTERM", "SIGALRM", "SIGUSR1")
_SIGNALS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))
# The module behind `signal`, whose wrappers make enums: ten times the time of the call itself.
_fast = import_module("_signal")
_get_handler: Callable[[int], object] = _fast.getsignal
_set_handler: Callable[[int, Handler], object] = _fast.signal


class Hold:
    """In other threads than the main one: nothing interrupts them, so nothing is postponed."""

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the protected section."""

    def interruptible(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that a signal may end at any point."""
        return function(*args, **kwargs)

    def check(self) -> None:
        """Let a signal that waits take effect here."""

    def wait_seconds(self, longest: float, interval: float) -> float:
        """How long to wait for something before `check` should be called again."""
        return longest


class _MainThreadHold(Hold):
    """Replaces the handlers of the main thread for the time of one section.

    A handler that is still ours after the section, because a signal struck while they were being
    restored, passes on what it receives, so it does no harm.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._waiting: set[int] = set()
        self._active = False
        self._open = False  # in a call that may be interrupted

    def __enter__(self) -> Hold:
        for number in _SIGNALS:
            handler = _original(number, _get_handler(number))
            if handler is not None:
                self._handlers[number] = handler
                _set_handler(number, self._receive)
        self._active = True
        return self

    def __exit__(self, *_: object) -> None:
        self._active = False
        for number, handler in self._handlers.items():
            if _get_handler(number) == self._receive:  # else a handler has installed another
                _set_handler(number, handler)
        self.check()

    def interruptible(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.check()
        self._open = True
        try:
            return function(*args, **kwargs)
        finally:
            self._open = False

    def wait_seconds(self, longest: float, interval: float) -> float:
        return min(longest, interval)

    def check(self) -> None:
        while self._waiting:
            number = self._waiting.pop()
            try:
                self._handlers[number](number, None)
            finally:
                self.check()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._active and not self._open:
            self._waiting.add(number)
            return
        # Closed before the handler raises: a second signal must not reach the clean-up.
        was_open, self._open = self._open, False
        self._handlers[number](number, frame)
        self._open = was_open


def _original(number: int, handler: object) -> Handler | None:
    """The handler itself, where it is one that an ended hold left behind; None: it never raises."""
    while isinstance(owner := getattr(handler, "__self__", None), _MainThreadHold):
        if owner._active:
            break
        handler = owner._handlers[number]
    return handler if callable(handler) else None


NOT_HELD = Hold()


def held() -> Hold:
    """A section in which signals wait: `with held() as hold`."""
    if threading.get_ident() == threading.main_thread().ident:
        return _MainThreadHold()
    return NOT_HELD
