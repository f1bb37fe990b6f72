"""Files of a source with nothing in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edges.conftest import Run
from tests.importers.claude_log import SESSION, a_log

OTHER = "22222222-2222-4222-8222-222222222222"


@pytest.mark.parametrize("named", [True, False])
def test_empty_files_are_reported_and_are_not_failures(
    run: Run, projects: Path, named: bool
) -> None:
    a_log(projects)
    empty = [projects / f"{name}.jsonl" for name in (OTHER, "other")]
    for path in empty:
        path.touch()
    what = (str(projects),) if named else ()

    planned, told = run("import", *what, "--dry-run"), run("import", *what)

    assert told.out == "imported 1 upserted 0 skipped 0 failed 0\n"
    for answer in (planned, told):
        assert answer.code == 0
        assert f"empty {empty[0]} and 1 more" in " ".join(answer.err.split())
    answer = run("import", *what, "--json")
    assert (answer.json["empty"], answer.json["skipped"]) == (sorted(map(str, empty)), 1)
    assert run("import", *what, "--dry-run", "--json").json["empty"] == answer.json["empty"]


def test_one_that_was_filled_is_none_any_more(run: Run, projects: Path) -> None:
    path = projects / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    assert f"empty {path}" in " ".join(run("import").err.split())

    a_log(projects)

    answer = run("import", "--json")
    assert (answer.json["empty"], answer.json["imported"]) == ([], 1)
