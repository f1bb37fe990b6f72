"""Usage reports: tokens and costs by period, model, agent, project or session, and of tools.

Every turn counts once, however many sessions share it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import add
from typing import NamedTuple, cast, get_args

from msgspec import structs

from agents_ledger.ledger.reports import daily_totals
from agents_ledger.ledger.turns.threads import DEEPEST
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports import prices
from agents_ledger.model.reports.usage import (
    NOT_RECORDED,
    ModelUsage,
    SessionUsage,
    Spent,
    ToolUsage,
    UsageBy,
    UsageLine,
    UsagePart,
    UsageReport,
    UsageSplit,
)
from agents_ledger.model.text import humanize
from agents_ledger.model.text.periods import HOUR_MS, Period, Zone, block_starts, hour_of, period_of
from agents_ledger.model.turns import OPEN_CALL, to_json
from agents_ledger.store.database import Row, Transaction

_BYS = get_args(UsageBy)
_COLUMNS = {"model": 1, "project": 3, "agent": 4}
_KEYS = 5  # columns before the sums
_IN_ORDER = (*get_args(Period), "block")
_SUMS = Spent.__struct_fields__[: Spent.__struct_fields__.index("cost_microdollars")]

Model = tuple[str | None, str | None]  # with its provider
Sums = list[int]
ByModel = Mapping[Model, Sums]

# Histogram steps of durations in milliseconds; the SQL fragment tool_columns has the same.
STEPS = (*(step * 10**power for power in range(6) for step in (1, 2, 5)), 10**6, 10**7)


class TurnFilter(NamedTuple):
    since: int | None = None
    until: int | None = None
    project: str | None = None  # a folder, or words of it
    model: str | None = None  # a name, or words of it
    agent: str | None = None  # the origin of a session

    def check(self) -> TurnFilter:
        """The filter itself. Refused if the time range is empty."""
        if self.since is not None and self.until is not None and self.since >= self.until:
            times = f"{humanize.moment(self.since)} to {humanize.moment(self.until)}"
            raise Refused(f"the time from {times} is empty", "Let it begin before it ends.")
        return self

    @property
    def interval(self) -> dict[str, int]:
        return {"since": self.since or 0, "until": DEEPEST if self.until is None else self.until}


EVERY_TURN = TurnFilter()


class _Selected(NamedTuple):
    """The models and projects that a filter names; None: all."""

    models: Sequence[str | None] | None
    projects: Sequence[str | None] | None

    def has(self, row: Row) -> bool:
        return (self.models is None or row[1] in self.models) and (
            self.projects is None or row[3] in self.projects
        )


def _selected(rows: Iterable[Row], turns: TurnFilter) -> _Selected:
    def names(column: int, wanted: str | None) -> Sequence[str | None] | None:
        if wanted is None:
            return None
        if wanted == NOT_RECORDED:
            return [None]
        from agents_ledger.ledger.search.words import tokenizer

        return tokenizer.names_like({row[column] for row in rows} - {None}, wanted)

    return _Selected(names(1, turns.model), names(3, turns.project))


def usage(
    tx: Transaction,
    by: UsageBy,
    turns: TurnFilter,
    *,
    split: UsageSplit | None = None,
    zone: Zone | None,
    limit: int | None,
) -> UsageReport:
    _check(by, split, limit)
    rows = _rows(tx, turns.check(), with_agent="agent" in (by, split) or turns.agent is not None)
    selected = _selected(rows, turns)
    rows = [row for row in rows if selected.has(row) and turns.agent in (None, row[4])]
    total: dict[Model, Sums] = {}
    for row in rows:
        _add(total, (row[1], row[2]), row[_KEYS:])
    if by == "session":
        return _by_session(tx, turns, selected, total, limit)
    groups: dict[str | None, dict[Model, Sums]] = defaultdict(dict)
    parts: dict[str | None, dict[str | None, dict[Model, Sums]]] = defaultdict(dict)
    key_of = _key(by, zone, rows)
    for row in rows:
        key, model, sums = key_of(row), (row[1], row[2]), row[_KEYS:]
        _add(groups[key], model, sums)
        if split is not None:
            _add(parts[key].setdefault(row[_COLUMNS[split]], {}), model, sums)
    lines = [_line(key, group, parts=_parts(parts[key])) for key, group in groups.items()]
    if by in _IN_ORDER:
        lines.sort(key=lambda line: line.key or "")
        page = lines[-limit:] if limit else lines  # the latest
    else:
        lines.sort(key=_most_tokens_first)
        page = lines[:limit]
    return _report(by, page, total, len(lines) - len(page))


def _check(by: UsageBy, split: UsageSplit | None, limit: int | None) -> None:
    if by not in _BYS:
        raise Refused(f"usage is counted by {', '.join(_BYS)}, not by {by!r}")
    if split is not None and (split not in _COLUMNS or by == "session"):
        raise Refused(f"usage by {by} cannot be split by {split!r}", f"Use {', '.join(_COLUMNS)}.")
    if limit is not None and limit < 1:
        raise Refused(f"limit is {limit}; it must be positive")


def _rows(tx: Transaction, turns: TurnFilter, *, with_agent: bool) -> list[Row]:
    """Hour, model, provider, project and agent, each with its sums."""
    if with_agent:
        return list(tx.run("usage_by_agent", **turns.interval))
    return [(*row[:4], None, *row[4:]) for row in daily_totals.usage(tx, **turns.interval)]


def _parts(groups: Mapping[str | None, ByModel]) -> tuple[UsagePart, ...]:
    lines = sorted((_line(key, group) for key, group in groups.items()), key=_most_tokens_first)
    return tuple(UsagePart(line.key, line.spent) for line in lines)


def _key(by: UsageBy, zone: Zone | None, rows: Iterable[Row]) -> Callable[[Row], str | None]:
    column = _COLUMNS.get(by)
    if column is not None:
        return lambda row: cast("str | None", row[column])
    if by == "block":
        starts = block_starts({row[0] for row in rows})
        return lambda row: hour_of(starts[row[0]], zone)

    @cache
    def of_hour(hour: int) -> str:
        return period_of(hour * HOUR_MS, cast(Period, by), zone)

    if zone is None:
        return lambda row: of_hour(row[0] // 24 * 24)  # in UTC a day is always whole
    return lambda row: of_hour(row[0])


def _most_tokens_first(line: UsageLine) -> tuple[int, int, str]:
    return -line.spent.total_tokens, -line.spent.turns, line.key or ""


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


def _line(
    key: str | None,
    group: ByModel,
    shared_tokens: int = 0,
    parts: tuple[UsagePart, ...] = (),
) -> UsageLine:
    models = [
        ModelUsage(model, provider, _priced(model, sums))
        for (model, provider), sums in group.items()
    ]
    models.sort(key=lambda one: (-one.spent.total_tokens, one.model or "", one.provider or ""))
    spent = add_up(one.spent for one in models)
    return UsageLine(key, spent, tuple(models), shared_tokens, parts)


def _priced(model: str | None, sums: Sums) -> Spent:
    spent = Spent(*sums)
    price = prices.price(model)
    if price is None:
        unpriced = spent.turns - spent.turns_without_tokens if spent.total_tokens else 0
        return structs.replace(spent, unpriced_turns=unpriced)
    kept_an_hour = min(spent.long_cache_write_tokens, spent.cache_write_tokens)
    cost = (
        max(0, spent.fresh_input_tokens) * price.input
        + spent.cached_input_tokens * price.cached_input
        + (spent.cache_write_tokens - kept_an_hour) * price.cache_write
        + kept_an_hour * price.long_cache_write
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


def of_range(tx: Transaction, turn_id: str, from_depth: int) -> UsageLine:
    """The usage of a thread's turns from a depth on."""
    return _line(None, _range(tx, turn_id, from_depth, EVERY_TURN, _Selected(None, None)))


def _range(
    tx: Transaction, turn_id: str, from_depth: int, turns: TurnFilter, selected: _Selected
) -> dict[Model, Sums]:
    values = {"turn_id": turn_id, "from_depth": from_depth, "to_depth": DEEPEST, **turns.interval}
    group: dict[Model, Sums] = {}
    for row in tx.run("usage_of_range", **values):
        if selected.has(row):
            _add(group, (row[1], row[2]), row[4:])
    return group


def of_turns(tx: Transaction, turn_ids: Iterable[str]) -> dict[str, Spent]:
    """What each of these turns used."""
    rows = tx.run("usage_of_turns", ids=to_json(list(turn_ids)))
    return {row[0]: _priced(row[1], list(row[3:])) for row in rows}


def of_sessions(tx: Transaction, labels: Iterable[str]) -> dict[str, SessionUsage]:
    """What the threads of these sessions used, and their subagents; of turns that are on several
    of a session's threads, each counts once."""
    groups: dict[tuple[str, bool], dict[Model, Sums]] = defaultdict(dict)
    for label, is_own, model, provider, *sums in tx.run(
        "usage_of_sessions", ids=to_json(list(labels))
    ):
        _add(groups[label, bool(is_own)], (model, provider), sums)
    usages = {}
    for label in {label for label, _ in groups}:
        own, subagents = (
            _line(None, groups.get((label, is_own), {})).spent for is_own in (True, False)
        )
        usages[label] = SessionUsage(own, subagents, add_up((own, subagents)))
    return usages


# -- sessions ---------------------------------------------------------------------------------


class _HeadPlace(NamedTuple):
    label: str
    turn_id: str
    updated_at: int
    segment_id: int
    depth: int
    total_tokens: int
    agent: str


class _OwnPart(NamedTuple):
    """A session's thread below the depth that it shares with older sessions."""

    head: _HeadPlace
    shared_depth: int
    shared_tokens: int


class _Claim(NamedTuple):
    """How far down a segment belongs to a session."""

    depth: int
    head: _HeadPlace


class _Forest:
    """Which session each turn counts for: the oldest one whose thread has it. A turn that is on no
    thread counts for the session it branched off."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._parents = {row[0]: (row[1], row[2]) for row in tx.run("head_segments")}
        self._claims: dict[int, list[_Claim]] = defaultdict(list)  # ever deeper
        self.sessions = [self._claim(_HeadPlace(*row)) for row in tx.run("session_heads")]

    def _claim(self, head: _HeadPlace) -> _OwnPart:
        """The rest of a thread below what older sessions have."""
        at: int | None = head.segment_id
        depth = head.depth
        while at is not None:
            claims = self._claims[at]
            taken = min(claims[-1].depth, depth) if claims else 0
            if depth > taken:
                claims.append(_Claim(depth, head))
            if taken:
                tokens = self._tx.run("tokens_at", segment_id=at, depth=taken)
                return _OwnPart(head, taken, int(tokens[0][0]) if tokens else 0)
            at, depth = self._parents.get(at, (None, 0))
        return _OwnPart(head, 0, 0)

    def abandoned(self) -> Iterator[tuple[_HeadPlace | None, str, int]]:
        """The turns on no session's thread: the session they count for, the last turn of their
        segment, and the depth at which they begin."""
        for segment_id, turn_id, depth in self._tx.run("segment_ends"):
            claims = self._claims[segment_id]
            start = claims[-1].depth if claims else self._parents.get(segment_id, (None, 0))[1]
            if depth > start:
                yield self._owner(segment_id), turn_id, start + 1

    def _owner(self, segment_id: int) -> _HeadPlace | None:
        at: int | None = segment_id
        depth = DEEPEST
        while at is not None:
            claims = self._claims[at]
            if claims:
                return next((claim for claim in claims if claim.depth >= depth), claims[-1]).head
            at, depth = self._parents.get(at, (None, 0))
        return None


def _by_session(
    tx: Transaction, turns: TurnFilter, selected: _Selected, total: ByModel, limit: int | None
) -> UsageReport:
    """Sessions with selected turns, each with what it used and no older one had.

    Threads overlap: what two sessions share counts for the older, so that the lines add up.
    """
    forest = _Forest(tx)
    sessions = [
        own
        for own in forest.sessions
        if own.head.depth > own.shared_depth and turns.agent in (None, own.head.agent)
    ]
    sessions.sort(key=lambda own: (own.shared_tokens - own.head.total_tokens, own.head.label))
    # With a filter, any session may turn out to be the largest.
    candidates = sessions[:limit] if turns == EVERY_TURN else sessions
    groups: dict[str | None, dict[Model, Sums]] = {
        own.head.label: _range(tx, own.head.turn_id, own.shared_depth + 1, turns, selected)
        for own in candidates
        if own.head.updated_at >= (turns.since or 0)
    }
    labels: set[str | None] = {own.head.label for own in candidates}
    if turns.agent is None:
        labels.add(None)
    for head, turn_id, from_depth in forest.abandoned():
        label = head.label if head else None
        if label in labels:
            group = groups.setdefault(label, {})
            for model, sums in _range(tx, turn_id, from_depth, turns, selected).items():
                _add(group, model, sums)
    shared = {own.head.label: own.shared_tokens for own in candidates}
    lines = [
        _line(label, group, shared.get(label or "", 0)) for label, group in groups.items() if group
    ]
    lines.sort(key=_most_tokens_first)
    page = lines[:limit]
    left_out = len(sessions) - len(candidates) + len(lines) - len(page)
    return _report("session", page, total, left_out)


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
