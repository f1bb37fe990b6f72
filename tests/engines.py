"""Marks for what one engine alone promises: the test is not there for the other."""

from __future__ import annotations

import pytest

on_sqlite = pytest.mark.parametrize("new_address", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("new_address", ["postgres"], indirect=True)
