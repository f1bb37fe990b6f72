"""Pages and the API of a ledger with rows that cannot be read: an error that says so, no crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_damage import ODD, store_oddly
from tests.trust import specimen
from tests.web.conftest import Running

PATHS = (
    "/",
    "/sessions",
    "/s/main",
    "/s/main/history",
    "/s/main/tree",
    "/search?q=answer",
    "/files/first.py",
    "/usage",
    "/tools",
    "/compare?a=main&b=side",
    "/audit",
    "/share/main",
)
API = ("/sessions", "/sessions/main", "/threads/main", "/threads/main/tree", "/context/main")
KNOWN = (200, 422, 503)  # as it is, refused, or damaged


# tests/contract/test_damage.py has all of them for each verb. Here an error must become an answer.
ALWAYS = ("bytes for a text", "an unknown status", "a segment that is gone")


@pytest.fixture(
    params=[
        pytest.param(damage, id=name, marks=() if name in ALWAYS else pytest.mark.exhaustive)
        for name, damage in ODD.items()
    ]
)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    """A server on a damaged ledger."""
    path = tmp_path / "ledger.db"
    specimen.make(path, tmp_path, turns=3)
    store_oddly(str(path), *request.param)
    running = Running(str(path))
    yield running
    running.stop()


def test_pages_of_a_damaged_ledger_report_the_problem(damaged: Running) -> None:
    answers = {path: damaged.ask(path) for path in PATHS}
    answers |= {path: damaged.ask(f"/api/v1{path}") for path in API}

    odd = {path: answer.status for path, answer in answers.items() if answer.status not in KNOWN}
    assert odd == {}
