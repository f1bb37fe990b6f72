"""docs/how-to/use-the-library.md is true: its examples run in order."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.model import errors
from tests.docs.console import ROOT, blocks, run_python

PAGE = "docs/how-to/use-the-library.md"
SERVER = "postgresql://user:password@host/database?schema=team"


@pytest.mark.finding("users-7")
@pytest.mark.finding("users-27")
def test_the_examples_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_schema: Callable[[], str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(blocks(PAGE, "python"))
    assert text.count(SERVER) == 1

    run_python(text.replace(SERVER, new_schema()), tmp_path)

    with Ledger.open("ledger.db", read_only=True) as ledger:
        assert ledger.audit() == ()


def test_every_verb_is_named() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    verbs = [name for name in dir(Ledger) if not name.startswith("_")]

    missing = [verb for verb in verbs if not re.search(rf"\b{verb}\b", text)]

    assert missing == []


def test_every_error_is_named_in_its_table() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    kinds = [name for name, kind in vars(errors).items() if isinstance(kind, type)]

    assert [name for name in kinds if f"`{name}`" not in text] == []
