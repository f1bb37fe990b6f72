"""What was used, summed up: tokens and money, and tools."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

UsageBy = Literal["day", "week", "month", "block", "model", "agent", "project", "session"]
UsageSplit = Literal["model", "project", "agent"]

NOT_RECORDED = "(none)"  # as a filter: turns without a model or project
# The figures of a line as comma-separated values.
CSV_COLUMNS = (
    "turns", "failed", "tool_calls", "fresh_input_tokens", "cached_input_tokens",
    "cache_write_tokens", "long_cache_write_tokens", "paid_output_tokens", "reasoning_tokens",
    "total_tokens", "cost_microdollars", "unpriced_turns", "turns_without_tokens",
)  # fmt: skip


class Spent(Struct, frozen=True):
    """What some turns used together. Every turn counts once, however many sessions share it."""

    turns: int = 0
    failed: int = 0
    turns_without_tokens: int = 0  # ended turns whose source reports no tokens
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    # As they are paid for, however the provider counts: input that came from no cache, and output
    # with all reasoning.
    fresh_input_tokens: int = 0
    paid_output_tokens: int = 0
    long_cache_write_tokens: int = 0  # of the cache writes, those kept for an hour
    cost_microdollars: int | None = None  # None: nothing of it has a price
    unpriced_turns: int = 0  # with tokens, of models without a price

    @property
    def cache_hit_rate(self) -> float | None:
        """The part of the input that came from a cache; None without input."""
        whole = self.fresh_input_tokens + self.cached_input_tokens + self.cache_write_tokens
        return self.cached_input_tokens / whole if whole else None


class ModelUsage(Struct, frozen=True):
    """What turns of one model used."""

    model: str | None
    provider: str | None
    spent: Spent


class UsageLine(Struct, frozen=True):
    """What was used in a period, by a model or agent, in a project or by a session."""

    key: str | None  # None: the turns do not say
    spent: Spent
    models: tuple[ModelUsage, ...] = ()  # most tokens first
    shared_tokens: int = 0  # of the thread, counted for an older session that has the same turns
    parts: tuple[UsagePart, ...] = ()  # the same by model, project or agent, if requested


class UsagePart(Struct, frozen=True):
    """What one model, project or agent used within a line."""

    key: str | None
    spent: Spent


class SessionUsage(Struct, frozen=True):
    """What the turns of a session's thread used, and those of its subagents."""

    own: Spent
    subagents: Spent
    total: Spent


class UsageReport(Struct, frozen=True):
    """What was used, line by line: periods in their order, others by tokens, most first."""

    by: UsageBy
    lines: tuple[UsageLine, ...]
    total: Spent
    unpriced: tuple[str, ...]  # models used that have no price
    priced_on: str  # the day of the prices
    left_out: int = 0  # lines beyond the limit


class ToolUsage(Struct, frozen=True):
    """How a tool was used. Times are of the calls that say when they began and ended.

    p50 and p95 are estimates: durations are counted in steps of 1, 2, 5, 10, ... milliseconds.
    """

    tool_name: str
    calls: int
    failed: int = 0
    cancelled: int = 0
    rejected: int = 0
    unfinished: int = 0
    timed: int = 0
    duration_ms: int = 0  # of all of them together
    p50_ms: int | None = None
    p95_ms: int | None = None
    longest_ms: int | None = None
    last_used_at: int = 0
