"""Waiting for what other threads and processes do. A busy machine is no failure."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"not so after {PATIENCE_S} s"
        time.sleep(0.01)
