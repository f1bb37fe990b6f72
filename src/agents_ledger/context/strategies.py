"""Which turns stay when a thread is compacted. A turn stays whole or not at all, so that no call is
parted from its result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import log, sqrt

from agents_ledger.model.context.compaction import Chosen, Strategy, VisibleTurn

WORD = re.compile(r"[^\W_]{3,}")
# The last turns get half of the room; the rest is for turns picked by relevance.
TAIL_PART = 2


def last_turns(turns: Sequence[VisibleTurn], room: int) -> Chosen:
    """As many of the last turns as there is room for; none, if not even the last fits."""
    first = len(turns)
    while first and turns[first - 1].tokens <= room:
        first -= 1
        room -= turns[first].tokens
    return Chosen(first)


def window(turns: Sequence[VisibleTurn], room: int) -> Chosen:
    """The last turns; the very last in any case: without a summary nothing else would be left."""
    return Chosen(min(last_turns(turns, room).first, len(turns) - 1))


def relevant(turns: Sequence[VisibleTurn], room: int) -> Chosen:
    """The last turns in half of the room, and in the rest those that speak of the same things:
    words they share with the last turns, rare words more."""
    first = window(turns, room // TAIL_PART).first
    room -= sum(turn.tokens for turn in turns[first:])
    words = [frozenset(WORD.findall(turn.text.lower())) for turn in turns]
    weights = _weights(words)
    recent = frozenset().union(*words[first:])
    ranked = sorted(
        ((_score(words[n], recent, weights), n) for n in range(first)),
        key=lambda scored: (-scored[0], -scored[1]),
    )
    picked = []
    for score, n in ranked:
        if score > 0 and turns[n].tokens <= room:
            picked.append(n)
            room -= turns[n].tokens
    return Chosen(first, tuple(sorted(picked)))


def _weights(words: Sequence[Iterable[str]]) -> dict[str, float]:
    """How much a word tells: nothing, if every turn has it."""
    counts = Counter(word for turn in words for word in turn)
    return {word: log(len(words) / count) for word, count in counts.items()}


def _score(words: frozenset[str], recent: frozenset[str], weights: dict[str, float]) -> float:
    shared = sum(weights[word] for word in words & recent)
    # Divided by the length, since a long turn shares more words with anything.
    return shared / sqrt(len(words)) if words else 0.0


BUILT_IN = {
    strategy.name: strategy
    for strategy in (
        Strategy("summary", last_turns, summarises=True),
        Strategy("sliding_window", window),
        Strategy("selective", relevant, may_summarise=True),
    )
}
