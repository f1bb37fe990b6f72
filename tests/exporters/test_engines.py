"""Exports say the same of a ledger wherever it is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.cli.servers.demonstration import Demonstration
from agents_ledger.exporters.exporting import FORMS, Export
from agents_ledger.ledger.maintenance import copying


def test_a_copy_on_postgresql_is_exported_identically(
    tmp_path: Path, new_schema: Callable[[], str]
) -> None:
    here, there = str(tmp_path / "ledger.db"), new_schema()
    with Ledger.open(here) as ledger:
        Demonstration(ledger).record()
    copying.copy(here, there)

    told = []
    for address in (here, there):
        with Ledger.open(address, read_only=True) as ledger:
            told.append({form: "".join(Export(ledger, "demo", form)) for form in FORMS})

    assert told[0] == told[1]
