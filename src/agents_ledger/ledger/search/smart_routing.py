"""Smart routing: given only a text, the turns whose accumulated context fits it best.

A turn is relevant by its words. The context at a turn is its thread: what is relevant above it
counts too, the less the further away. So the best place to go on is late enough to hold what
matters, and early enough to leave out what came after it.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agents_ledger.ledger.context import contexts
from agents_ledger.ledger.search import relevance
from agents_ledger.ledger.search.documents import SearchDocument, documents
from agents_ledger.ledger.search.query import Asked, Term
from agents_ledger.ledger.search.relevance import Telling
from agents_ledger.ledger.search.snippets import Finder
from agents_ledger.ledger.search.turn_search import LAST, Candidate
from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.routing import Proposal, Reason
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import ids_of

if TYPE_CHECKING:
    from agents_ledger.model.agents.embedding import Embedder

CONFIDENT = 0.5  # below this nothing is chosen, only proposed
CANDIDATES = 200
MEANING = 1.0  # what the nearest turn by meaning counts, against the best by words
FADING = 0.95  # what a relevant turn counts one turn further down
FURTHER = 0.5  # what the next relevant turn of a thread counts, against the one before
AT_THE_END = 0.5  # what the end of a thread has ahead: most conversations go on there
REASONS = 3
LOOK_BACK = 8  # places tried, from late to early, to fit a budget
_PATH = re.compile(r"[\w.\-/\\]*[\w\-]\.[A-Za-z][A-Za-z0-9]{0,5}\b|[\w.\-]+(?:/[\w.\-]+)+")


class Spot(NamedTuple):
    """A turn to go on from."""

    turn_id: str
    segment_id: int
    depth: int
    score: float
    matches: tuple[Candidate, ...]  # the relevant turns of its thread, the best first


def relevant(
    found: Iterable[Telling],
    hidden: Collection[str] = (),
    near: Iterable[Candidate] = (),
) -> list[Candidate]:
    """The turns that have what tells or are near by meaning, the most relevant first."""
    by_meaning = _relative([each for each in near if each.turn_id not in hidden], MEANING)
    by_words = relevance.relevant(found, hidden)[:CANDIDATES]
    return _together(_relative(by_words, 1.0), by_meaning) if by_meaning else by_words


def _relative(ranked: Sequence[Candidate], weight: float) -> list[Candidate]:
    """Scores between 0 for the last and a weight for the best, so that they can be added."""
    if not ranked:
        return []
    low, best = ranked[-1].score, ranked[0].score
    span = (best - low) or 1.0
    return [each._replace(score=weight * (each.score - low) / span) for each in ranked]


def _together(*rankings: Sequence[Candidate]) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for each in itertools.chain(*rankings):
        known = found.get(each.turn_id)
        found[each.turn_id] = each._replace(score=each.score + (known.score if known else 0.0))
    return sorted(found.values(), key=lambda each: (-each.score, -each.number))


def nearest(tx: Transaction, embedder: Embedder, text: str) -> list[Candidate]:
    """The turns nearest to a text by meaning."""
    from agents_ledger.ledger.search import vectors

    return vectors.nearest(tx, embedder, text, low=-LAST, high=LAST)


def spots(
    tx: Transaction, candidates: Iterable[Candidate], hidden: Collection[str] = ()
) -> list[Spot]:
    """Where to go on, the best first: relevant turns, and the ends of their runs."""
    by_segment: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_segment[candidate.segment_id].append(candidate)
    found = []
    for segment_id, own in by_segment.items():
        above = tx.run("segments_above", segment_id=segment_id)
        on_thread = [
            each
            for other, upto in above
            for each in by_segment.get(other, ())
            if other == segment_id or each.depth <= upto
        ]
        end = _end(tx, segment_id, hidden)
        places = {each.depth: each.turn_id for each in own}
        if end is not None:
            places[end[0]] = end[1]
        for depth, turn_id in places.items():
            score, matches = _fit(depth, on_thread)
            at_end = end is not None and depth == end[0]
            found.append(
                Spot(turn_id, segment_id, depth, score * (1 + AT_THE_END * at_end), tuple(matches))
            )
    return sorted(found, key=lambda spot: (-spot.score, spot.turn_id))


def _end(tx: Transaction, segment_id: int, hidden: Collection[str]) -> tuple[int, str] | None:
    rows = tx.run("segment_end", segment_id=segment_id, limit=1 + len(hidden))
    return next(((depth, turn_id) for depth, turn_id in rows if turn_id not in hidden), None)


def _fit(depth: int, on_thread: Sequence[Candidate]) -> tuple[float, list[Candidate]]:
    """How well the context at a depth fits, and what of it is relevant."""
    above = [
        (each.score * FADING ** (depth - each.depth), each)
        for each in on_thread
        if each.depth <= depth
    ]
    above.sort(key=lambda pair: -pair[0])
    score = sum(value * FURTHER**rank for rank, (value, _) in enumerate(above))
    return score, [each for _, each in above]


def propose(
    tx: Transaction, text: str, *, limit: int, budget: int | None, embedder: Embedder | None = None
) -> tuple[float, tuple[Proposal, ...]]:
    """How sure the first is, and the places to go on, one of each thread."""
    if not text.strip():
        raise Refused("there is no text to find a place for")
    if budget is not None and budget < 1:
        raise Refused(f"a budget of {budget} tokens holds nothing")
    found = relevance.tellings(tx, text)
    terms = [each for each in found if len(each.said) == 1]
    near = nearest(tx, embedder, text) if embedder is not None else []
    ranked = spots(tx, relevant(found, near=near))
    proposals: list[Proposal] = []
    seen: set[int] = set()
    for spot in ranked:
        if spot.segment_id in seen:
            continue
        fitting = _within(tx, ranked, spot, budget)
        if fitting is None:
            continue
        seen.add(spot.segment_id)
        proposals.append(_proposal(tx, *fitting, text, terms))
        if len(proposals) == limit:
            break
    return _confidence(proposals), tuple(proposals)


def _within(
    tx: Transaction, ranked: Sequence[Spot], best: Spot, budget: int | None
) -> tuple[Spot, int] | None:
    """The best place of a thread whose context fits the budget."""
    same = [best, *(s for s in ranked if s.segment_id == best.segment_id and s.depth < best.depth)]
    for spot in same[:LOOK_BACK]:
        tokens = contexts.at(tx, spot.turn_id).total_tokens
        if budget is None or tokens <= budget:
            return spot, tokens
    return None


def _proposal(
    tx: Transaction, spot: Spot, tokens: int, text: str, terms: Sequence[Telling]
) -> Proposal:
    label, title, _ = holders(tx, [spot.turn_id])[spot.turn_id]
    best = [each.turn_id for each in spot.matches[: 2 * REASONS]]
    found = documents(tx, ids_of(best)) if best else {}
    finder = Finder(Asked([Term(term.text) for term in terms], [], []))
    paths = {path.lower() for path in _PATH.findall(text)}
    reasons: list[Reason] = []
    covered: set[int] = set()
    for turn_id in best:
        numbers = _numbers(finder, found[turn_id])
        covered |= numbers
        said = tuple(terms[number].text for number in sorted(numbers))
        reasons.append(Reason(turn_id, said, _files(found[turn_id], paths)))
    weight = sum(term.weight for term in terms)
    covering = sum(terms[number].weight for number in covered) / weight if weight else 0.0
    return Proposal(
        spot.turn_id,
        label,
        title,
        spot.depth,
        spot.score,
        covering,
        tokens,
        tuple(reasons[:REASONS]),
    )


def _numbers(finder: Finder, document: SearchDocument) -> set[int]:
    return {number for piece in document.pieces for number in finder.marks(piece)}


def _files(document: SearchDocument, paths: Collection[str]) -> tuple[str, ...]:
    """The files a turn touched that the text names."""
    return tuple(
        dict.fromkeys(
            file.path
            for file in document.files
            if any(file.path.lower().replace("\\", "/").endswith(path) for path in paths)
        )
    )


def _confidence(proposals: Sequence[Proposal]) -> float:
    """What the first covers of the text, less where another thread fits nearly as well."""
    if not proposals:
        return 0.0
    first = proposals[0]
    second = proposals[1].score if len(proposals) > 1 else 0.0
    return first.coverage * (1 - 0.5 * second / first.score) if first.score else 0.0
