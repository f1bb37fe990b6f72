"""Finds a text in the messages and calls of one thread, through the word index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agents_ledger.ledger.search.documents import SearchDocument, documents
from agents_ledger.ledger.search.query import SearchQuery, Term
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.turn_search import FIRST_LOOK, PageStart, SearchRun
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.ledger.search.words.snippets import PhraseFinder, cut_snippet
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import ThreadMatch, ThreadMatches
from agents_ledger.model.turns import check_limit, check_text
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import ids_of

LIMIT_MAX = 1000
TEXT_MAX = 1000  # characters
TURNS_READ = 10  # at once
CHARS_MAX = 20_000_000  # of the turns that are read for one answer
DAY_MS = 86_400_000


def find(tx: Transaction, target: str, text: str, *, limit: int) -> ThreadMatches:
    """Where the thread of a target has a text, root first."""
    check_limit(limit, LIMIT_MAX)
    check_text(text, "a search")
    if len(text) > TEXT_MAX:
        raise Refused(f"the text has at most {TEXT_MAX:,} characters, not {len(text):,}")
    head = threads.resolve(tx, target)
    if head is None or not tokenizer.asked(text):
        return ThreadMatches(())
    from_ms, until_ms = _period(tx, head)
    terms = [Term(text, prefix=True)]
    query = SearchQuery(terms, [], [], from_ms=from_ms, until_ms=until_ms)
    run = SearchRun(tx, query, "all")
    turns = sorted(_on_thread(tx, head, run), key=lambda turn: turn.depth)
    finder = PhraseFinder(query)
    matches: list[ThreadMatch] = []
    chars, capped = 0, run.capped
    for at in range(0, len(turns), TURNS_READ):
        if len(matches) > limit or chars > CHARS_MAX:
            capped = True
            break
        batch = turns[at : at + TURNS_READ]
        by_id = documents(tx, ids_of([turn.turn_id for turn in batch]))
        for turn in batch:
            document = by_id[turn.turn_id]
            chars += document.letters
            matches += _matches(turn, document, finder)
    return ThreadMatches(tuple(matches[:limit]), finder.words, capped or len(matches) > limit)


def _period(tx: Transaction, head: str) -> tuple[int, int]:
    """When a thread was written, with a day to spare: clocks differ. It keeps a search for common
    words from reading the newest turns of the whole ledger."""
    root = threads.ancestor_at(tx, head, 1)
    rows = tx.run("document_turns", ids=ids_of([head, root or head]))
    times = [row[1] for row in rows]
    return max(0, min(times) - DAY_MS), max(times) + DAY_MS


def _on_thread(tx: Transaction, head: str, run: SearchRun) -> Iterator[Candidate]:
    place = threads.place_of(tx, head)
    above = tx.run("segments_above", segment_id=place.segment_id)
    depths = {segment_id: min(upto, place.depth) for segment_id, upto in above}
    for turn in run.newest(PageStart("all"), FIRST_LOOK):
        if turn.depth <= depths.get(turn.segment_id, 0):
            yield turn


def _matches(
    turn: Candidate, document: SearchDocument, finder: PhraseFinder
) -> Sequence[ThreadMatch]:
    """One for each message or call, in their order."""
    by_step: dict[int, ThreadMatch] = {}
    for piece in document.pieces:
        step = -1 if piece.sequence is None else piece.sequence
        marks = {} if step in by_step else finder.marks(piece)
        if marks:
            snippet = cut_snippet(piece, marks, next(iter(marks)))
            by_step[step] = ThreadMatch(turn.turn_id, turn.depth, snippet)
    return [by_step[step] for step in sorted(by_step)]
