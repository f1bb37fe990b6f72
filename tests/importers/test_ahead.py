"""Families derived by helpers are the same as derived here, whatever becomes of a helper."""

from __future__ import annotations

import random
import time
from collections import deque
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers import ahead, importing
from agents_ledger.importers.discovery import Unknown, found_at
from agents_ledger.importers.importing import Importer, Report
from tests.importers.helping import result
from tests.importers.test_any_order import a_world
from tests.importers.test_any_order_elsewhere import codex, pi


def imported(folder: Path, name: str, helpers: int) -> tuple[Report, dict[str, list[object]]]:
    found = found_at(folder, Unknown([], []))
    with Ledger.open(str(folder.parent / f"{name}.db")) as ledger:
        report = Importer(ledger, helpers=helpers).run(found)
        assert not ledger.audit()
        return report, result(ledger)  # type: ignore[return-value]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(importing, "WORTH", 0)
    chance = random.Random(5)
    a_world(chance, tmp_path / "world" / "claude")
    codex(chance, tmp_path / "world" / "codex")
    pi(chance, tmp_path / "world" / "pi")
    return tmp_path / "world"


def made_ahead(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each family, whether a helper made it."""
    seen: list[bool] = []
    derive = Importer.derive_safely

    def noted(self: Importer, *what: object) -> set[str]:
        seen.append(what[-1] is not None)
        return derive(self, *what)  # type: ignore[arg-type]

    monkeypatch.setattr(Importer, "derive_safely", noted)
    return seen


def test_what_helpers_derive_is_what_is_derived_here(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, wanted = imported(world, "alone", 0)
    seen = made_ahead(monkeypatch)
    monkeypatch.setattr(ahead, "deque", _Patient)

    report, found = imported(world, "helped", 2)

    assert found == wanted
    assert report.counts == alone.counts
    assert report.records == alone.records
    assert any(seen)


class _Patient(deque[str]):
    """What waits is taken here only after a while: helpers are quicker."""

    def pop(self) -> str:  # type: ignore[override]
        time.sleep(0.2)
        return super().pop()


@pytest.mark.parametrize("broken", ["no.such.module", "this"])
def test_without_a_helper_that_works_all_is_derived_here(
    world: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    _, wanted = imported(world, "alone", 0)
    seen = made_ahead(monkeypatch)
    monkeypatch.setattr(ahead, "MODULE", broken)  # "this" says something else, and ends

    _, found = imported(world, "helped", 1)

    assert found == wanted
    assert not any(seen)


def test_a_large_family_is_derived_here(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = made_ahead(monkeypatch)
    monkeypatch.setattr(ahead, "FAMILY_MAX", 0)

    imported(world, "helped", 1)

    assert seen
    assert not any(seen)


def test_a_reader_that_fails_fails_no_helper() -> None:
    with pytest.raises(KeyError):
        ahead.answer(ahead._encode(ahead.Job("no-such-source", [], [])))
