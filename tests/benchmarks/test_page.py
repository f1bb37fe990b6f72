"""The page of benchmarks is made of what was measured, and nothing else."""

from __future__ import annotations

import pytest

from benchmarks import report
from benchmarks.__main__ import PARTS
from benchmarks.measure import table


@pytest.mark.parametrize("name", PARTS)
def test_every_part_stands_on_the_page_as_it_was_measured(name: str) -> None:
    measured = report.kept(name)

    assert measured is not None, f"make bench ONLY={name}"
    page = report.PAGE.read_text(encoding="utf-8")
    assert f"## {measured.title}\n\n`make bench ONLY={name}`, {measured.date}," in page
    assert f"\n{table(measured.lines)}\n" in page
