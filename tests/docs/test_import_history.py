"""docs/how-to/import-history.md and docs/sources/request.md are true."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

from agents_ledger import Ledger, import_schema
from agents_ledger.importers import requests
from agents_ledger.importers.sources.import_requests import merge, records
from scripts import import_fields, reference
from tests.docs.console import ROOT, blocks, printed, run_python

PAGE = "docs/sources/request.md"


@pytest.mark.finding("spec-docs-import")
def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(blocks("docs/how-to/import-history.md", "python"))

    run_python(text, tmp_path)

    assert f"# {capsys.readouterr().out}" in text
    with Ledger.open("ledger.db", read_only=True) as ledger:
        assert ledger.audit() == ()


@pytest.mark.finding("spec-docs-request")
def test_the_request_shown_is_imported(tmp_path: Path) -> None:
    (request,) = blocks(PAGE, "json")
    (tmp_path / "sessions.json").write_text(request, encoding="utf-8")
    file, ledger = tmp_path / "sessions.json", str(tmp_path / "ledger.db")

    answer = json.loads(printed(f"agents-ledger import --request {file}", ledger))

    assert (answer["imported"], answer["failed"]) == (1, 0)


@pytest.mark.finding("spec-docs-request")
def test_the_page_lists_every_field_and_the_schema_is_that_of_the_types() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    fields = {name for part in import_schema()["$defs"].values() for name in part["properties"]}

    assert {name for name in fields if f"| `{name}` |" not in page} == set()
    assert import_fields.page(page) == page, "run: make reference"
    assert reference.REQUEST_SCHEMA.read_text(encoding="utf-8") == import_fields.schema()


@pytest.mark.finding("spec-docs-request")
def test_the_page_lists_every_code() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    source = "".join(inspect.getsource(module) for module in (requests, merge, records))
    codes = set(re.findall(r'(?:InvalidItem|_refused|_failed)\(\s*(?:item, )?"(\w+)', source))
    codes |= {code.partition(":")[0] for code in (requests.CODES | records.CODES).values()}

    assert len(codes) > 20
    assert {code for code in codes if f"`{code}" not in page} == set()
