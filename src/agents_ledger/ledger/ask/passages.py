"""The passages that answer a question, with their context, within a token budget."""

from __future__ import annotations

from agents_ledger.ledger.ask.fixes import offset_of
from agents_ledger.ledger.reports.events import readable
from agents_ledger.ledger.search import query as search_query
from agents_ledger.ledger.search import turn_search
from agents_ledger.ledger.search.documents import IndexedPiece, SearchDocument, documents
from agents_ledger.ledger.search.words.snippets import PhraseFinder
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.ask import Passage, Recalled
from agents_ledger.model.reports.search import Hit
from agents_ledger.model.text.tokens import estimate_tokens
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import ids_of

BUDGET_MIN = 100
BUDGET_MAX = 100_000
HITS = 30  # that are considered
PASSAGE_CHARS = 1200
BEFORE = 300  # characters before the first mark
CONTEXT_CHARS = 300  # of the prompt, and of the answer
FACTS_TOKENS = 40  # id, session, title and time of a passage


def recall(
    tx: Transaction, question: str, *, budget: int, after: str | None, now_ms: int
) -> Recalled:
    """The most relevant passages, as many as fit the budget. At least one, shortened if need be."""
    if not BUDGET_MIN <= budget <= BUDGET_MAX:
        raise Refused(f"budget is {budget}; it must be between {BUDGET_MIN} and {BUDGET_MAX:,}")
    first = offset_of(after)
    found = turn_search.search(
        tx, question, limit=first + HITS, order="relevance", after=None, now_ms=now_ms
    )
    hits = found.hits[first:]
    by_id = documents(tx, ids_of([hit.turn_id for hit in hits])) if hits else {}
    finder = PhraseFinder(search_query.parse(question, now_ms))
    passages: list[Passage] = []
    left = budget
    for hit in hits:
        passage = _passage(hit, by_id[hit.turn_id], finder, PASSAGE_CHARS)
        if passage.tokens > left and not passages:
            chars = max(60, PASSAGE_CHARS * left // passage.tokens // 2)
            passage = _passage(hit, by_id[hit.turn_id], finder, chars)
        if passage.tokens > left and passages:
            break
        passages.append(passage)
        left -= passage.tokens
    shown = first + len(passages)
    more = len(passages) < len(hits) or found.next is not None
    tokens = sum(passage.tokens for passage in passages)
    return Recalled(tuple(passages), tokens, str(shown) if more else None)


def _passage(hit: Hit, document: SearchDocument, finder: PhraseFinder, chars: int) -> Passage:
    piece = _best_piece(document, finder)
    text = _around(piece, finder, chars) if piece else ""
    context = min(CONTEXT_CHARS, chars // 2)
    prompt = _shortened(hit.query, context) if not piece or piece.part != "user" else None
    answer = _answer(document, piece, context)
    tokens = FACTS_TOKENS + sum(map(estimate_tokens, (prompt, text, answer)))
    return Passage(
        hit.turn_id,
        hit.session_label,
        hit.session_title,
        hit.started_at,
        prompt,
        text,
        answer,
        tokens,
    )


def _best_piece(document: SearchDocument, finder: PhraseFinder) -> IndexedPiece | None:
    """The message or call with most of the words; of equal ones, the first."""
    best, most = None, 0
    for piece in document.pieces:
        marks = finder.marks(piece)
        words = len(set(marks) - finder.common) or bool(marks)
        if words > most:
            best, most = piece, words
    return best or next(iter(document.pieces), None)


def _around(piece: IndexedPiece, finder: PhraseFinder, chars: int) -> str:
    """The text from a little before its first rare word on, whole where it is short."""
    text = readable(piece.text)
    if len(text) <= chars:
        return text
    marks = finder.marks(piece._replace(text=text))
    rare = {number: spans for number, spans in marks.items() if number not in finder.common}
    spans = sorted(span for spans in (rare or marks).values() for span in spans)
    start = max(0, spans[0][0] - min(BEFORE, chars // 3)) if spans else 0
    cut = text[start : start + chars]
    return ("…" if start else "") + cut + ("…" if start + chars < len(text) else "")


def _answer(document: SearchDocument, piece: IndexedPiece | None, chars: int) -> str | None:
    answers = [one for one in document.pieces if one.part == "assistant"]
    if not answers or answers[-1] is piece:
        return None
    return _shortened(answers[-1].text, chars)


def _shortened(text: str | None, chars: int) -> str | None:
    return text if text is None or len(text) <= chars else f"{text[:chars]}…"
