"""A clock for what the documents show."""

from __future__ import annotations

import time

import pytest


@pytest.fixture(autouse=True)
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two looks at the clock tell the same millisecond. Turns of one millisecond have longer
    short ids, which leave less room for text, and their sessions are listed by name."""
    real, last = time.time_ns, 0

    def tick() -> int:
        nonlocal last
        last = max(real(), last + 1_000_000)
        return last

    monkeypatch.setattr(time, "time_ns", tick)
