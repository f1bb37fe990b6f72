"""docs/reference is what the code says."""

from __future__ import annotations

import builtins
import inspect
import re
import typing
from collections import defaultdict
from types import FunctionType

import pytest

import agents_ledger
from agents_ledger import Ledger, LedgerError
from scripts.reference import FOLDER, MADE, PAGES, type_names


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")

    assert written == MADE + PAGES[name](), "run: make reference"


def test_every_public_name_and_verb_has_an_entry() -> None:
    page = PAGES["library.md"]()
    verbs = [name for name in dir(Ledger) if not name.startswith("_")]

    assert [name for name in verbs if f"#### `{name}`" not in page] == []
    assert [name for name in agents_ledger.__all__ if name not in page] == []


# Of the objects for servers and brokers, and the tables of docs/reference/policy.md.
SPELLED_ELSEWHERE = {
    *("ClaimEnding", "GraftedTurn", "NewEntry", "Row", "SessionCheck", "TranscriptPage", "Urgent"),
    *("ContextLimits", "EngineChoice", "GrantEntry", "Persona", "Workers", "Zone"),
}


def test_every_member_of_a_public_class_has_an_entry() -> None:
    page = PAGES["library.md"]()
    values, _, errors = page.partition("\n## Types\n")
    sections: dict[str, str] = defaultdict(str)
    for section in re.split(r"^###? ", values, flags=re.MULTILINE):
        sections[re.match(r"\w*", section)[0]] += section  # type: ignore[index]
    missing = []
    for name in agents_ledger.__all__:
        kind = getattr(agents_ledger, name)
        if not inspect.isclass(kind) or name.startswith("Async"):
            continue
        entry = errors if issubclass(kind, LedgerError) else sections[name]
        for member, attribute in inspect.getmembers_static(kind):
            ours = isinstance(attribute, property | classmethod | FunctionType)
            if ours and not member.startswith("_") and f"`{member}`" not in entry:
                missing += [f"{name}.{member}"]

    assert missing == []
    for member in ("query", "response", "steps", "usage"):
        assert f"#### `{member}`" in sections["Turn"]
    assert "#### `of`" in sections["ToolCall"]
    assert "| `id` |" in sections["LiveTurn"]
    assert "| `id` |" in sections["LiveCall"]
    assert "| `HeadMoved` | `label`, `expected`, `found`, `turn_id` |" in errors


def test_every_type_in_a_signature_is_public_or_spelled_out() -> None:
    page = PAGES["library.md"]()
    spelled = set(re.findall(r"^\| `(\w+)` \| `", page.partition("\n## Types\n")[2], re.MULTILINE))
    standard = {*dir(builtins), *dir(typing)}

    assert type_names(page) - spelled - standard - set(agents_ledger.__all__) <= SPELLED_ELSEWHERE
    assert {"Query", "Answer", "Ranking", "UsageBy", "Trigger", "AnswerFunction"} <= spelled


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
