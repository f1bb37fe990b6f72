"""docs/how-to/run-turns-with-the-broker.md is true: its examples run, its policy is valid."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agents_ledger.broker import policy
from agents_ledger.model.agents import permissions
from tests.docs.console import ROOT, blocks, run_python, type_checked

PAGE = "docs/how-to/run-turns-with-the-broker.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_python("\n".join(blocks(PAGE, "python")), tmp_path)


@pytest.mark.finding("users-11")
@pytest.mark.finding("spec-docs-engine")
def test_an_engine_of_your_own_is_ten_lines_that_type_check(tmp_path: Path) -> None:
    examples = blocks(PAGE, "python")
    [engine] = [text for text in examples if "class Shout" in text]
    body = engine.partition("class Shout")[2].partition("\n\n\n")[0]
    assert len(body.strip().splitlines()) <= 10
    file = tmp_path / "example.py"
    file.write_text("\n".join(examples), encoding="utf-8")

    checked = type_checked(str(file))

    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout


@pytest.mark.finding("spec-docs-sandbox")
def test_the_docs_say_that_a_sandbox_is_recorded_and_not_enforced() -> None:
    how_to = (ROOT / PAGE).read_text(encoding="utf-8")
    reference = (ROOT / "docs/reference/policy.md").read_text(encoding="utf-8")

    assert "not enforced" in how_to.partition("`sandbox` is recorded")[2].partition(".")[0]
    assert "| recorded with each turn, not enforced |" in reference


def test_the_policy_can_be_read_and_says_every_word_there_is(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "toml")
    file = tmp_path / "ledger.policy.toml"
    file.write_text(text, encoding="utf-8")

    read = policy.read(file)

    assert read.personas["main"].identity.name == "Atlas"
    told = set(msgspec.toml.decode(text))
    assert told == set(policy.Policy.__struct_fields__)
    for part in (read.engine, read.queue, read.context, read.workers, read.personas["main"].model):
        for word in part.__struct_fields__:
            assert f"{word} =" in text, word


def test_the_shape_of_what_is_granted_is_ours() -> None:
    (text,) = blocks(PAGE, "json")

    granted = permissions.decode(text)

    assert granted is not None
    assert granted.stopped_by("Read") is None
    assert granted.stopped_by("Bash") == "persona main"
    assert msgspec.json.decode(permissions.encode(granted)) == msgspec.json.decode(text)
    assert "`permissions_used`" in (ROOT / PAGE).read_text(encoding="utf-8")
