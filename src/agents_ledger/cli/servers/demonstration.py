"""A small demonstration conversation with one of everything that a ledger records."""

from __future__ import annotations

from typing import Any

from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.ids import now_ms
from agents_ledger.model.turns import Answer, Message, ToolCall, Turn, Usage

LABEL = "demo"
FORK = "demo-strict"
SUBAGENT = "demo-search"
TASK = "Find every caller of parse()"

FILE = """UNITS = {"s": 1, "m": 60, "h": 3600}


def parse(text):
    number, unit = split(text)
    return float(number) * UNITS[unit or "h"]
"""
STRICT = {
    "old": '    return float(number) * UNITS[unit or "h"]',
    "new": """    if not unit:
        raise ValueError(f"{text!r} has no unit")
    return float(number) * UNITS[unit]""",
}
ENTRY = {
    "old": "## Unreleased",
    "new": "## Unreleased\n\n### Fixed\n\n- `parse` takes a number without a unit for seconds.",
}


class Demonstration:
    """Records the conversation, one method per turn."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._now = now_ms()

    def record(self) -> None:
        """Record all of it. Raises HeadMoved if another process records it at the same time."""
        first = self._find_the_bug()
        second = self._fix_it()
        third = self._ask_a_subagent()
        self._try_another_way(first)
        self._fail()
        self._compact(second, third)
        self._write_it_up()
        for label in (LABEL, FORK, SUBAGENT):
            self._ledger.update_session(label, origin="demo")
        task = {"task_description": TASK, "task_status": "completed"}
        self._ledger.update_session(SUBAGENT, **task)
        self._ledger.annotate(LABEL, title="A demonstration")

    def _turn(
        self, ago_s: int, took_ms: int, label: str, query: Any, answer: Answer, **fields: Any
    ) -> Turn:
        started_at = self._now - ago_s * 1000
        completed_at = started_at + took_ms
        fields = {"model": "demo-model", "provider": "demo", **fields}
        times = {"started_at": started_at, "completed_at": completed_at}
        return self._ledger.record(label, query, answer, **{**fields, **times})

    def _find_the_bug(self) -> Turn:
        steps = (
            ToolCall.of("Grep", {"pattern": "def parse"}, {"matches": ["durations.py:14"]}),
            ToolCall.of("Read", {"path": "durations.py"}, {"text": FILE}),
        )
        answer = Message(
            "assistant",
            "parse() takes a number without a unit for hours: durations.py, line 16.",
            thinking="The unit is looked up with a default. The default is hours.",
        )
        query = 'Why does parse("90") give 90 hours?'
        usage = Usage(2140, 96, reasoning_tokens=24)
        return self._turn(340, 8200, LABEL, query, answer, steps=steps, usage=usage, parent=None)

    def _fix_it(self) -> Turn:
        change = {"path": "durations.py", "old": 'unit or "h"', "new": 'unit or "s"'}
        tests = {"command": "pytest -q tests/test_durations.py"}
        steps = (
            ToolCall.of("Edit", change, {"changed": 1}),
            ToolCall.of("Bash", tests, {"output": "14 passed"}),
        )
        answer = "A number without a unit is seconds now. All 14 tests pass."
        query = "Fix it, and run the tests."
        return self._turn(310, 12100, LABEL, query, answer, steps=steps, usage=Usage(2610, 130))

    def _ask_a_subagent(self) -> Turn:
        call = ToolCall(
            "Task",
            '{"description": "Find every caller of parse()"}',
            '{"callers": 2}',
            spawned_session_label=SUBAGENT,
        )
        query = "Does anything rely on the old meaning?"
        answer = "No: both callers name their unit."
        turn = self._turn(270, 9400, LABEL, query, answer, steps=(call,), usage=Usage(2980, 41))
        steps = (
            ToolCall.of("Grep", {"pattern": "parse("}, {"matches": 2}),
            ToolCall.of("Read", {"path": "config.py"}, {"text": "..."}),
        )
        task = Message("user", f"{TASK}.", "agent")
        answer = "Two: cli.py, line 40, and config.py, line 71. Both name a unit."
        self._turn(268, 6300, SUBAGENT, task, answer, steps=steps, usage=Usage(1890, 74))
        return turn

    def _try_another_way(self, start: Turn) -> None:
        self._ledger.fork(start.id, label=FORK)
        steps = (
            ToolCall.of("Edit", {"path": "durations.py", **STRICT}, {"changed": 3}),
            ToolCall.of("Bash", {"command": "pytest -q"}, error="exit 1: 2 of 14 tests failed"),
        )
        query = "Refuse numbers without a unit."
        answer = 'parse("90") raises ValueError now: write 90s, 90m or 90h. Two tests must change.'
        self._turn(200, 10700, FORK, query, answer, steps=steps, usage=Usage(2420, 118))

    def _fail(self) -> None:
        why = "overloaded"
        query = "Write the changelog entry."
        self._turn(120, 2900, LABEL, query, None, status="failed", error=why, usage=Usage(3050))

    def _compact(self, through: Turn, first_kept: Turn) -> None:
        record = Compaction(
            summary=(
                "parse() in durations.py took numbers without a unit for hours. The default is"
                " seconds now, and the tests pass."
            ),
            summarized_through_turn_id=through.id,
            first_kept_turn_id=first_kept.id,
            turns_summarized=2,
            model="demo-model",
            provider="demo",
            tokens_before=7956,
            tokens_after=3120,
            summary_tokens=38,
            trigger="manual",
        )
        self._turn(90, 4000, LABEL, (), None, compaction=record)

    def _write_it_up(self) -> None:
        steps = (ToolCall.of("Edit", {"path": "CHANGELOG.md", **ENTRY}, {"changed": 1}),)
        query = "Write the changelog entry."
        answer = "Added under Fixed: `parse` takes a number without a unit for seconds."
        usage = Usage(3260, 58, cached_input_tokens=2900)
        self._turn(60, 5100, LABEL, query, answer, steps=steps, usage=usage)
