"""A ledger of version 0.1.0 comes to understand its logs as this version does."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from tests.importers.earlier import logs
from tests.importers.helping import import_paths, result

EARLIER = Path(logs.__file__).with_name("0.1.0.db.zst")
FROZEN = (logs.SPLIT_TURN, logs.OPENING_TURN)


@pytest.fixture
def earlier(tmp_path: Path) -> str:
    path = tmp_path / "earlier.db"
    path.write_bytes(zstandard.decompress(EARLIER.read_bytes()))
    return str(path)


def test_logs_of_the_version_before_are_derived_anew(earlier: str, tmp_path: Path) -> None:
    logs.write(tmp_path / "logs")
    with Ledger.open(str(tmp_path / "new.db")) as new:
        import_paths(new, tmp_path / "logs")
        wanted = result(new)
    with Ledger.open(earlier) as ledger:
        before = result(ledger)
        rederive(ledger)

        assert before != wanted
        assert result(ledger) == wanted
        assert ledger.audit() == ()


def test_what_people_continued_before_stays_as_it_was(earlier: str) -> None:
    with Ledger.open(earlier) as ledger:
        for turn in FROZEN:
            ledger.fork(turn, label=f"mine-{turn}")
            ledger.record(f"mine-{turn}", "And then?", "That is all.")
        before = [turns(ledger, f"mine-{turn}") for turn in FROZEN]
        rederive(ledger)

        assert [turns(ledger, f"mine-{turn}") for turn in FROZEN] == before
        rows = result(ledger)
        rederive(ledger)
        assert result(ledger) == rows
        assert ledger.audit() == ()


def turns(ledger: Ledger, label: str) -> list[tuple[str, list[str | None]]]:
    """The turns of a thread, and what the frozen ones say."""
    return [
        (turn.id, [m.content for m in turn.messages] if turn.id in FROZEN else [])
        for turn in ledger.thread(label).turns
    ]
