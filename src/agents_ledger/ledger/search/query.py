"""The grammar of searches: words, phrases and operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Literal, get_args

from msgspec import Struct

from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import PARTS, TextPart
from agents_ledger.model.text.dates import moment
from agents_ledger.model.turns import MessageRole, check_text

Facet = Literal["project", "model", "tool", "file", "state"]
Scope = Literal["session", "origin", "persona"]

_TOKEN = re.compile(
    r'(?P<not>-)?(?:(?P<operator>[A-Za-z]+):)?(?:"(?P<phrase>[^"]*)(?:"|$)(?P<star>\*?)|(?P<word>\S+))'
)
_PARTS_OF_ROLE: dict[str, tuple[TextPart, ...]] = {
    "user": ("user",),
    "assistant": ("assistant", "thinking"),
    "system": ("system",),
    "tool": ("tool_result",),
}
CHARS_MAX = 10_000
TERMS_MAX = 100
# Including every word of each phrase, whose cost grows with the square of its length.
WORDS_MAX = 500
DATE_WORDS = 4  # in a date without quotes
_SHORTER = "Search for fewer, rarer words."
_DATES = ("before", "after")
_STATES = ("compaction", "failed", "completed", "pending", "streaming")


class Term(Struct, frozen=True):
    """A word, or consecutive words."""

    text: str
    prefix: bool = False  # the last word may be the start of a longer one
    negated: bool = False


class Narrowed(Struct, frozen=True):
    """A value that a turn, or a session with it, must have."""

    of: Facet | Scope
    value: str
    negated: bool = False


class SearchQuery(Struct):
    """A parsed search. Of a repeated operator, either value suffices."""

    terms: list[Term]
    facets: list[Narrowed]
    scopes: list[Narrowed]
    parts: tuple[TextPart, ...] = PARTS
    fork: bool | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    named_time: tuple[int, int] | None = None  # that a question names: from, until


def parse(text: str, now_ms: int) -> SearchQuery:
    """Parse a search; an unknown operator is plain text."""
    check_text(text, "a search")
    if len(text) > CHARS_MAX:
        raise Refused(f"a search has at most {CHARS_MAX:,} characters, not {len(text):,}", _SHORTER)
    query = SearchQuery([], [], [])
    at = 0
    while token := _TOKEN.search(text, at):
        at = token.end()
        operator = (token["operator"] or "").lower()
        value = token["phrase"] if token["phrase"] is not None else token["word"]
        if operator in _DATES and token["word"]:
            value = _date(text[token.start("word") :], now_ms)
            at = token.start("word") + len(value)
        if operator in OPERATORS and value:
            OPERATORS[operator](query, value, bool(token["not"]), now_ms)
        else:
            _plain(query, token)
    _refuse_long(query)
    if not any((query.terms, query.facets, query.scopes)) and (
        query.fork is query.from_ms is query.until_ms is None
    ):
        raise Refused("the search is empty", "Enter words, or an operator with a value.")
    return query


def _refuse_long(query: SearchQuery) -> None:
    """The cost of a phrase grows with the square of its length."""
    if len(query.terms) > TERMS_MAX:
        raise Refused(f"a search has at most {TERMS_MAX} words, not {len(query.terms)}", _SHORTER)
    texts = [*(term.text for term in query.terms), *(facet.value for facet in query.facets)]
    count = sum(len(tokenizer.asked(text)) for text in texts)
    if count > WORDS_MAX:
        raise Refused(
            f"a search has at most {WORDS_MAX} words with those of phrases, not {count}", _SHORTER
        )


def _date(text: str, now_ms: int) -> str:
    """The longest date at the start of a text (`last week` of `last week parser`), or its first
    word."""
    first = list(islice(re.finditer(r"\S+", text), DATE_WORDS))
    for word in reversed(first):
        with suppress(Refused):
            moment(text[: word.end()], now_ms)
            return text[: word.end()]
    return first[0][0]


def _plain(query: SearchQuery, token: re.Match[str]) -> None:
    word = token["word"]
    if word is not None:
        prefix = len(word) > 1 and word.endswith("*")
    else:
        word, prefix = token["phrase"], bool(token["star"])
    text = f"{token['operator']}:{word}" if token["operator"] else word
    if any(char.isalnum() for char in text):
        query.terms.append(Term(text, prefix, bool(token["not"])))


# -- operators --------------------------------------------------------------------------------

Operator = Callable[[SearchQuery, str, bool, int], None]


def _facet(of: Facet) -> Operator:
    def narrow(query: SearchQuery, value: str, negated: bool, _: int) -> None:
        query.facets.append(Narrowed(of, value, negated))

    return narrow


def _scope(of: Scope) -> Operator:
    def narrow(query: SearchQuery, value: str, negated: bool, _: int) -> None:
        query.scopes.append(Narrowed(of, value, negated))

    return narrow


def _one_of(operator: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise Refused(f"unknown value {operator}:{value}", f"Choose from {', '.join(choices)}.")
    return value.lower()


def _role(query: SearchQuery, value: str, negated: bool, _: int) -> None:
    _refuse_not("role", value, negated)
    role = _one_of("role", value, get_args(MessageRole))
    _restrict(query, _PARTS_OF_ROLE[role])


def _in(query: SearchQuery, value: str, negated: bool, _: int) -> None:
    _refuse_not("in", value, negated)
    wanted = _one_of("in", value, PARTS)
    _restrict(query, tuple(part for part in PARTS if part == wanted))


def _restrict(query: SearchQuery, parts: tuple[TextPart, ...]) -> None:
    query.parts = parts if query.parts is PARTS else (*query.parts, *parts)


def _is(query: SearchQuery, value: str, negated: bool, _: int) -> None:
    state = _one_of("is", value, ("fork", *_STATES))
    if state == "fork":
        query.fork = not negated
    else:
        query.facets.append(Narrowed("state", state, negated))


def _before(query: SearchQuery, value: str, negated: bool, now_ms: int) -> None:
    _refuse_not("before", value, negated)
    at = moment(value, now_ms)
    query.until_ms = at if query.until_ms is None else min(at, query.until_ms)


def _after(query: SearchQuery, value: str, negated: bool, now_ms: int) -> None:
    _refuse_not("after", value, negated)
    at = moment(value, now_ms)
    query.from_ms = at if query.from_ms is None else max(at, query.from_ms)


def _refuse_not(operator: str, value: str, negated: bool) -> None:
    if negated:
        raise Refused(f"{operator}: cannot be excluded", f"Remove -{operator}:{value}.")


OPERATORS: dict[str, Operator] = {
    "project": _facet("project"),
    "model": _facet("model"),
    "tool": _facet("tool"),
    "file": _facet("file"),
    "origin": _scope("origin"),
    "persona": _scope("persona"),
    "session": _scope("session"),
    "role": _role,
    "in": _in,
    "is": _is,
    "before": _before,
    "after": _after,
}
