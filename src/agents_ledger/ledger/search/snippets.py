"""Finds the words of a search in the text of a turn, and cuts snippets around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agents_ledger.ledger.search import tokenizer
from agents_ledger.ledger.search.documents import IndexedPiece, SearchDocument
from agents_ledger.ledger.search.query import SearchQuery, Term
from agents_ledger.model.reports.search import PARTS, Snippet

WIDTH = 160
BEFORE = 40  # characters before the first mark
ENOUGH = 2  # snippets, unless a third shows another word
SNIPPETS = 3


_SPACE = re.compile(r"\s")


class PhraseFinder:
    """Finds the terms of a search without the index."""

    def __init__(self, query: SearchQuery) -> None:
        self._parts = frozenset(query.parts)
        self._phrases = _phrases(query.terms, negated=False)
        self._unwanted = _phrases(query.terms, negated=True)

    def share(self, document: SearchDocument) -> float:
        """The fraction of the terms that a turn has; 1.0 if there are no terms."""
        if not self._phrases:
            return 1.0
        texts = [tokenizer.fold(piece.text) for piece in self._readable(document)]
        hits = sum(any(map(phrase.is_in, texts)) for phrase in self._phrases)
        return hits / len(self._phrases)

    def has_unwanted(self, document: SearchDocument) -> bool:
        return any(
            unwanted.is_in(tokenizer.fold(piece.text))
            for piece in self._readable(document)
            for unwanted in self._unwanted
        )

    def _readable(self, document: SearchDocument) -> Iterator[IndexedPiece]:
        return (piece for piece in document.pieces if piece.part in self._parts)

    def marks(self, piece: IndexedPiece) -> dict[int, list[tuple[int, int]]]:
        """The spans of each term in a piece of text, by the term's number in the search."""
        if piece.part not in self._parts:
            return {}
        folded = tokenizer.fold(piece.text)
        marks = {}
        for number, phrase in enumerate(self._phrases):
            if phrase.quick in folded:
                spans = list(phrase.spans(folded))
                if spans:
                    marks[number] = spans
        return marks


def _phrases(terms: Sequence[Term], *, negated: bool) -> list[tokenizer.Phrase]:
    phrases = (
        tokenizer.phrase(term.text.rstrip("*") if term.prefix else term.text, prefix=term.prefix)
        for term in terms
        if term.negated is negated
    )
    return [phrase for phrase in phrases if phrase is not None]


def snippets(document: SearchDocument, finder: PhraseFinder) -> tuple[Snippet, ...]:
    """The pieces of a turn that show most terms; of equal ones, messages before tool output."""
    candidates: list[tuple[int, int, IndexedPiece, dict[int, list[tuple[int, int]]]]] = []
    for at, piece in enumerate(document.pieces):
        marks = finder.marks(piece)
        if marks:
            candidates.append((PARTS.index(piece.part), at, piece, marks))
    candidates.sort(key=lambda candidate: (-len(candidate[3]), candidate[0], candidate[1]))
    chosen: list[Snippet] = []
    seen: set[int] = set()
    for _, _, piece, marks in candidates:
        if len(chosen) == SNIPPETS or (len(chosen) == ENOUGH and set(marks) <= seen):
            break
        seen |= set(marks)
        chosen.append(_snippet(piece, sorted(span for spans in marks.values() for span in spans)))
    return tuple(chosen)


def _snippet(piece: IndexedPiece, spans: list[tuple[int, int]]) -> Snippet:
    """The part of a text with most marks, as one line."""
    first, last = spans[0] if len(spans) == 1 else _densest(spans)
    start = max(0, first - BEFORE)
    if start:
        space = piece.text.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    end = min(len(piece.text), max(start + WIDTH, min(last, start + 2 * WIDTH)))
    text = _SPACE.sub(" ", piece.text[start:end])
    marks: list[tuple[int, int]] = []
    for span in spans:
        low, high = max(span[0], start) - start, min(span[1], end) - start
        if low < high and (not marks or low >= marks[-1][1]):
            marks.append((low, high))
    before, after = "…" if start else "", "…" if end < len(piece.text) else ""
    shifted = tuple((low + len(before), high + len(before)) for low, high in marks)
    return Snippet(piece.part, f"{before}{text}{after}", shifted, piece.tool_name)


def _densest(spans: list[tuple[int, int]]) -> tuple[int, int]:
    best = max(
        # Only the next 20: a text may have thousands of marks, and a snippet shows few.
        range(len(spans)),
        key=lambda at: sum(_within(spans[at][0], s) for s in spans[at : at + 20]),
    )
    return spans[best]


def _within(start: int, span: tuple[int, int]) -> bool:
    return span[1] <= start + WIDTH - BEFORE
