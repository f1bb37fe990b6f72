"""Imports derive the rows they derived when the digests were recorded.

Where a change of them is intended, and the version of the reader was raised, record anew:
`python -m tests.trust.derived_digests --made --no-postgres --record
tests/trust/derived/digests.json`.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.trust.derived_digests import (
    CORPUS,
    RECORDED,
    WORDING,
    differences,
    differing,
    measure,
)

NEW_ORDER = {"history", "report", "report_texts"}  # what tells the order of imports


def test_made_histories_derive_the_recorded_rows(postgres_server: str) -> None:
    measured = measure(with_corpus=False, server=postgres_server)

    changes = differences(json.loads(RECORDED.read_text()), measured)
    assert [change for change in changes if change[1] not in WORDING] == []
    engines = [tables for scenario, tables in measured.items() if scenario.endswith("engines")]
    assert engines
    assert not any(engines)


@pytest.mark.skipif(CORPUS not in os.environ, reason="there is no corpus of real logs here")
def test_real_logs_derive_the_same_rows_in_any_order() -> None:
    small = ("chatgpt", "copilot", "gemini", "openclaw", "pi")
    measured = measure(with_corpus=True, only={f"corpus/{name}" for name in small})

    for source in (f"corpus/{name}" for name in small):
        orders = (measured[f"{source}, {way}"] for way in ("at once", "one by one"))
        assert differing(*orders).keys() <= NEW_ORDER
        assert measured[f"{source}, repeated"]["changed tables"] == "[]"


def test_a_difference_is_told_by_scenario_and_table() -> None:
    recorded = {"a, at once": {"turns": "1 x", "faults": "2 y"}, "b, at once": {"turns": "1 x"}}
    measured = {"a, at once": {"turns": "1 z", "faults": "2 y"}, "c, at once": {"turns": "3 w"}}

    assert list(differences(recorded, measured)) == [("a, at once", "turns", "1 x | 1 z")]
