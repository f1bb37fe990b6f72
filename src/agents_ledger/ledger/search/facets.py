"""Counts what the turns that a search finds have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from msgspec.structs import replace

from agents_ledger.ledger.search import query as search_query
from agents_ledger.ledger.search.documents import project_of
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.turn_search import FIRST_LOOK, PageStart, SearchRun
from agents_ledger.ledger.search.words.term_groups import Mode
from agents_ledger.model.reports.search import KIND_PARTS, Kind, SearchFacets
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches

TURNS_MAX = 1000  # counted, the newest
VALUES_MAX = 8  # of one facet
PERIODS = (1, 7, 30, 365)  # days
DAY_MS = 86_400_000


def facets(tx: Transaction, text: str, *, now_ms: int) -> SearchFacets:
    query = search_query.parse(text, now_ms)
    run = SearchRun(tx, query, "all")
    turns, mode = _newest(run, "all"), "all"  # type: tuple[list[Candidate], Mode]
    if not turns and run.has_choice:
        run, mode = SearchRun(tx, query, "any"), "any"
        turns = _newest(run, mode)
    capped = run.capped or len(turns) > TURNS_MAX
    del turns[TURNS_MAX:]
    projects: Counter[str] = Counter()
    periods: Counter[int] = Counter()
    for ids in in_batches([turn.turn_id for turn in turns]):
        for row in tx.run("document_turns", ids=ids):
            projects[project_of(row[5])] += 1
            periods.update(days for days in PERIODS if row[1] >= now_ms - days * DAY_MS)
    del projects[""]
    kinds: list[tuple[Kind, int]] = []
    numbers = {turn.number for turn in turns}
    for kind, parts in KIND_PARTS.items():
        if set(parts) <= set(query.parts):
            narrowed = SearchRun(tx, replace(query, parts=parts), mode)
            count = sum(turn.number in numbers for turn in _newest(narrowed, mode))
            kinds.append((kind, count))
    return SearchFacets(
        len(turns),
        capped,
        _most(_origins(tx, turns)),
        _most(projects),
        tuple((kind, count) for kind, count in kinds if count),
        tuple((days, periods[days]) for days in PERIODS if periods[days]),
    )


def _newest(run: SearchRun, mode: Mode) -> list[Candidate]:
    newest = run.newest(PageStart(mode), FIRST_LOOK)
    return list(islice(filter(run.in_scope, newest), TURNS_MAX + 1))


def _origins(tx: Transaction, turns: Iterable[Candidate]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (origin,) in tx.run("session_origins"):
        depths: dict[int, int] = dict(
            tx.run("search_scope", label=None, origin=origin, persona_id=None)
        )
        counts[origin] = sum(turn.depth <= depths.get(turn.segment_id, 0) for turn in turns)
    return +counts


def _most(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ordered[:VALUES_MAX])
