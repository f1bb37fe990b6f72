"""Copilot CLI: what the totals at the end of a run add to the output that its messages say.

Older versions tell the totals of the run alone, newer ones those of the session so far. Nothing
says which: what the messages spent since then does.
"""

from __future__ import annotations

from typing import Any

from agents_ledger.importers.transcript.turn_tree import as_dict, as_number

OUTPUT = "output_tokens"
USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": OUTPUT,
    "cacheReadTokens": "cached_input_tokens",
    "cacheWriteTokens": "cache_write_tokens",
    "reasoningTokens": "reasoning_tokens",
}

Totals = dict[str, dict[str, int]]  # by model


class Tokens:
    """The tokens of a log, event by event."""

    def __init__(self) -> None:
        self.is_whole = False  # the totals hold nothing that stood before this log
        self.heard = 0  # how often anything was told
        self._totals: Totals = {}  # as last told
        self._is_resumed = False  # whether these are another run's
        self._said = 0  # output of messages that no total has covered, of this run
        self._late = 0  # of that, what came behind the last compaction
        self._lost = 0  # the same of runs that told no total

    def begin(self, *, anew: bool) -> None:
        """The program runs, with a new session or with one that goes on."""
        if anew:
            self._totals, self._lost, self.is_whole = {}, 0, True
        else:
            self._lost += self._said
        self._is_resumed = not anew
        self._said = self._late = 0

    def say(self, output: int) -> None:
        """Output of one more message."""
        self.heard += 1
        self._said += output
        self._late += output

    def compacted(self) -> None:
        """Totals may have lost what this run spent before."""
        self._late = 0

    def count(self, metrics: dict[str, Any]) -> dict[str, int]:
        """What totals say that was not counted yet; empty where they say nothing."""
        now = _totals(metrics)
        if not now:
            return {}
        self.heard += 1
        if self._is_resumed and not self._goes_on(now):
            self._totals, self._lost = {}, 0
        grown = dict.fromkeys(USAGE.values(), 0)
        for model, usage in now.items():
            before = self._totals.get(model, {})
            if any(usage[name] < number for name, number in before.items()):
                before = {}  # it began anew
            for name, number in usage.items():
                grown[name] += number - before.get(name, 0)
        grown[OUTPUT] = max(0, grown[OUTPUT] - self._said - self._lost)
        grown["total_tokens"] = grown["input_tokens"] + grown[OUTPUT]
        self._totals, self._is_resumed, self.is_whole = self._totals | now, False, True
        self._said = self._late = self._lost = 0
        return {name: number for name, number in grown.items() if number}

    def _goes_on(self, now: Totals) -> bool:
        """Whether totals are of the session: none is less than before the run, and their output is
        as near to what was spent since then as to what was spent in the run alone."""
        for model, before in self._totals.items():
            usage = now.get(model, {})
            if any(usage.get(name, 0) < number for name, number in before.items()):
                return False
        was, output = _output(self._totals), _output(now)
        run = (self._said, self._late)
        return min(abs(output - was - n) for n in run) <= min(abs(output - n) for n in run)


def _totals(metrics: dict[str, Any]) -> Totals:
    used = {model: as_dict(as_dict(said).get("usage")) for model, said in metrics.items()}
    return {
        model: {name: as_number(usage.get(field)) or 0 for field, name in USAGE.items()}
        for model, usage in used.items()
        if usage
    }


def _output(totals: Totals) -> int:
    return sum(usage[OUTPUT] for usage in totals.values())
