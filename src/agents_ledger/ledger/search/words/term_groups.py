"""A search as groups of terms, in the words and columns of the index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from agents_ledger.ledger.search.documents import SearchDocument, project_of
from agents_ledger.ledger.search.query import Narrowed, SearchQuery, Term
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.model.errors import Refused
from agents_ledger.store.matching import QueryTerm, TermGroup

Mode = Literal["all", "any"]


def _wanted(term: Term, query: SearchQuery) -> list[QueryTerm]:
    words = tuple(tokenizer.asked(term.text))
    if not words:
        return []
    prefix = term.prefix or tokenizer.is_letter(words[-1])
    return [QueryTerm(words, query.parts, prefix)]


def plain_terms(query: SearchQuery) -> list[QueryTerm]:
    terms = (term for term in query.terms if not term.negated)
    return [wanted for term in terms for wanted in _wanted(term, query)]


def term_groups(query: SearchQuery, mode: Mode) -> list[TermGroup]:
    """A turn must match each group. If any word suffices, all words are one group."""
    groups: list[TermGroup] = []
    plain = plain_terms(query)
    if mode == "any" and plain:
        groups.append(TermGroup(tuple(plain)))
    else:
        groups += [TermGroup((wanted,)) for wanted in plain]
    for negated in (False, True):
        groups += _facet_groups([f for f in query.facets if f.negated is negated], negated)
    groups += [
        TermGroup((wanted,), negated=True)
        for term in query.terms
        if term.negated
        for wanted in _wanted(term, query)
    ]
    if all(group.negated for group in groups):
        groups.insert(0, TermGroup((QueryTerm(("turn",), ("state",)),)))
    return groups


def _facet_groups(facets: Iterable[Narrowed], negated: bool) -> list[TermGroup]:
    by_kind: dict[str, list[QueryTerm]] = {}
    for facet in facets:
        words = tuple(tokenizer.asked(_facet_text(facet)))
        if not words:
            raise Refused(
                f"{facet.of}:{facet.value} has no word to search for",
                f"Use a value with letters or digits for {facet.of}:.",
            )
        prefix = facet.value.endswith("*") or tokenizer.is_letter(words[-1])
        by_kind.setdefault(facet.of, []).append(QueryTerm(words, (facet.of,), prefix))
    return [TermGroup(tuple(wanted), negated) for wanted in by_kind.values()]


def _facet_text(facet: Narrowed) -> str:
    return project_of(facet.value) if facet.of == "project" else facet.value


def has_facets(document: SearchDocument, facets: Sequence[Narrowed]) -> bool:
    """_facet_groups() for a turn that is not indexed yet."""
    if not facets:
        return True
    columns = document.texts()
    fits: dict[str, bool] = {}
    for facet in facets:
        phrase = tokenizer.phrase(_facet_text(facet).rstrip("*"), prefix=facet.value.endswith("*"))
        has = phrase is not None and phrase.is_in(tokenizer.fold(columns[facet.of]))
        if facet.negated:
            if has:
                return False
        else:
            fits[facet.of] = fits.get(facet.of, False) or has
    return all(fits.values())
