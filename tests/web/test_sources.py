"""The sources of the pages stay readable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "agents_ledger"
LINE_MAX = 160
SOURCES = sorted(
    path
    for path in PACKAGE.rglob("*")
    if path.parent.name in ("templates", "macros", "static", "scripts", "styles") and path.is_file()
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_line_is_longer_than_an_editor_is_wide(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()

    assert [number for number, line in enumerate(lines, 1) if len(line) > LINE_MAX] == []


def test_styles_name_columns_instead_of_counting_them() -> None:
    styles = [path.read_text(encoding="utf-8") for path in SOURCES if path.suffix == ".css"]

    assert styles
    assert not any(re.search(r":nth-child", style) for style in styles)
