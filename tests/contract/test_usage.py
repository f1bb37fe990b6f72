"""Usage: every turn counts once, whatever forks share it, and costs what its provider asks."""

from __future__ import annotations

import re
from datetime import timedelta, timezone
from typing import Any

import pytest

from agents_ledger import Compaction, Ledger, Refused, Session, Spent, Usage, UsageReport
from agents_ledger.ledger.reports.usage import STEPS
from agents_ledger.store import queries
from agents_ledger.store.sqlite.statements import WORDS
from tests.builders import a_call, grow

NOON = 1_772_366_400_000  # 2026-03-01 12:00 UTC, a Sunday
HOUR = 3_600_000
DAY = 24 * HOUR


def spend(ledger: Ledger, session: str = "main", at: int = NOON, **fields: Any) -> str:
    told = {"model": "claude-opus-5", "usage": Usage(1000, 100), "workspace_path": "/p", **fields}
    return ledger.record(session, "q", "a", started_at=at, completed_at=at + 1, **told).id


def keys(report: UsageReport) -> list[tuple[str | None, int]]:
    return [(line.key, line.spent.turns) for line in report.lines]


def test_turns_are_counted_by_day_week_and_month(ledger: Ledger) -> None:
    for at in (NOON, NOON + HOUR, NOON + DAY, NOON + 40 * DAY):
        spend(ledger, at=at)

    assert keys(ledger.usage("day")) == [("2026-03-01", 2), ("2026-03-02", 1), ("2026-04-10", 1)]
    assert keys(ledger.usage("week")) == [("2026-W09", 2), ("2026-W10", 1), ("2026-W15", 1)]
    assert keys(ledger.usage("month")) == [("2026-03", 3), ("2026-04", 1)]
    assert ledger.usage("day").total.turns == 4


def test_days_are_those_of_a_place(ledger: Ledger) -> None:
    spend(ledger, at=NOON + 11 * HOUR)

    west, east = timezone(timedelta(hours=-8)), timezone(timedelta(hours=9))

    assert keys(ledger.usage("day")) == [("2026-03-01", 1)]
    assert keys(ledger.usage("day", zone=west)) == [("2026-03-01", 1)]
    assert keys(ledger.usage("day", zone=east)) == [("2026-03-02", 1)]


def test_a_time_a_project_and_a_model_can_be_asked_for(ledger: Ledger) -> None:
    spend(ledger, at=NOON, workspace_path="/a", model="gpt-5.5")
    spend(ledger, at=NOON + DAY, workspace_path="/b")
    spend(ledger, at=NOON + DAY, workspace_path="/b", model=None)

    assert ledger.usage(since=NOON, until=NOON + DAY).total.turns == 1
    assert ledger.usage(since=NOON + 1).total.turns == 2
    assert keys(ledger.usage("project")) == [("/b", 2), ("/a", 1)]
    assert keys(ledger.usage("model", project="/b")) == [(None, 1), ("claude-opus-5", 1)]
    assert ledger.usage(model="gpt-5.5").total.turns == 1


def test_what_a_fork_shares_counts_once_and_for_the_older_session(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2-3, 2-4-5, 4-6")  # sessions 3, 5 and 6
    del ids

    lines = {line.key: line.spent.turns for line in ledger.usage("session").lines}

    assert lines == {"3": 3, "5": 2, "6": 1}
    assert ledger.usage().total.turns == 6


def test_a_session_says_what_it_shares(ledger: Ledger) -> None:
    first = spend(ledger)
    spend(ledger)
    ledger.fork(first, label="other")
    spend(ledger, "other")
    ledger.create_session(Session("empty"))
    ledger.fork("other", label="same")

    lines = {line.key: line for line in ledger.usage("session").lines}

    assert lines.keys() == {"main", "other"}  # "same" has nothing of its own
    assert lines["main"].shared_tokens == 0
    assert lines["other"].shared_tokens == 1100
    assert lines["other"].spent.total_tokens == 1100
    assert sum(line.spent.turns for line in lines.values()) == 3


def test_a_session_further_up_gives_nothing_back(ledger: Ledger) -> None:
    first, _, last = (spend(ledger) for _ in range(3))
    ledger.fork(first, label="early")
    ledger.fork(last, label="late")

    lines = {line.key: line.spent.turns for line in ledger.usage("session").lines}

    assert lines == {"main": 3}


@pytest.mark.parametrize(
    ("usage", "fresh", "paid"),
    [
        (Usage(1000, 100), 1000, 100),
        (Usage(1000, 100, 600, 50, 40), 350, 100),  # cached and reasoning are parts
        (Usage(1000, 100, 600, 50, 40, 1750), 1000, 100),  # the cache counts apart
        (Usage(1000, 100, 600, 0, 40, 1140), 400, 140),  # reasoning counts apart
        (Usage(1000, 100, 600, 50, 40, 1790), 1000, 140),  # both do
        (Usage(1000, 100, 600, 50, 40, 9999), 350, 100),  # a total that says nothing
        (Usage(), 0, 0),
    ],
)
def test_tokens_are_paid_for_once_however_they_are_counted(
    ledger: Ledger, usage: Usage, fresh: int, paid: int
) -> None:
    spend(ledger, usage=usage)

    spent = ledger.usage().total

    assert (spent.fresh_input_tokens, spent.paid_output_tokens) == (fresh, paid)


def test_the_cost_is_that_of_each_kind_of_token(ledger: Ledger) -> None:
    spend(ledger, usage=Usage(1000, 100, 600, 50, 0, 1750))  # 5, 0.5, 6.25 and 25 dollars

    spent = ledger.usage().total

    assert spent.cost_microdollars == 1000 * 5 + 600 * 0.5 + round(50 * 6.25) + 100 * 25
    assert spent.unpriced_turns == 0


def test_a_model_without_a_price_is_named_and_never_guessed(ledger: Ledger) -> None:
    spend(ledger)
    spend(ledger, model="claude-opus-55")
    spend(ledger, model=None)
    spend(ledger, model="mystery", usage=Usage())

    report = ledger.usage("model")

    lines = {line.key: line.spent for line in report.lines}
    assert lines["claude-opus-55"].cost_microdollars is None
    assert lines["claude-opus-55"].unpriced_turns == 1
    assert report.unpriced == ("(no model)", "claude-opus-55")
    assert (report.total.unpriced_turns, report.total.turns_without_tokens) == (2, 1)
    assert report.total.cost_microdollars == lines["claude-opus-5"].cost_microdollars
    assert report.priced_on == "2026-08-05"


def test_a_compaction_is_paid_for_at_the_price_of_its_summariser(ledger: Ledger) -> None:
    first = spend(ledger)
    record = Compaction("s", first, model="gpt-5.5", provider="openai")
    ledger.record("main", compaction=record, usage=Usage(500, 50))

    used = ledger.usage("model")
    [of_session] = ledger.usage("session").lines

    assert keys(used) == [("claude-opus-5", 1), ("gpt-5.5", 1)]
    assert [model.model for model in of_session.models] == ["claude-opus-5", "gpt-5.5"]
    assert ledger.thread("main", last=0).model == "claude-opus-5"


def test_failures_and_tool_calls_are_counted(ledger: Ledger) -> None:
    spend(ledger, steps=[a_call(), a_call()])
    ledger.record("main", "q", status="failed", error="x", started_at=NOON, usage=Usage(7))

    spent = ledger.usage().total

    assert (spent.turns, spent.failed, spent.tool_calls, spent.total_tokens) == (2, 1, 2, 1107)


def test_the_latest_periods_and_the_largest_others_are_kept(ledger: Ledger) -> None:
    for day in range(3):
        spend(ledger, at=NOON + day * DAY, workspace_path=f"/{day}", usage=Usage(10 - day))

    days, projects = ledger.usage("day", limit=2), ledger.usage("project", limit=2)

    assert keys(days) == [("2026-03-02", 1), ("2026-03-03", 1)]
    assert keys(projects) == [("/0", 1), ("/1", 1)]
    assert (days.left_out, projects.left_out, days.total.turns) == (1, 1, 3)


def test_an_empty_ledger_used_nothing(ledger: Ledger) -> None:
    assert ledger.usage().total == Spent()
    assert ledger.usage("session").lines == ()
    assert ledger.tools() == ()


@pytest.mark.parametrize(
    "asked",
    [{"by": "year"}, {"limit": 0}, {"since": 5, "until": 5}],
    ids=["period", "limit", "time"],
)
def test_what_makes_no_sense_is_refused(ledger: Ledger, asked: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        ledger.usage(**asked)


@pytest.mark.parametrize("split", ["model", "project", "agent"])
def test_the_parts_of_a_line_add_up_to_it(ledger: Ledger, split: Any) -> None:
    spend(ledger)
    spend(ledger, model="gpt-5.5", workspace_path="/q")
    ledger.create_session(Session("other", origin="codex"))
    spend(ledger, "other", at=NOON + DAY)

    first, second = ledger.usage("day", split=split).lines

    keys_of = {"model": {"claude-opus-5", "gpt-5.5"}, "project": {"/p", "/q"}, "agent": {"native"}}
    assert {part.key for part in first.parts} == keys_of[split]
    assert sum(part.spent.cost_microdollars or 0 for part in first.parts) == (
        first.spent.cost_microdollars
    )
    assert [part.spent for part in second.parts] == [second.spent]
    assert ledger.usage("day").lines[0].parts == ()
    with pytest.raises(Refused):
        ledger.usage("session", split=split)


def test_turns_of_an_agent_or_without_a_model_can_be_selected(ledger: Ledger) -> None:
    ledger.create_session(Session("other", origin="codex"))
    spend(ledger, "other")
    spend(ledger, model=None)

    assert keys(ledger.usage("model", agent="codex")) == [("claude-opus-5", 1)]
    assert keys(ledger.usage("session", agent="codex")) == [("other", 1)]
    assert keys(ledger.usage("session", model="(none)")) == [("main", 1)]
    assert ledger.usage(agent="nobody").total.turns == 0


def test_sessions_add_up_with_their_abandoned_turns(ledger: Ledger) -> None:
    """A turn that was undone, or whose branch no session has, was paid for all the same."""
    first = spend(ledger)
    spend(ledger, model="gpt-5.5")
    ledger.undo("main")
    spend(ledger)
    ledger.fork(first, label="branch")
    spend(ledger, "branch")
    ledger.move("branch", first)

    report = ledger.usage("session")

    assert keys(report) == [("main", 4)]
    assert report.lines[0].spent == report.total == ledger.usage().total
    filtered = ledger.usage("session", model="gpt-5.5", since=NOON, until=NOON + DAY)
    assert keys(filtered) == [("main", 1)]


def test_a_session_costs_its_thread_and_its_subagents(ledger: Ledger) -> None:
    root = spend(ledger)
    spend(ledger)
    for label, parent in (("child", "main"), ("grandchild", "child")):
        ledger.create_session(Session(label, is_subagent=True, parent_session_label=parent))
        spend(ledger, label, model="gpt-5.5")
    ledger.fork(root, label="fork")

    usage = ledger.session_usage(["main", "fork", "child", "missing"])

    assert usage.keys() == {"main", "fork", "child"}
    assert (usage["main"].own.turns, usage["main"].subagents.turns) == (2, 2)
    assert usage["main"].total.cost_microdollars == ledger.usage().total.cost_microdollars
    assert (usage["fork"].own.turns, usage["fork"].subagents) == (1, Spent())
    assert (usage["child"].own.turns, usage["child"].subagents.turns) == (1, 1)


def test_a_turn_costs_what_the_report_counts_for_it(ledger: Ledger) -> None:
    turn_id, unpriced = spend(ledger), spend(ledger, at=NOON + DAY, model="mystery")

    costs = ledger.turn_usage([turn_id, unpriced, "missing"])

    assert costs.keys() == {turn_id, unpriced}
    assert costs[turn_id] == ledger.usage(until=NOON + DAY).total
    assert (costs[unpriced].cost_microdollars, costs[unpriced].unpriced_turns) == (None, 1)


# -- tools ------------------------------------------------------------------------------------


def call(name: str, took: int | None, status: str = "completed", at: int = NOON) -> Any:
    ended = None if took is None else at + took
    return a_call(name, status=status, started_at=at, completed_at=ended)


def test_tools_are_counted_with_their_failures_and_durations(ledger: Ledger) -> None:
    steps = [call("Bash", took) for took in (3, 30, 40, 45, 900)]
    steps += [call("Bash", 0, "failed"), call("Read", 0, "rejected"), call("Read", 7, "cancelled")]
    spend(ledger, steps=steps)

    bash, read = ledger.tools()

    assert (bash.tool_name, bash.calls, bash.failed, bash.timed) == ("Bash", 6, 1, 5)
    assert (bash.duration_ms, bash.longest_ms, bash.last_used_at) == (1018, 900, NOON)
    assert bash.p50_ms is not None
    assert bash.p95_ms is not None
    assert 20 < bash.p50_ms <= 50
    assert 500 < bash.p95_ms <= 900
    assert (read.calls, read.rejected, read.cancelled, read.p50_ms) == (2, 1, 1, 6)


def test_tools_can_be_asked_for_in_a_time(ledger: Ledger) -> None:
    spend(ledger, steps=[call("Bash", 1)])
    spend(ledger, at=NOON + DAY, steps=[call("Read", 1, at=NOON + DAY)])

    assert [tool.tool_name for tool in ledger.tools(since=NOON + DAY)] == ["Read"]
    assert [tool.tool_name for tool in ledger.tools(until=NOON + DAY)] == ["Bash"]
    assert len(ledger.tools(limit=1)) == 1
    with pytest.raises(Refused):
        ledger.tools(limit=0)


def test_a_call_that_is_not_over_is_unfinished(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        turn.tool_call("Bash")
        [bash] = ledger.tools()
        turn.respond("a")

    assert (bash.unfinished, bash.timed) == (1, 0)


def test_the_steps_of_durations_are_those_of_the_statement() -> None:
    sql = queries.load(WORDS)["tool_days"]

    assert [int(step) for step in re.findall(r"(?:THEN|ELSE) ([1-9]\d*)\b", sql)] == list(STEPS)


@pytest.mark.finding("users-31")
def test_a_block_is_five_hours_from_its_first_hour(ledger: Ledger) -> None:
    half = HOUR // 2
    for at in (half, 4 * HOUR + half, 5 * HOUR, 9 * HOUR, 10 * HOUR, 30 * HOUR):
        spend(ledger, at=NOON + at)

    assert keys(ledger.usage("block")) == [
        ("2026-03-01 12:00", 2),
        ("2026-03-01 17:00", 2),
        ("2026-03-01 22:00", 1),
        ("2026-03-02 18:00", 1),
    ]
    assert keys(ledger.usage("block", limit=1)) == [("2026-03-02 18:00", 1)]
    tokyo = timezone(timedelta(hours=9))
    assert keys(ledger.usage("block", zone=tokyo, limit=1)) == [("2026-03-03 03:00", 1)]


@pytest.mark.finding("users-31")
def test_usage_by_agent_counts_every_turn_once(ledger: Ledger) -> None:
    ledger.create_session(Session("other", origin="codex"))
    first = spend(ledger, "other")
    ledger.fork(first, label="fork")
    spend(ledger, "fork")
    spend(ledger, "main", status="failed", error="no")

    assert keys(ledger.usage("agent")) == [("native", 2), ("codex", 1)]
    assert ledger.usage("agent", model="opus").total == ledger.usage("day").total


@pytest.mark.finding("users-18")
def test_a_whole_name_comes_before_its_parts(ledger: Ledger) -> None:
    spend(ledger, "one", model="gpt-5")
    spend(ledger, "two", model="gpt-5.4")
    spend(ledger, "three", model="gpt-5.4", workspace_path="/q/oh-my-posh")

    assert keys(ledger.usage("model", model="gpt-5")) == [("gpt-5", 1)]
    assert keys(ledger.usage("model", model="gpt")) == [("gpt-5.4", 2), ("gpt-5", 1)]
    assert keys(ledger.usage("session", model="gpt-5")) == [("one", 1)]
    assert keys(ledger.usage("session", model="gpt-5.4")) == [("three", 1), ("two", 1)]
    assert keys(ledger.usage("session", project="oh-my-posh")) == [("three", 1)]


@pytest.mark.finding("users-31")
def test_sessions_count_only_the_selected_turns(ledger: Ledger) -> None:
    spend(ledger, "one", model="big", usage=Usage(10, 1))
    spend(ledger, "one", model="small", usage=Usage(1000, 1))
    spend(ledger, "two", model="big", usage=Usage(100, 1), at=NOON + DAY)

    report = ledger.usage("session", model="big", limit=1)

    assert keys(report) == [("two", 1)]
    assert (report.total.turns, report.left_out) == (2, 1)
    before = ledger.usage("session", until=NOON + DAY)
    assert keys(before) == [("one", 2)]
    assert sum(line.spent.total_tokens for line in before.lines) == before.total.total_tokens
