"""Parameters that `make soak` adds to those of `make test`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def exhaustive(values: Iterable[object]) -> list[ParameterSet]:
    """Values of a parameter with which a test is only run by `make soak`."""
    return [pytest.param(value, marks=pytest.mark.exhaustive) for value in values]
