"""The command context: what a model is shown, for people and as JSON."""

from __future__ import annotations

import json

import pytest

from agents_ledger import Compaction, Ledger, ToolCall, validate
from tests.builders import chain
from tests.edges.conftest import Run


@pytest.fixture
def turns(file: str) -> list[str]:
    with Ledger.open(file) as ledger:
        first = ledger.record("main", "hi", "\x1b[2Jho", system_prompt="Be brief.\n" * 10)
        kept = chain(ledger, "main", 2)
        made = ledger.record("main", compaction=Compaction("They\ntalked.", first.id, kept[0]))
        call = ToolCall.of("Read", {"path": "a.py"}, "x\n" * 500)
        last = ledger.record("main", "read", "done", steps=[call])
    return [first.id, *kept, made.id, last.id]


def test_the_parts_are_counted_and_every_turn_named(run: Run, turns: list[str]) -> None:
    answer = run("context", "main", "--query", "And now?")

    lines = answer.out.splitlines()
    assert [line.split() for line in lines[:7]] == [
        ["PART", "TURNS", "TOKENS"],
        ["system", "prompt", "38"],
        ["summary", "19"],
        ["kept", "turns", "2", "30"],
        ["turns", "since", "1", "361"],
        ["query", "7"],
        ["total", "455"],
    ]
    assert [line for line in lines if "  01" in line] == [
        f"summary  {turns[3]}",
        f"kept turns  {turns[1]}",
        f"kept turns  {turns[2]}",
        f"turns since  {turns[4]}",
    ]
    assert '  ▸ Read {"path":"a.py"}  11 tokens' in lines
    assert "    … 497 more lines (--full)" in lines
    assert lines[-3:] == ["  user  7 tokens", "    And now?", ""]


@pytest.mark.usefixtures("ticking")
def test_an_older_turn_is_shown_as_it_was_and_codes_are_harmless(
    run: Run, turns: list[str]
) -> None:
    answer = run("context", turns[0][:20])

    assert "turns  " + turns[0] in answer.out
    assert "summary" not in answer.out
    assert "␛[2Jho" in answer.out
    before = run("context", turns[0], "--before")
    assert "2Jho" not in before.out
    assert "hi" in before.out


def test_a_budget_says_what_it_cut(run: Run, turns: list[str]) -> None:
    answer = run("context", "main", "--budget", "300", "--last", "0")

    assert "budget 300: results shortened in 1 turn" in answer.out
    tight = run("context", "main", "--budget", "68", "--last", "0", "--full")
    assert "steps omitted in 1 turn, 2 turns omitted, summary omitted" in tight.out
    refused = run("context", "main", "--budget", "300")
    assert refused.code == 5
    assert "never cut need" in refused.err


def test_a_form_is_printed_as_its_provider_takes_it(run: Run, turns: list[str]) -> None:
    for form in ("anthropic", "openai", "openai-responses"):
        request = json.loads(run("context", "main", "--as", form, "--query", "Now?").out)

        assert "schema_version" not in request
        assert validate(request, form) == ()


def test_json_names_the_turn_and_the_tokens_of_every_item(run: Run, turns: list[str]) -> None:
    answer = run("context", "main", "--json", "--as", "anthropic").json

    assert [item["turn_id"] for item in answer["items"]][:3] == [turns[3], turns[1], turns[1]]
    parts = sum(item["tokens"] for item in answer["items"]) + answer["tokens"]["system"]
    assert answer["total_tokens"] == parts
    assert answer["request"]["messages"][0]["role"] == "user"


def test_repairs_are_reported(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        lost = ToolCall("Read", status="cancelled", error="gone")
        ledger.record("main", "a", "b", steps=[lost, lost])

    assert "repaired: call without a result (2)" in run("context", "main").out


def test_wrong_words_are_refused(run: Run, turns: list[str]) -> None:
    assert run("context", "nowhere").code == 3
    assert run("context", "main", "--budget", "0").code == 2
    assert run("context", "main", "--as", "other").code == 2
