"""usage, tools and compare, for people and in JSON."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger, Session, ToolCall, Usage
from agents_ledger.model.text.humanize import money
from tests.builders import grow
from tests.edges.conftest import Run

NOON = 1_772_366_400_000  # 2026-03-01 12:00 UTC
HOSTILE = "\x1b]52;c;aGk=\x07\u202eevil"


@pytest.fixture
def ledger(file: str) -> Iterator[Ledger]:
    with Ledger.open(file) as opened:
        yield opened


def spend(ledger: Ledger, model: str = "claude-opus-5", at: int = NOON) -> None:
    ledger.record("main", "q", "a", model=model, usage=Usage(1_000_000, 100_000), started_at=at)


def test_what_no_source_dated_is_undated(run: Run, ledger: Ledger) -> None:
    ledger.record("main", "q", "a", started_at=1, completed_at=1)

    for by in ("day", "week", "month"):
        assert run("usage", "--by", by).out.splitlines()[1].startswith("undated")


def test_usage_shows_what_a_day_cost(run: Run, ledger: Ledger) -> None:
    spend(ledger)
    spend(ledger, "mystery")

    answer = run("usage", "--utc")

    [_, line] = answer.out.splitlines()
    assert line.split() == [
        "2026-03-01", "2", "2.0M", "0", "0", "200k", "2.2M", "$7.50+", "claude-opus-5,", "mystery"
    ]  # fmt: skip
    assert "no price for mystery" in answer.err
    assert "no tokens told" not in answer.err
    assert "list prices of 2026-08-05" in answer.err


def test_a_day_is_one_of_the_clock_of_this_machine(
    run: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend(ledger, at=NOON + 11 * 3_600_000)

    for zone, day in (("Asia/Tokyo", "2026-03-02"), ("UTC", "2026-03-01"), ("No/Where", "2026-03")):
        monkeypatch.setenv("TZ", zone)
        assert run("usage", "--json").json["lines"][0]["key"].startswith(day)


def test_the_lines_add_up_to_a_total(run: Run, ledger: Ledger) -> None:
    spend(ledger)
    spend(ledger, at=NOON + 86_400_000)

    answer = run("usage", "--utc", "--by", "day")

    assert answer.out.splitlines()[-1].split()[:2] == ["total", "2"]
    assert run("usage", "--utc", "--limit", "1").err.startswith("1 more row")


def test_turns_without_token_counts_are_reported(run: Run, ledger: Ledger) -> None:
    ledger.record("main", "q", "a")

    assert "1 turn without token counts\n" in run("usage").err


def test_usage_of_no_time_says_so(run: Run, ledger: Ledger) -> None:
    spend(ledger)

    assert run("usage", "--until", "2026-01-01").err == "No turn matches.\n"
    assert run("usage", "--project", "/elsewhere").err == "No turn matches.\n"
    assert run("tools").err == "No tool call matches.\n"


@pytest.mark.parametrize("when", ["never", "2026-99-01", "5y", "99999999w"])
def test_a_time_that_is_none_is_refused(run: Run, ledger: Ledger, when: str) -> None:
    answer = run("usage", "--since", when)

    assert answer.code == 2
    assert "is not a date" in answer.err


@pytest.mark.parametrize("when", ["yesterday", "today", "3 days ago", "12h", "2w", "2026-02-28"])
def test_times_are_typed_as_people_do(run: Run, ledger: Ledger, when: str) -> None:
    assert run("usage", "--since", when).code == 0


def test_tools_shows_failures_and_durations(run: Run, ledger: Ledger) -> None:
    slow = ToolCall("Bash", started_at=NOON, completed_at=NOON + 4200)
    ledger.record("main", "q", "a", steps=[slow, ToolCall.of("Bash", {}, error="no")])

    [_, line] = run("tools").out.splitlines()

    assert line.split()[:4] == ["Bash", "2", "1", "(50%)"]
    assert "4.2 s" in line


def test_compare_shows_both_branches(run: Run, ledger: Ledger) -> None:
    grow(ledger, "1-2-3, 2-4")

    answer = run("compare", "3", "4")

    assert answer.out.startswith("common ")
    assert "No common turn." not in answer.out
    assert run("compare", "3", "4", "--limit", "0").out.count("┆ 1 turn") == 2
    ledger.record("apart", "q", "a")
    assert run("compare", "3", "apart").out.startswith("No common turn.")
    assert run("compare", "3", "nobody").code == 3
    assert run("compare", "3", "4", "--json").json["comparison"]["a"]["turn_count"] == 1


def test_hostile_names_are_shown_and_not_sent(run: Run, ledger: Ledger) -> None:
    call = ToolCall.of(HOSTILE, {}, error=HOSTILE)
    edit = ToolCall.of("Edit", {"path": HOSTILE})
    ledger.record("a", HOSTILE, HOSTILE, model=HOSTILE, workspace_path=HOSTILE, steps=[call, edit])
    ledger.record("b", HOSTILE, HOSTILE, usage=Usage(1), model=HOSTILE)

    for words in (
        ["usage", "--by", "model"], ["usage", "--by", "project"], ["usage", "--by", "session"],
        ["tools"], ["compare", "a", "b"],
    ):  # fmt: skip
        for answer in (run(*words), run(*words, "--json")):
            assert answer.code == 0
            assert not set("\x1b\x07\u202e") & set(answer.out + answer.err), words


@pytest.mark.parametrize(
    ("microdollars", "shown"),
    [(0, "$0.00"), (4_200, "$0.0042"), (10_000, "$0.01"), (1_234_567_890, "$1,234.57")],
)
def test_money_is_shown_in_dollars(microdollars: int, shown: str) -> None:
    assert money(microdollars) == shown


@pytest.mark.finding("users-18")
def test_usage_takes_parts_of_names_and_a_folder(
    run: Run, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "oh-my-posh").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = str(tmp_path / "oh-my-posh")
    ledger.record("a", "q", "a", model="claude-opus-4-8", workspace_path=folder)
    ledger.record("b", "q", "a", model="gpt-5.4", workspace_path="/home/dev/shop")

    def models(*words: str) -> list[str]:
        lines = run("usage", "--by", "model", *words, "--json").json["lines"]
        return [line["key"] for line in lines]

    assert models("--model", "opus") == ["claude-opus-4-8"]
    assert models("--model", "Opus-4.8") == ["claude-opus-4-8"]
    for project in ("oh-my-posh", "my-posh", folder):
        assert models("--project", project) == ["claude-opus-4-8"]
    assert models("--project", "shop") == ["gpt-5.4"]
    assert models("--model", "sonnet") == []


@pytest.mark.finding("users-31")
def test_usage_splits_the_cache_and_prints_csv(run: Run, ledger: Ledger) -> None:
    tokens = Usage(10, 20, 3000, cache_write_tokens=400)
    ledger.record("main", "q", "a", model="claude-opus-5", usage=tokens, started_at=NOON)

    heads, line = run("usage", "--utc").out.splitlines()
    assert re.split("  +", heads)[3:5] == ["CACHE READ", "CACHE WRITE"]
    assert line.split()[3:5] == ["3.0k", "400"]

    [row] = csv.DictReader(run("usage", "--utc", "--csv").out.splitlines())
    assert row["day"] == "2026-03-01"
    assert (row["cached_input_tokens"], row["cache_write_tokens"]) == ("3000", "400")
    assert (row["turns"], row["models"]) == ("1", "claude-opus-5")
    assert run("usage", "--csv", "--json").code == 2


@pytest.mark.finding("users-31")
def test_usage_is_counted_by_agent_and_by_block(run: Run, ledger: Ledger) -> None:
    ledger.create_session(Session("other", origin="codex"))
    ledger.record("other", "q", "a", started_at=NOON)
    spend(ledger)

    agents = run("usage", "--by", "agent", "--json").json["lines"]
    assert {line["key"]: line["spent"]["turns"] for line in agents} == {"codex": 1, "native": 1}
    [block] = run("usage", "--by", "block", "--utc", "--json").json["lines"]
    assert (block["key"], block["spent"]["turns"]) == ("2026-03-01 12:00", 2)


@pytest.mark.finding("users-29")
def test_a_session_compared_with_itself_is_the_same(run: Run, ledger: Ledger) -> None:
    ledger.record("main", "Why?", "Because.")

    answer = run("compare", "main", "main")

    assert answer.out.splitlines()[0] == "Both are at the same turn."
    assert "Why?" in answer.out
    assert "branch" not in answer.out
