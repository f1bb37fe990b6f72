"""The meanings of fields that the reference takes from their names."""

from __future__ import annotations

from scripts import reference
from scripts.field_meanings import MEANINGS, common_meaning


def test_a_name_in_camel_case_means_the_same() -> None:
    assert common_meaning("taskId") == common_meaning("task_id") == "Id of the task."
    assert common_meaning("kind") == ""  # means something else on each page


def test_every_meaning_is_used_on_a_page() -> None:
    pages = "\n".join(page() for page in reference.PAGES.values())

    assert [name for name, meaning in MEANINGS.items() if f"| {meaning}" not in pages] == []
