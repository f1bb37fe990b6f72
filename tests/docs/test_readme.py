"""The README is true: its lines run, and its output is what is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.docs.console import ROOT, blocks, commands, masked, printed, run_python


def test_the_ten_lines_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [story] = blocks("README.md", "python")

    run_python(story, tmp_path)

    with Ledger.open("ledger.db", read_only=True) as ledger:
        [turn] = ledger.thread("main").turns
        assert [session.thread_id for session in ledger.sessions()] == [turn.id, turn.id]
        assert turn.response is not None
        assert turn.response.content == "Two fixes."
        assert turn.tool_calls[0].tool_name == "Read"
        assert turn.total_tokens == 853
        assert ledger.audit() == ()


@pytest.mark.finding("users-8")
def test_the_ten_lines_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [story] = blocks("README.md", "python")

    run_python(story, tmp_path)
    run_python(story, tmp_path)

    with Ledger.open("ledger.db", read_only=True) as ledger:
        assert ledger.thread("main").depth == 2
        assert len(ledger.sessions()) == 3


def test_the_ten_lines_run_on_a_server(new_schema: Callable[[], str], tmp_path: Path) -> None:
    [story] = blocks("README.md", "python")
    address = new_schema()

    run_python(story.replace("ledger.db", address), tmp_path)

    with Ledger.open(address, read_only=True) as ledger:
        assert ledger.thread("main").depth == 1


def test_the_tour_shows_what_is_printed(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    printed("agents-ledger up --no-serve", ledger)

    for block in blocks("README.md", "console"):
        for command, output in commands(block):
            assert masked(output) == masked(printed(command, ledger)), command


def test_every_make_target_the_readme_names_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake (up|test|check|bench|soak|format)\b", text))

    assert {"up", "test", "check", "bench", "soak"} <= named
    assert all(f"\n{target}:" in makefile for target in named)
