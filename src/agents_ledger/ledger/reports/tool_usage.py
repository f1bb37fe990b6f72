"""How tools were used: how often, how well, how long."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

from agents_ledger.ledger.reports import daily_totals
from agents_ledger.ledger.turns.threads import DEEPEST
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.usage import ToolUsage
from agents_ledger.model.turns import OPEN_CALL
from agents_ledger.store.database import Row, Transaction

# What a duration is rounded up to when it is counted; the fragment tool_columns has the same.
STEPS = (*(step * 10**power for power in range(6) for step in (1, 2, 5)), 10**6, 10**7)


def tools(
    tx: Transaction, *, since: int | None, until: int | None, limit: int | None
) -> tuple[ToolUsage, ...]:
    """Every tool that was called, most used first."""
    if limit is not None and limit < 1:
        raise Refused(f"limit is {limit}; it must be positive")
    rows: dict[str, list[Row]] = defaultdict(list)
    for name, *counts in daily_totals.tools(tx, since or 0, DEEPEST if until is None else until):
        rows[name].append(tuple(counts))
    used = [_tool(name, found) for name, found in rows.items()]
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
    """A duration that so many of the calls do not exceed; within a step they count as spread."""
    wanted = sum(by_step.values()) * part
    passed = 0
    for step in sorted(by_step):
        if passed + by_step[step] >= wanted:
            at = bisect_left(STEPS, step)
            lower, upper = STEPS[at - 1] if at else 0, min(step, longest)
            return round(lower + (upper - lower) * (wanted - passed) / by_step[step])
        passed += by_step[step]
    return None
