"""docs/reference is what the code says."""

from __future__ import annotations

import re

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


@pytest.mark.finding("spec-docs-types")
def test_the_objects_of_abilities_are_described_by_type() -> None:
    page = PAGES["abilities.md"]()
    headings = {
        line.lstrip("# ").lower().replace(":", "")
        for line in page.splitlines()
        if line.startswith("#")
    }
    links = set(re.findall(r"\]\(#([^)]+)\)", page))

    assert "list of object" not in page
    assert links - headings == set()
    assert "| `tool_calls` | list of [ToolCall](#toolcall), optional |" in page
    for section in page.partition("\n## Types\n")[2].split("\n### ")[1:]:
        assert "\n| `" in section or "\nList of " in section, section


@pytest.mark.finding("spec-docs-scopes")
def test_the_docs_say_which_scope_records_turns() -> None:
    assert "`ldg:turn:record`](#ldgturnrecord) | w | `write`" in PAGES["abilities.md"]()
    assert "| `POST /api/v1/turns` | write |" in PAGES["http-routes.md"]()
    scopes = (FOLDER / "http.md").read_text(encoding="utf-8")
    assert re.search(r"\| `write` \| everything `read` allows, and recording turns", scopes)
