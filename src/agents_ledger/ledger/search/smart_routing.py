"""Smart routing: given only a text, the turns whose accumulated context fits it best.

A turn is relevant by the text's rare words and by pairs of neighbouring words. A word counts the
more the fewer threads have it, however often those repeat it. A pair counts more than its words
apart: pairs are names, paths and idioms. What is read is bounded: of a word that very many turns
have, only the newest of them.

The context at a turn is its thread: relevant ancestors count too, the less the further away. So the
best turn to continue is late enough to hold what matters, and early enough to leave out the rest.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agents_ledger.ledger.context import contexts
from agents_ledger.ledger.search.documents import SearchDocument, documents
from agents_ledger.ledger.search.query import SearchQuery, Term
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.turn_search import LAST, SearchRun
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.ledger.search.words.snippets import PhraseFinder
from agents_ledger.ledger.sessions import deleted
from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.routing import Proposal, Reason
from agents_ledger.model.reports.search import PARTS
from agents_ledger.store.database import Transaction
from agents_ledger.store.matching import QueryTerm, TermGroup, match
from agents_ledger.store.text import ids_of

if TYPE_CHECKING:
    from agents_ledger.model.agents.embedding import Embedder

# Below this confidence turns are only proposed.
CONFIDENT = 0.5
# Measured on real sessions: how often the first of two equal proposals is right, what a lead adds,
# and the coverage of a text from which on more says nothing.
EVEN = 0.3
AHEAD = 0.65
ENOUGH = 0.5
CANDIDATES = 200
# Weight of the nearest turn by meaning, relative to the best by words.
MEANING = 1.0
FADING = 0.98  # weight of a relevant turn per turn of distance
FURTHER = 0.5  # weight of each further relevant turn of a thread
# Bonus for the end of a thread: most conversations continue there.
AT_THE_END = 0.5
REASONS = 3
LOOK_BACK = 8  # turns tried, from late to early, to fit a budget
_PATH = re.compile(r"[\w.\-/\\]*[\w\-]\.[A-Za-z][A-Za-z0-9]{0,5}\b|[\w.\-]+(?:/[\w.\-]+)+")
WORDS_MAX = 1000  # of a text that are considered, its first
# The rarest words, and as many of the rarest pairs, are searched for.
TERMS = 24
PAIRS_TRIED = 4 * TERMS
# Weight of a pair, relative to a word of the same rarity.
PAIR = 0.5
ANYWHERE = 1.0  # score of a word in a turn that is not ranked


class ForkPoint(NamedTuple):
    turn_id: str
    segment_id: int
    depth: int
    score: float
    matches: tuple[Candidate, ...]  # the relevant turns of its thread, best first


# -- distinctive words ------------------------------------------------------------------------


class DistinctiveTerm(NamedTuple):
    """A word of a text, or two neighbours, with the turns that have it."""

    words: tuple[str, ...]
    turns: tuple[Candidate, ...]
    weight: float = 0.0  # larger, the fewer threads have it

    @property
    def text(self) -> str:
        return " ".join(self.words)


class _Count(NamedTuple):
    """How many turns have a word, up to a limit."""

    turns: int
    oldest: int  # the number of the last turn that was counted


_Counts = dict[tuple[str, ...], _Count]


def distinctive_terms(tx: Transaction, text: str) -> list[DistinctiveTerm]:
    """The rarest words and pairs of a text, including words that no turn has."""
    words = tokenizer.words(text)[:WORDS_MAX]
    unique = filter(_is_distinctive, dict.fromkeys(words))
    counts: _Counts = {(word,): _count(tx, word) for word in unique}
    rarest = _rarest(counts, TERMS) | _rarest(_pairs(words, counts), PAIRS_TRIED)
    terms = _with_waiting(tx, [_term(tx, *counted) for counted in rarest.items()])
    pairs = [term for term in terms if len(term.words) > 1 and term.turns]
    pairs.sort(key=lambda pair: len(pair.turns))
    return _weighed(tx, [term for term in terms if len(term.words) == 1] + pairs[:TERMS])


def _rarest(counts: _Counts, most: int) -> _Counts:
    """At most `most` that are in the index, and as many that are not: waiting turns may have
    those."""
    ordered = sorted(counts.items(), key=lambda counted: counted[1].turns)
    unknown = [counted for counted in ordered if not counted[1].turns]
    return dict(unknown[:most] + ordered[len(unknown) :][:most])


def _is_distinctive(word: str) -> bool:
    return word not in tokenizer.COMMON and (len(word) > 1 or not word.isascii())


def _match(tx: Transaction, words: tuple[str, ...]) -> str:
    return match(tx.engine, [TermGroup((QueryTerm(words, PARTS),))], tokenizer.fold)


def _count(tx: Transaction, word: str) -> _Count:
    values = {"match": _match(tx, (word,)), "limit": tx.limits.routing_turns}
    ((turns, oldest),) = tx.run("word_count", low=-LAST, high=LAST, **values)
    return _Count(turns, -LAST if oldest is None else oldest)


def _term(tx: Transaction, words: tuple[str, ...], rarest: _Count) -> DistinctiveTerm:
    """The term with the turns that have it. If very many have even its rarest word, only the newest
    of these are read, unranked: to rank them, the index would have to count all."""
    if not rarest.turns:
        return DistinctiveTerm(words, ())
    values = {"match": _match(tx, words), "high": LAST, "limit": tx.limits.routing_turns}
    if rarest.turns < tx.limits.routing_turns:
        rows = tx.run("search_ranked", low=-LAST, **values)
    else:
        rows = [(*row, ANYWHERE) for row in tx.run("search_newest", low=rarest.oldest, **values)]
    return DistinctiveTerm(words, tuple(itertools.starmap(Candidate, rows)))


def _pairs(words: Sequence[str], counts: _Counts) -> _Counts:
    """Neighbours, each with the count of its rarer word: no more turns can have both. The words of
    a script without spaces are pairs already."""
    pairs: _Counts = {}
    for pair in itertools.pairwise(words):
        counted = [counts[(word,)] for word in pair if (word,) in counts]
        if counted and not any(map(tokenizer.is_glued, pair)):
            pairs[pair] = min(counted)
    return pairs


def _with_waiting(tx: Transaction, terms: Sequence[DistinctiveTerm]) -> list[DistinctiveTerm]:
    """The terms with the turns that wait for the index added."""
    if not terms or not tx.run("unindexed_count", limit=1)[0][0]:
        return list(terms)
    query = SearchQuery([Term(term.text) for term in terms], [], [])
    finder = PhraseFinder(query)
    waiting: dict[int, list[Candidate]] = defaultdict(list)
    for candidate, document in SearchRun(tx, query, "any").waiting(-LAST, LAST):
        for number in _numbers(finder, document):
            waiting[number].append(candidate)
    return [
        term._replace(turns=term.turns + _typical(term.turns, waiting[number]))
        for number, term in enumerate(terms)
    ]


def _typical(ranked: Sequence[Candidate], waiting: Iterable[Candidate]) -> tuple[Candidate, ...]:
    score = ranked[len(ranked) // 2].score if ranked else ANYWHERE
    return tuple(turn._replace(score=score) for turn in waiting)


def _weighed(tx: Transaction, terms: Iterable[DistinctiveTerm]) -> list[DistinctiveTerm]:
    segments = 1 + (tx.run("last_segment")[0][0] or 0)
    return [
        term._replace(weight=math.log(1 + segments / (1 + len({t.segment_id for t in term.turns}))))
        for term in terms
    ]


# -- relevant turns ---------------------------------------------------------------------------


def relevant(
    terms: Iterable[DistinctiveTerm],
    hidden: Collection[str] = (),
    near: Iterable[Candidate] = (),
) -> list[Candidate]:
    """The turns that have some of the terms or are near by meaning, most relevant first."""
    by_meaning = _relative([turn for turn in near if turn.turn_id not in hidden], MEANING)
    by_words = relevant_by_words(terms, hidden)[:CANDIDATES]
    return _merged(_relative(by_words, 1.0), by_meaning) if by_meaning else by_words


def relevant_by_words(
    terms: Iterable[DistinctiveTerm], hidden: Collection[str] = ()
) -> list[Candidate]:
    turns: dict[str, Candidate] = {}
    for term in terms:
        share = term.weight**2 * (PAIR if len(term.words) > 1 else 1.0)
        for turn in term.turns:
            if turn.turn_id not in hidden:
                before = turns.get(turn.turn_id)
                score = share * turn.score + (before.score if before else 0.0)
                turns[turn.turn_id] = turn._replace(score=score)
    return sorted(turns.values(), key=lambda turn: (-turn.score, -turn.number))


def _relative(ranked: Sequence[Candidate], weight: float) -> list[Candidate]:
    """Scores scaled from 0 for the last to `weight` for the best, so that they can be added."""
    if not ranked:
        return []
    low, best = ranked[-1].score, ranked[0].score
    span = (best - low) or 1.0
    return [turn._replace(score=weight * (turn.score - low) / span) for turn in ranked]


def _merged(*rankings: Sequence[Candidate]) -> list[Candidate]:
    turns: dict[str, Candidate] = {}
    for turn in itertools.chain(*rankings):
        before = turns.get(turn.turn_id)
        turns[turn.turn_id] = turn._replace(score=turn.score + (before.score if before else 0.0))
    return sorted(turns.values(), key=lambda turn: (-turn.score, -turn.number))


def nearest(tx: Transaction, embedder: Embedder, text: str) -> list[Candidate]:
    from agents_ledger.ledger.search import vectors

    return vectors.nearest(tx, embedder, text, low=-LAST, high=LAST)


def fork_points(
    tx: Transaction, candidates: Iterable[Candidate], hidden: Collection[str] = ()
) -> list[ForkPoint]:
    """Where to continue, best first: relevant turns, and the ends of their segments."""
    concealed = deleted.hidden(tx)
    by_segment: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if not concealed.has(candidate.segment_id, candidate.depth):
            by_segment[candidate.segment_id].append(candidate)
    points = []
    for segment_id, own in by_segment.items():
        above = tx.run("segments_above", segment_id=segment_id)
        on_thread = [
            turn
            for other, upto in above
            for turn in by_segment.get(other, ())
            if other == segment_id or turn.depth <= upto
        ]
        end = _end(tx, segment_id, hidden)
        places = {turn.depth: turn.turn_id for turn in own}
        if end is not None and not concealed.has(segment_id, end[0]):
            places[end[0]] = end[1]
        for depth, turn_id in places.items():
            score, matches = _fit(depth, on_thread)
            at_end = end is not None and depth == end[0]
            points.append(
                ForkPoint(
                    turn_id, segment_id, depth, score * (1 + AT_THE_END * at_end), tuple(matches)
                )
            )
    return sorted(points, key=lambda point: (-point.score, point.turn_id))


def _end(tx: Transaction, segment_id: int, hidden: Collection[str]) -> tuple[int, str] | None:
    rows = tx.run("segment_end", segment_id=segment_id, limit=1 + len(hidden))
    return next(((depth, turn_id) for depth, turn_id in rows if turn_id not in hidden), None)


def _fit(depth: int, on_thread: Sequence[Candidate]) -> tuple[float, list[Candidate]]:
    """How well the context at a depth fits, and the relevant turns in it."""
    above = [
        (turn.score * FADING ** (depth - turn.depth), turn)
        for turn in on_thread
        if turn.depth <= depth
    ]
    above.sort(key=lambda pair: -pair[0])
    score = sum(value * FURTHER**rank for rank, (value, _) in enumerate(above))
    return score, [turn for _, turn in above]


def propose(
    tx: Transaction,
    text: str,
    *,
    limit: int,
    budget: int | None,
    embedder: Embedder | None = None,
    hidden: Collection[str] = (),
) -> tuple[float, tuple[Proposal, ...]]:
    """The confidence in the first proposal, and the proposals, one for each thread; none of a
    hidden turn."""
    if not text.strip():
        raise Refused("the text to route by is empty")
    if budget is not None and budget < 1:
        raise Refused(f"budget is {budget}; it must be positive")
    terms = distinctive_terms(tx, text)
    words = [term for term in terms if len(term.words) == 1]
    near = nearest(tx, embedder, text) if embedder is not None else []
    ranked = fork_points(tx, relevant(terms, hidden, near), hidden)
    proposals: list[Proposal] = []
    seen: set[int] = set()
    for point in ranked:
        if point.segment_id in seen:
            continue
        fitting = _within(tx, ranked, point, budget)
        if fitting is None:
            continue
        seen.add(point.segment_id)
        proposals.append(_proposal(tx, *fitting, text, words))
        if len(proposals) == limit:
            break
    return _confidence(proposals), tuple(proposals)


def _within(
    tx: Transaction, ranked: Sequence[ForkPoint], best: ForkPoint, budget: int | None
) -> tuple[ForkPoint, int] | None:
    """The best turn of a thread whose context fits the budget, and the tokens of that context."""
    same = [best, *(s for s in ranked if s.segment_id == best.segment_id and s.depth < best.depth)]
    for point in same[:LOOK_BACK]:
        tokens = contexts.at(tx, point.turn_id).total_tokens
        if budget is None or tokens <= budget:
            return point, tokens
    return None


def _proposal(
    tx: Transaction, point: ForkPoint, tokens: int, text: str, terms: Sequence[DistinctiveTerm]
) -> Proposal:
    label, title, _ = holders(tx, [point.turn_id])[point.turn_id]
    best = [turn.turn_id for turn in point.matches[: 2 * REASONS]]
    by_id = documents(tx, ids_of(best)) if best else {}
    finder = PhraseFinder(SearchQuery([Term(term.text) for term in terms], [], []))
    paths = {path.lower() for path in _PATH.findall(text)}
    reasons: list[Reason] = []
    covered: set[int] = set()
    for turn_id in best:
        numbers = _numbers(finder, by_id[turn_id])
        covered |= numbers
        words = tuple(terms[number].text for number in sorted(numbers))
        reasons.append(Reason(turn_id, words, _files(by_id[turn_id], paths)))
    weight = sum(term.weight for term in terms)
    covering = sum(terms[number].weight for number in covered) / weight if weight else 0.0
    return Proposal(
        point.turn_id,
        label,
        title,
        point.depth,
        point.score,
        covering,
        tokens,
        tuple(reasons[:REASONS]),
    )


def _numbers(finder: PhraseFinder, document: SearchDocument) -> set[int]:
    return {number for piece in document.pieces for number in finder.marks(piece)}


def _files(document: SearchDocument, paths: Collection[str]) -> tuple[str, ...]:
    """The files that a turn touched and the text names."""
    return tuple(
        dict.fromkeys(
            file.path
            for file in document.files
            if any(file.path.lower().replace("\\", "/").endswith(path) for path in paths)
        )
    )


def _confidence(proposals: Sequence[Proposal]) -> float:
    """How likely the first is right: the more, the further it is ahead of the second. Less than
    half of the text covered says little, and nothing covered nothing."""
    if not proposals or not proposals[0].score:
        return 0.0
    first = proposals[0]
    ahead = 1 - (proposals[1].score if len(proposals) > 1 else 0.0) / first.score
    return min(1.0, first.coverage / ENOUGH) * (EVEN + AHEAD * ahead)
