"""Which turns have to do with a text: by its rare words, and by words that stand side by side.

A word tells the more the fewer threads have it, however often those repeat it. Two neighbours tell
more than the same words apart: they are names, paths and ways to put things. What is looked at is
bounded: of a word that very many turns have, the newest of them.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from agents_ledger.ledger.search import tokenizer
from agents_ledger.ledger.search.query import Asked, Term
from agents_ledger.ledger.search.snippets import Finder
from agents_ledger.ledger.search.turn_search import LAST, Candidate, Looking
from agents_ledger.model.reports.search import PARTS
from agents_ledger.store.database import Transaction
from agents_ledger.store.matching import QueryTerm, TermGroup, match

WORDS_MAX = 1000  # of a text are looked at, its first
TERMS = 24  # the rarest words, and as many of the rarest pairs, are looked for
PAIRS_TRIED = 4 * TERMS
COUNTED = 1000  # turns that have a word are looked at, the newest
PAIR = 0.5  # what a pair counts, against a word of the same rarity
ANYWHERE = 1.0  # what a word counts in a turn where its place in the ranking is not known


class Telling(NamedTuple):
    """A word of a text, or two neighbours, with the turns that have it."""

    said: tuple[str, ...]
    turns: tuple[Candidate, ...]
    weight: float = 0.0  # the fewer threads have it, the more

    @property
    def text(self) -> str:
        """As it is looked for."""
        return " ".join(self.said)


class _Count(NamedTuple):
    """How many turns have a word; `oldest`: the number of the last one counted."""

    turns: int
    oldest: int


_Counts = dict[tuple[str, ...], _Count]


def tellings(tx: Transaction, text: str) -> list[Telling]:
    """The words and pairs of a text that tell most; words that no turn has are among them."""
    said = tokenizer.words(text)[:WORDS_MAX]
    counts: _Counts = {(word,): _count(tx, word) for word in dict.fromkeys(said) if _tells(word)}
    rarest = _rarest(counts, TERMS) | _rarest(_pairs(said, counts), PAIRS_TRIED)
    found = _with_waiting(tx, [_telling(tx, *each) for each in rarest.items()])
    pairs = [each for each in found if len(each.said) > 1 and each.turns]
    pairs.sort(key=lambda each: len(each.turns))
    return _weighed(tx, [each for each in found if len(each.said) == 1] + pairs[:TERMS])


def _rarest(counts: _Counts, most: int) -> _Counts:
    """So many that the index knows, and so many that it does not: turns that wait may have them."""
    ordered = sorted(counts.items(), key=lambda each: each[1].turns)
    unknown = [each for each in ordered if not each[1].turns]
    return dict(unknown[:most] + ordered[len(unknown) :][:most])


def _tells(word: str) -> bool:
    return word not in tokenizer.COMMON and (len(word) > 1 or not word.isascii())


def _match(tx: Transaction, said: tuple[str, ...]) -> str:
    return match(tx.engine, [TermGroup((QueryTerm(said, PARTS),))], tokenizer.fold)


def _count(tx: Transaction, word: str) -> _Count:
    ((turns, oldest),) = tx.run(
        "word_count", match=_match(tx, (word,)), low=-LAST, high=LAST, limit=COUNTED
    )
    return _Count(turns, -LAST if oldest is None else oldest)


def _telling(tx: Transaction, said: tuple[str, ...], rarest: _Count) -> Telling:
    """The turns that have it. Where very many have even its rarest word, only the newest of these
    are looked at, and not ranked: to rank, the index would count all."""
    if not rarest.turns:
        return Telling(said, ())
    values = {"match": _match(tx, said), "high": LAST, "limit": COUNTED}
    if rarest.turns < COUNTED:
        rows = tx.run("search_ranked", low=-LAST, **values)
    else:
        rows = [(*row, ANYWHERE) for row in tx.run("search_newest", low=rarest.oldest, **values)]
    return Telling(said, tuple(itertools.starmap(Candidate, rows)))


def _pairs(said: Sequence[str], counts: _Counts) -> _Counts:
    """Neighbours, each with the count of its rarer word: no more turns have both. Words of an
    unspaced run are pairs already."""
    found: _Counts = {}
    for pair in itertools.pairwise(said):
        known = [counts[(word,)] for word in pair if (word,) in counts]
        if known and not any(map(tokenizer.is_glued, pair)):
            found[pair] = min(known)
    return found


def _with_waiting(tx: Transaction, found: Sequence[Telling]) -> list[Telling]:
    """Also the turns that wait for the index."""
    if not tx.run("unindexed_count", limit=1)[0][0]:
        return list(found)
    asked = Asked([Term(each.text) for each in found], [], [])
    finder = Finder(asked)
    waiting: dict[int, list[Candidate]] = defaultdict(list)
    for candidate, document in Looking(tx, asked, "any").waiting(-LAST, LAST) if found else ():
        for number in {mark for piece in document.pieces for mark in finder.marks(piece)}:
            waiting[number].append(candidate)
    return [
        each._replace(turns=each.turns + _typical(each.turns, waiting[number]))
        for number, each in enumerate(found)
    ]


def _typical(ranked: Sequence[Candidate], waiting: Iterable[Candidate]) -> tuple[Candidate, ...]:
    score = ranked[len(ranked) // 2].score if ranked else ANYWHERE
    return tuple(each._replace(score=score) for each in waiting)


def _weighed(tx: Transaction, found: Iterable[Telling]) -> list[Telling]:
    segments = 1 + (tx.run("last_segment")[0][0] or 0)
    return [
        each._replace(weight=math.log(1 + segments / (1 + len({t.segment_id for t in each.turns}))))
        for each in found
    ]


def relevant(found: Iterable[Telling], hidden: Collection[str] = ()) -> list[Candidate]:
    """The turns that have some of it, the most relevant first."""
    turns: dict[str, Candidate] = {}
    for telling in found:
        share = telling.weight**2 * (PAIR if len(telling.said) > 1 else 1.0)
        for each in telling.turns:
            if each.turn_id not in hidden:
                before = turns.get(each.turn_id)
                score = share * each.score + (before.score if before else 0.0)
                turns[each.turn_id] = each._replace(score=score)
    return sorted(turns.values(), key=lambda each: (-each.score, -each.number))
