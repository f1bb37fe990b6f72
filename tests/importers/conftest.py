"""Tests of how logs are parsed run on SQLite, and on PostgreSQL in `make soak`.

The parsers see no engine, and tests/trust/test_derived_digests.py compares the rows that histories
of every source end in on both. Tests of what is written, when and beside whom run on both.
"""

from __future__ import annotations

import pytest

from agents_ledger.importers.sources.registry import SOURCES

AGENTS = {name.partition("-")[0] for name in SOURCES} - {"request"}
PARSING = ("damaged_copies", "documents", "encodings", "failed_prompts", "memory", "told", "tokens")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what PostgreSQL has to say nothing new about."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent.name == "importers":
            topic = item.path.stem.removeprefix("test_")
            parses = topic.startswith(PARSING) or topic.partition("_")[0] in AGENTS
            engine = item.callspec.params.get("new_address") if hasattr(item, "callspec") else None
            if parses and engine == "postgres":
                item.add_marker(pytest.mark.exhaustive)
