"""The meanings of fields that the reference takes from their names."""

from __future__ import annotations

import re

from scripts import reference
from scripts.field_meanings import MEANINGS, common_meaning


def test_a_name_in_camel_case_means_the_same() -> None:
    assert common_meaning("taskId") == common_meaning("task_id") == "Id of the task."
    assert common_meaning("kind") == ""  # means something else on each page
    assert common_meaning("kind", "source_files").startswith("How the file grows")


def test_no_field_column_or_view_is_without_a_meaning() -> None:
    lines = [
        (name, line)
        for name, page in reference.PAGES.items()
        for line in page().splitlines()
        if line.startswith("|")
    ]

    assert len(lines) > 1500
    assert [(name, line) for name, line in lines if re.search(r"\|\s*\|$", line)] == []


def test_every_meaning_is_used_on_a_page() -> None:
    pages = "\n".join(page() for page in reference.PAGES.values())

    assert [name for name, meaning in MEANINGS.items() if f"| {meaning}" not in pages] == []
