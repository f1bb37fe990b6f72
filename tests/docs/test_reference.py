"""docs/reference is what the code says."""

from __future__ import annotations

import pytest

import agents_ledger
from agents_ledger import Ledger
from scripts.reference import FOLDER, MADE, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")

    assert written == MADE + PAGES[name](), "run: make reference"


def test_every_public_name_and_verb_has_an_entry() -> None:
    page = PAGES["library.md"]()
    verbs = [name for name in dir(Ledger) if not name.startswith("_")]

    assert [name for name in verbs if f"#### `{name}`" not in page] == []
    assert [name for name in agents_ledger.__all__ if name not in page] == []


def test_every_verb_route_and_table_says_what_it_is() -> None:
    assert "```\n\n\n" not in PAGES["library.md"]()
    assert "|  |\n" not in PAGES["http-routes.md"]()
    for table in PAGES["tables.md"]().split("\n## ")[1:]:
        assert "\n\n| " in table
