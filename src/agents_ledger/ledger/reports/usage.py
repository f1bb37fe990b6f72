"""Usage reports: tokens and costs by period, model, project or session, and of tools.

Every turn counts once, however many sessions share it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import add
from typing import NamedTuple, cast, get_args

from msgspec import structs

from agents_ledger.ledger.reports import daily_totals
from agents_ledger.ledger.turns.threads import DEEPEST
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports import prices
from agents_ledger.model.reports.usage import (
    ModelUsage,
    Spent,
    ToolUsage,
    UsageBy,
    UsageLine,
    UsageReport,
)
from agents_ledger.model.text import humanize
from agents_ledger.model.text.periods import HOUR_MS, Period, Zone, period_of
from agents_ledger.model.turns import OPEN_CALL
from agents_ledger.store.database import Row, Transaction

_BYS = get_args(UsageBy)
_PERIODS = get_args(Period)
_SUMS = Spent.__struct_fields__[: Spent.__struct_fields__.index("cost_microdollars")]

Model = tuple[str | None, str | None]  # with its provider
Sums = list[int]
ByModel = Mapping[Model, Sums]

# Histogram steps of durations in milliseconds; the SQL fragment tool_columns has the same.
STEPS = (*(step * 10**power for power in range(6) for step in (1, 2, 5)), 10**6, 10**7)


class TurnFilter(NamedTuple):
    since: int | None = None
    until: int | None = None
    project: str | None = None
    model: str | None = None

    def check(self) -> TurnFilter:
        """The filter itself. Refused if the time range is empty."""
        if self.since is not None and self.until is not None and self.since >= self.until:
            times = f"{humanize.moment(self.since)} to {humanize.moment(self.until)}"
            raise Refused(f"the time from {times} is empty", "Let it begin before it ends.")
        return self


def usage(
    tx: Transaction, by: UsageBy, turns: TurnFilter, *, zone: Zone | None, limit: int | None
) -> UsageReport:
    if by not in _BYS:
        raise Refused(f"usage is counted by {', '.join(_BYS)}, not by {by!r}")
    if limit is not None and limit < 1:
        raise Refused(f"limit is {limit}; it must be positive")
    groups: dict[str | None, dict[Model, Sums]] = defaultdict(dict)
    key_of = _key(by, zone)
    for row in facts(tx, turns.check()):
        _add(groups[key_of(row)], (row[1], row[2]), row[4:])
    total: dict[Model, Sums] = {}
    for group in groups.values():
        for model, sums in group.items():
            _add(total, model, sums)
    if by == "session":
        return _by_session(tx, turns, total, limit)
    lines = [_line(key, group) for key, group in groups.items()]
    if by in _PERIODS:
        lines.sort(key=lambda line: line.key or "")
        page = lines[-limit:] if limit else lines  # the latest
    else:
        lines.sort(key=lambda line: (-line.spent.total_tokens, -line.spent.turns, line.key or ""))
        page = lines[:limit]
    return _report(by, page, total, len(lines) - len(page))


def facts(tx: Transaction, turns: TurnFilter) -> Iterable[Row]:
    """Hour, model, provider and project, each with its sums."""
    since, until = turns.since or 0, DEEPEST if turns.until is None else turns.until
    for row in daily_totals.usage(tx, since, until):
        if turns.project in (None, row[3]) and turns.model in (None, row[1]):
            yield row


def _key(by: UsageBy, zone: Zone | None) -> Callable[[Row], str | None]:
    if by == "model":
        return lambda row: cast("str | None", row[1])
    if by == "project":
        return lambda row: cast("str | None", row[3])
    # Only for the total: the lines are made by _by_session().
    if by == "session":
        return lambda _: None

    @cache
    def of_hour(hour: int) -> str:
        return period_of(hour * HOUR_MS, by, zone)

    if zone is None:
        return lambda row: of_hour(row[0] // 24 * 24)  # in UTC a day is always whole
    return lambda row: of_hour(row[0])


def _add(group: dict[Model, Sums], model: Model, sums: Iterable[int]) -> None:
    before = group.get(model)
    group[model] = list(map(add, before, sums)) if before else list(sums)


def _report(
    by: UsageBy, lines: Iterable[UsageLine], total: ByModel, left_out: int = 0
) -> UsageReport:
    used = {
        model or "(no model)"
        for (model, _), sums in total.items()
        if prices.price(model) is None and Spent(*sums).total_tokens
    }
    whole = _line(None, total).spent
    return UsageReport(by, tuple(lines), whole, tuple(sorted(used)), prices.as_of(), left_out)


# -- a line -----------------------------------------------------------------------------------


def _line(key: str | None, group: ByModel, shared_tokens: int = 0) -> UsageLine:
    models = [
        ModelUsage(model, provider, _priced(model, sums))
        for (model, provider), sums in group.items()
    ]
    models.sort(key=lambda one: (-one.spent.total_tokens, one.model or "", one.provider or ""))
    return UsageLine(key, add_up(one.spent for one in models), tuple(models), shared_tokens)


def _priced(model: str | None, sums: Sums) -> Spent:
    spent = Spent(*sums)
    price = prices.price(model)
    if price is None:
        unpriced = spent.turns - spent.untold if spent.total_tokens else 0
        return structs.replace(spent, unpriced_turns=unpriced)
    cost = (
        max(0, spent.fresh_input_tokens) * price.input
        + spent.cached_input_tokens * price.cached_input
        + spent.cache_write_tokens * price.cache_write
        + spent.paid_output_tokens * price.output
    )
    return structs.replace(spent, cost_microdollars=round(cost))


def add_up(parts: Iterable[Spent]) -> Spent:
    """The sum of several parts; its cost is that of the parts that have a price."""
    sums, costs, unpriced = [0] * len(_SUMS), [], 0
    for part in parts:
        for at, name in enumerate(_SUMS):
            sums[at] += getattr(part, name)
        unpriced += part.unpriced_turns
        if part.cost_microdollars is not None:
            costs.append(part.cost_microdollars)
    cost = sum(costs) if costs else None
    return structs.replace(Spent(*sums), cost_microdollars=cost, unpriced_turns=unpriced)


def of_range(
    tx: Transaction, turn_id: str, from_depth: int, key: str | None = None, shared_tokens: int = 0
) -> UsageLine:
    """The usage of a thread's turns from a depth on."""
    rows = tx.run("usage_of_range", turn_id=turn_id, from_depth=from_depth, to_depth=DEEPEST)
    return _line(key, {(row[0], row[1]): list(row[2:]) for row in rows}, shared_tokens)


# -- sessions ---------------------------------------------------------------------------------


class _HeadPlace(NamedTuple):
    label: str
    turn_id: str
    updated_at: int
    segment_id: int
    depth: int
    total_tokens: int


def _by_session(
    tx: Transaction, turns: TurnFilter, total: ByModel, limit: int | None
) -> UsageReport:
    """Sessions that moved within the time, each with what it used and no older one had.

    Threads overlap: what two sessions share counts for the older, so that the lines add up.
    """
    segments = {row[0]: (row[1], row[2]) for row in tx.run("head_segments")}
    claimed: dict[int, int] = {}
    sessions: list[tuple[int, int, int, _HeadPlace]] = []
    for row in tx.run("session_heads"):
        head = _HeadPlace(*row)
        shared_depth, shared_tokens = _claim(tx, head, segments, claimed)
        if _moved_within(head, turns) and head.depth > shared_depth:
            sessions.append((head.total_tokens - shared_tokens, shared_depth, shared_tokens, head))
    sessions.sort(key=lambda one: (-one[0], one[3].label))
    lines = [
        of_range(tx, head.turn_id, shared_depth + 1, head.label, shared_tokens)
        for _, shared_depth, shared_tokens, head in sessions[:limit]
    ]
    return _report("session", lines, total, len(sessions) - len(lines))


def _moved_within(head: _HeadPlace, turns: TurnFilter) -> bool:
    since, until = turns.since or 0, DEEPEST if turns.until is None else turns.until
    return since <= head.updated_at < until


def _claim(
    tx: Transaction,
    head: _HeadPlace,
    segments: Mapping[int, tuple[int | None, int]],
    claimed: dict[int, int],
) -> tuple[int, int]:
    """Depth and tokens that a session shares with older ones; the rest is counted as its own."""
    at: int | None = head.segment_id
    depth = head.depth
    while at is not None:
        taken = min(claimed.get(at, 0), depth)
        claimed[at] = max(claimed.get(at, 0), depth)
        if taken:
            tokens = tx.run("tokens_at", segment_id=at, depth=taken)
            return taken, int(tokens[0][0]) if tokens else 0
        at, depth = segments.get(at, (None, 0))
    return 0, 0


# -- tools ------------------------------------------------------------------------------------


def tools(
    tx: Transaction, *, since: int | None, until: int | None, limit: int | None
) -> tuple[ToolUsage, ...]:
    if limit is not None and limit < 1:
        raise Refused(f"limit is {limit}; it must be positive")
    rows: dict[str, list[Row]] = defaultdict(list)
    for name, *counts in daily_totals.tools(tx, since or 0, DEEPEST if until is None else until):
        rows[name].append(tuple(counts))
    used = [_tool(name, counted) for name, counted in rows.items()]
    used.sort(key=lambda tool: (-tool.calls, tool.tool_name))
    return tuple(used[:limit])


def _tool(name: str, rows: list[Row]) -> ToolUsage:
    by_status: dict[str, int] = defaultdict(int)
    by_step: dict[int, int] = defaultdict(int)
    total = longest = last = 0
    for status, step, calls, duration, most, at in rows:
        by_status[status] += calls
        by_step[step] += calls
        total, longest, last = total + duration, max(longest, most), max(last, at)
    untimed = by_step.pop(0, 0)
    calls = sum(by_status.values())
    return ToolUsage(
        name,
        calls,
        failed=by_status["failed"],
        cancelled=by_status["cancelled"],
        rejected=by_status["rejected"],
        unfinished=sum(by_status[word] for word in OPEN_CALL),
        timed=calls - untimed,
        duration_ms=total,
        p50_ms=_quantile(by_step, longest, 0.5),
        p95_ms=_quantile(by_step, longest, 0.95),
        longest_ms=longest or None,
        last_used_at=last,
    )


def _quantile(by_step: Mapping[int, int], longest: int, part: float) -> int | None:
    """The duration that a `part` of the calls do not exceed, interpolated within its step."""
    wanted = sum(by_step.values()) * part
    passed = 0
    for step in sorted(by_step):
        if passed + by_step[step] >= wanted:
            at = bisect_left(STEPS, step)
            lower, upper = STEPS[at - 1] if at else 0, min(step, longest)
            return round(lower + (upper - lower) * (wanted - passed) / by_step[step])
        passed += by_step[step]
    return None
