"""A limit on the time that a client takes to send a request. uvicorn itself has none."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from agents_ledger.asgi.limits import ReadTimeouts


class TimedH11Protocol(H11Protocol):
    """HTTP/1.1 that closes connections whose request does not arrive in time."""

    timeouts = ReadTimeouts()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._header_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._body_deadline = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._stop_body_timer()
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_request()

    def _watch_request(self) -> None:
        state = self.conn.their_state
        if self.transport.is_closing():
            self._stop_timers()
        elif state is h11.IDLE and self._is_header_due():
            if self._header_timer is None:
                self._header_timer = self.loop.call_later(
                    self.timeouts.header_s, self._close_late_header
                )
        elif state is h11.SEND_BODY:
            self._watch_body()
        else:
            self._stop_timers()

    def _is_header_due(self) -> bool:
        """Whether a request has begun, or the first one is still to come. Between two requests
        uvicorn's own keep-alive timeout applies."""
        return self.cycle is None or bool(self.conn.trailing_data[0])

    def _watch_body(self) -> None:
        now = self.loop.time()
        # A new body. Its deadline is set once: a client that sends a byte now and then restarts the
        # idle timer, but not this one.
        if self._header_timer is not None or not self._body_deadline:
            self._stop_timers()
            self._body_deadline = now + self.timeouts.body_s
        if self._body_timer is None:
            wait_s = min(self.timeouts.body_idle_s, self._body_deadline - now)
            self._body_timer = self.loop.call_later(max(0.0, wait_s), self._close_late_body)

    def _close_late_header(self) -> None:
        self._header_timer = None
        self.transport.close()

    def _close_late_body(self) -> None:
        self._body_timer = None
        if self.flow.read_paused and self.loop.time() < self._body_deadline:
            # The application reads slowly, not the client: that is not the client's fault.
            self._watch_body()
            return
        self.transport.close()

    def _stop_timers(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        self._stop_body_timer()
        self._body_deadline = 0.0

    def _stop_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None


def protocol_with(timeouts: ReadTimeouts) -> type[TimedH11Protocol]:
    """The protocol with other timeouts. uvicorn expects a class, not an instance."""
    return type("TimedH11Protocol", (TimedH11Protocol,), {"timeouts": timeouts})
