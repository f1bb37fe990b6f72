"""What the documents show is run on a clock that tells every turn from the next."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def on_a_ticking_clock(ticking: None) -> None:
    """As they were written."""
