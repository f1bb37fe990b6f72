"""docs/abilities.md is what the table of abilities says."""

from __future__ import annotations

from scripts.abilities import page
from tests.docs.console import ROOT


def test_the_page_is_made_from_the_table() -> None:
    written = (ROOT / "docs/abilities.md").read_text(encoding="utf-8")

    assert written == page(), "run: make abilities"
