"""Limits of a server: the rate of requests, the time to send one, the audits it starts."""

from __future__ import annotations

import time
from collections import OrderedDict

from msgspec import Struct

CLIENTS_MAX = 1024


class RateLimits(Struct, frozen=True, kw_only=True):
    """The requests and the wrong tokens that one client may send."""

    burst: int = 600  # requests without a pause
    per_second: float = 200.0
    wrong_tokens: int = 20  # without a pause; then one a second


class ReadTimeouts(Struct, frozen=True, kw_only=True):
    """The time that a client has to send a request, in seconds."""

    header_s: float = 10.0  # from the connection, or the first byte of a later request
    body_idle_s: float = 15.0  # between two chunks of the body
    body_s: float = 300.0  # the whole body


class AuditLimits(Struct, frozen=True, kw_only=True):
    """The audit of the ledger that a request for its page starts."""

    quick_turns: int = 200  # ledgers of this size are audited whenever the page is opened
    wait_s: float = 1.0  # the request waits for it


class ClientBuckets:
    def __init__(self, size: int, per_second: float) -> None:
        self._size = size
        self._per_second = per_second
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> bool:
        """Count one request; whether it is within the limit."""
        now = time.monotonic()
        level, at = self._levels.pop(client, (0.0, now))
        level = max(0.0, level - (now - at) * self._per_second)
        allowed = level < self._size
        self._levels[client] = (level + allowed, now)
        # The least recently seen clients are forgotten: many addresses must not take all memory.
        while len(self._levels) > CLIENTS_MAX:
            self._levels.popitem(last=False)
        return allowed
