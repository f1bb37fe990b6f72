"""The words of a question in all their spellings, and the turns and titles that have them.

A word is found in every inflection, and an identifier however it is written: `parseConfig`,
`parse_config` and `parse config` are one. A word that nobody wrote is found in its parts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from agents_ledger.ledger.search.index import first_number
from agents_ledger.ledger.search.query import SearchQuery, Term
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.ledger.search.words.term_groups import term_groups
from agents_ledger.ledger.search.words.tokenizer import Phrase
from agents_ledger.ledger.search.words.word_forms import word_forms
from agents_ledger.model.reports.search import PARTS
from agents_ledger.store.database import Transaction
from agents_ledger.store.matching import match

# Ranking has to read every match, so of a word only the newest turns are ranked.
RANK_MAX = 5_000
TITLES_MAX = 5_000  # of the sessions that changed last
PART_MIN = 3  # letters of a part of a word
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class AskedWord(NamedTuple):
    """A word of a question, its spellings, and the newest turns of the index that have one."""

    spellings: tuple[str, ...]
    turns: list[Candidate]
    capped: bool = False
    prefix: bool = False

    @property
    def phrase(self) -> Phrase | None:
        phrases = (tokenizer.phrase(text, prefix=self.prefix) for text in self.spellings)
        return tokenizer.any_of([phrase for phrase in phrases if phrase is not None])


def is_question(query: SearchQuery) -> bool:
    """Whether a search is a sentence: it has words that say nothing, beside others."""
    common = [is_common(term.text) for term in query.terms if not term.negated]
    return any(common) and not all(common)


def is_common(text: str) -> bool:
    return tokenizer.COMMON.issuperset(tokenizer.words(text))


def spellings(text: str) -> tuple[str, ...]:
    """A word in all its forms; of an identifier, the ways to write it."""
    words = tokenizer.words(text)
    if words[1:] == ["s"]:  # Caroline's
        words = words[:1]
    if len(words) == 1:
        parts = _CAMEL.findall(text)
        apart = (" ".join(parts),) if len(parts) > 1 and "".join(parts).lower() == words[0] else ()
        return (*word_forms(words[0]), *apart)
    return (text, "".join(words)) if text.isascii() and len(words) == 2 else (text,)  # noqa: PLR2004


def asked_words(tx: Transaction, query: SearchQuery, low: int, high: int) -> Iterator[AskedWord]:
    """The words of a question that say something, with the turns that have them."""
    for term in query.terms:
        if term.negated or is_common(term.text):
            continue
        texts = (term.text,) if term.prefix else spellings(term.text)
        asked = _looked_up(tx, query, texts, low, high, prefix=term.prefix)
        yield asked
        if asked.turns or term.prefix:
            continue
        words = [word for word in tokenizer.words(term.text) if len(word) >= PART_MIN]
        parts = [word_forms(word) for word in words] if len(words) > 1 else [_halves(*words)]
        for forms in parts:
            yield _looked_up(tx, query, tuple(forms), low, high)
    joined = tuple(_joined(query.terms))
    yield _looked_up(tx, query, joined, low, high)


def _halves(word: str = "") -> list[str]:
    """`smartwatch` as two words, in every way."""
    if not (word.isascii() and word.isalpha()):
        return []
    return [f"{word[:at]} {word[at:]}" for at in range(PART_MIN, len(word) - PART_MIN + 1)]


def _joined(terms: Sequence[Term]) -> Iterator[str]:
    """Neighbours as one word: `smart watch` and `parse config` are also found as one."""
    for one, other in itertools.pairwise(terms):
        text = one.text + other.text.rstrip(".,;:!?")
        if text.isascii() and text.isalpha() and _can_be_part(one) and _can_be_part(other):
            yield text


def _can_be_part(term: Term) -> bool:
    plain = not (term.negated or term.prefix or is_common(term.text))
    return plain and len(term.text) >= PART_MIN


def _looked_up(
    tx: Transaction,
    query: SearchQuery,
    texts: tuple[str, ...],
    low: int,
    high: int,
    *,
    prefix: bool = False,
) -> AskedWord:
    """The newest indexed turns that have a word in any spelling, ranked by the index."""
    if not texts:
        return AskedWord((), [])
    terms = [Term(text, prefix) for text in texts]
    terms += [other for other in query.terms if other.negated]
    groups = term_groups(replace(query, terms=terms), "any")
    values = {"match": match(tx.engine, groups, tokenizer.fold), "high": high}
    cut = tx.run("search_cutoff", **values, low=low, count=RANK_MAX)
    if cut:
        low = cut[0][0] + 1
    turns = tx.read_as("search_ranked", Candidate, **values, low=low, limit=RANK_MAX)
    return AskedWord(texts, turns, bool(cut), prefix)


class TitledSession(NamedTuple):
    title: str
    head: Candidate


def recent_titles(tx: Transaction, query: SearchQuery, low: int, high: int) -> list[TitledSession]:
    """The titles of the sessions that changed last, in lower case. Nothing is known of a session's
    files or models here, so a search for these has no titles."""
    if query.facets or query.parts is not PARTS or any(term.negated for term in query.terms):
        return []
    titles = []
    for row in tx.run("recent_titles", limit=TITLES_MAX):
        title, turn_id, started_at, segment_id, depth, number = row
        number = first_number(started_at) if number is None else number
        if low <= number < high:
            head = Candidate(number, turn_id, segment_id, depth)
            titles.append(TitledSession(tokenizer.fold(title), head))
    return titles
