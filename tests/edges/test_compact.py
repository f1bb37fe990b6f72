"""The command compact: what it does, what it would do, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.edges.conftest import Run


@pytest.fixture
def turns(file: str) -> list[str]:
    with Ledger.open(file) as ledger:
        return [
            ledger.record("main", f"question {n} " + "q" * 300, f"answer {n}").id for n in range(6)
        ]


def test_a_dry_run_says_what_would_be_done(run: Run, turns: list[str]) -> None:
    answer = run("compact", "main", "--dry-run", "--budget", "400")

    said = {line[:20].strip(): line[20:].strip() for line in answer.out.splitlines()}
    assert said["strategy"] == "summary"
    assert said["turns kept"] == "2"
    assert said["turns summarised"] == "4"
    assert said["first kept turn"] == turns[4]
    assert said["summary"] == "at most 100 tokens"
    assert run("compact", "main", "--dry-run", "--json").json["turn"] is None
    assert run("show", "main", "--last", "1", "--json").json["thread"]["depth"] == 6


def test_a_compaction_is_shown_as_it_is_recorded(run: Run, turns: list[str]) -> None:
    answer = run("compact", "main", "--strategy", "sliding_window", "--budget", "250")

    assert answer.code == 0
    assert "compacted 4 turns · 690 → 230 tokens · sliding_window · manual" in answer.out
    assert f"kept from {turns[4]}" in answer.out
    shown = run("context", "main", "--json").json
    assert shown["turns"] == {"kept": 2}


@pytest.mark.finding("users-3")
def test_an_engine_is_named_and_the_echo_engine_only_on_request(run: Run, turns: list[str]) -> None:
    refused = run("compact", "main")
    assert refused.code == 5
    assert "no model is configured" in refused.err
    assert "--model provider:name" in refused.err
    assert run("compact", "main", "--engine", "other").code == 5
    assert run("compact", "nobody").code == 3

    answer = run("compact", "main", "--engine", "echo", "--model", "parrot", "--json")

    record = answer.json["turn"]["compaction"]
    assert (record["model"], record["trigger"]) == ("parrot", "manual")
    assert "Summarise the conversation" in record["summary"]


def test_the_policy_names_the_engine_and_a_failure_is_reported(
    run: Run, turns: list[str], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pydantic_ai")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    Path(file).with_suffix(".policy.toml").write_text(
        '[engine]\nname = "pydantic-ai"\nmodel = "openai:gpt-5"\n', encoding="utf-8"
    )

    failed = run("compact", "main")

    assert failed.code == 7, failed
    assert "nothing was changed" in failed.err
    assert "sliding_window" in failed.err
    saved = run("compact", "main", "--fallback", "sliding_window", "--json").json
    assert saved["turn"]["compaction"]["compaction_type"] == "sliding_window"


def test_wrong_words_are_refused(run: Run, turns: list[str]) -> None:
    assert run("compact", "nowhere", "--strategy", "selective").code == 3
    assert run("compact", "main", "--strategy", "magic").code == 2
    assert run("compact", "main", "--budget", "0").code == 2
    nothing = run("compact", "main", "--strategy", "selective", "--budget", "90000")
    assert nothing.code == 5
    assert "nothing to compact" in nothing.err
