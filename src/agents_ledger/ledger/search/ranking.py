"""How relevant turns are to a question: pure functions over the turns that have each of its words.

A word counts the more the fewer turns have it (as in BM25), in any of its forms. A turn gains from
its neighbours and the first prompt in the thread, because an answer often stands beside the words
of the question, and from its thread as a whole.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

# Weights of the scores of neighbours, and their distances. From .2 to .4 hardly matters; from .5
# on, it blurs.
NEIGHBOURS = ((0.3, -1, 1), (0.1, -2, 2))
# Weight of the first turn of a thread, whose prompt says what the others are about.
FIRST = 0.1
# Weight of each further turn of the same thread.
FURTHER = 0.5
# Weight of the whole thread: the words of a question are often spread over it.
THREAD = 1.0
# Weight of a title that has a word of the question, relative to the word in a turn.
TITLE = 1.0
# Weight of turns of the time that a question names. Others stay: what happened in June may
# have been told in July.
IN_TIME = 3.0
# What the newest turn gains over one that is much older, and the age at which half of it is left.
RECENT = 0.05
# Numbers of a second in the index, of which 4,000 are used: a power of two packs better there.
SECOND = 4096
RECENT_NUMBERS = 30 * 86_400 * SECOND
# BM25's usual constants, for threads: how fast repetitions stop counting, and how much length does.
REPEATED = 1.2
LENGTH = 0.75


class Candidate(NamedTuple):
    """A turn that has the words, before scopes are checked.

    Its number is unique and comes from the index; a turn that waits gets one half a number above.
    """

    number: float
    turn_id: str
    segment_id: int
    depth: int
    score: float = 0.0


class WordMatches(NamedTuple):
    """The turns that have a word of a question in any form, and the ends of the sessions that have
    it in their title."""

    turns: Sequence[Candidate]
    titled: Sequence[Candidate] = ()


# A turn's segment and depth as one number, whose neighbours are those of the turn.
SEGMENT = 1 << 32


def rarity(turns: int, total: int) -> float:
    """BM25's weight of a word that so many turns of all have; never negative."""
    return math.log(1 + (max(total, turns) - turns + 0.5) / (turns + 0.5))


def ranked(words: Sequence[WordMatches], turns: int, threads: int) -> list[Candidate]:
    """The turns that have words of a question, most relevant first; `turns`, `threads`: how many
    there are in all."""
    candidates: dict[int, Candidate] = {}
    scores: dict[int, float] = defaultdict(float)
    of_thread = _thread_scores(words, threads)
    for word in words:
        weight = rarity(len(word.turns), turns)
        median = typical(word.turns)
        for turn in word.turns:
            # Relative to the median turn: without the engine's own weight of the word, which is
            # that of a single form. The root keeps a rare form, or a word that is repeated, from
            # outweighing the other words.
            share = math.sqrt(turn.score / median) if median > 0 else 1.0
            place = turn.segment_id * SEGMENT + turn.depth
            scores[place] += weight * share
            candidates[place] = turn
        for turn in word.titled:
            candidates.setdefault(turn.segment_id * SEGMENT + turn.depth, turn)
            of_thread[turn.segment_id] += TITLE * weight
    newest = max([turn.number for turn in candidates.values()], default=0.0)
    scored = []
    for place, turn in candidates.items():
        score = _with_others(scores, place) + THREAD * of_thread[turn.segment_id]
        # Age counts from the newest match: with a clock, a page and the next would differ.
        recency = 1 + RECENT * math.exp2((turn.number - newest) / RECENT_NUMBERS)
        scored.append((score * recency, turn.number, turn))
    return _spread(scored)


def typical(turns: Sequence[Candidate]) -> float:
    """The median score of turns; 1.0 if there are none."""
    scores = sorted([turn.score for turn in turns])
    return scores[len(scores) // 2] if scores else 1.0


def _with_others(scores: Mapping[int, float], place: int) -> float:
    """The score of a place with those of its neighbours and of the first turn."""
    get = scores.get
    score = get(place, 0.0) + FIRST * get(place // SEGMENT * SEGMENT + 1, 0.0)
    for weight, before, behind in NEIGHBOURS:
        score += weight * (get(place + before, 0.0) + get(place + behind, 0.0))
    return score


def _thread_scores(words: Sequence[WordMatches], threads: int) -> dict[int, float]:
    """BM25 of whole threads, as long as the depth at which they last have a word."""
    lengths: dict[int, int] = {}
    for turn in chain.from_iterable(word.turns for word in words):
        if turn.depth > lengths.get(turn.segment_id, 0):
            lengths[turn.segment_id] = turn.depth
    mean = sum(lengths.values()) / max(1, len(lengths))
    scores: dict[int, float] = defaultdict(float)
    for word in words:
        counts = Counter([turn.segment_id for turn in word.turns])
        weight = rarity(len(counts), threads)
        for segment_id, count in counts.items():
            length = 1 - LENGTH + LENGTH * lengths[segment_id] / mean
            scores[segment_id] += weight * count * (REPEATED + 1) / (count + REPEATED * length)
    return scores


def favouring(turns: Iterable[Candidate], low: float, high: float) -> list[Candidate]:
    """Turns with numbers of a period before those of other times."""
    scored = (
        turn._replace(score=turn.score * (IN_TIME if low <= turn.number < high else 1.0))
        for turn in turns
    )
    return sorted(scored, key=_order)


def _order(turn: Candidate) -> tuple[float, float]:
    return -turn.score, -turn.number


def _spread(scored: list[tuple[float, float, Candidate]]) -> list[Candidate]:
    """Further turns of a thread weigh less, so that a page shows several conversations."""
    scored.sort(reverse=True)
    shares: dict[int, float] = {}
    spread = []
    for score, number, turn in scored:
        share = shares.get(turn.segment_id, 1.0)
        shares[turn.segment_id] = share * FURTHER
        spread.append((score * share, number, turn))
    spread.sort(reverse=True)
    return [Candidate(*turn[:4], score) for score, _, turn in spread]
