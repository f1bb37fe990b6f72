"""What somebody typed into a search box, understood."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Literal, get_args

from msgspec import Struct

from agents_ledger.ledger.search import tokenizer
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import PARTS, Part
from agents_ledger.model.text.dates import moment
from agents_ledger.model.turns import MessageRole

Facet = Literal["project", "model", "tool", "file", "state"]
Scope = Literal["session", "origin", "persona"]

_TOKEN = re.compile(
    r'(?P<not>-)?(?:(?P<operator>[A-Za-z]+):)?(?:"(?P<phrase>[^"]*)(?:"|$)(?P<star>\*?)|(?P<word>\S+))'
)
_PARTS_OF_ROLE: dict[str, tuple[Part, ...]] = {
    "user": ("user",),
    "assistant": ("assistant", "thinking"),
    "system": ("system",),
    "tool": ("tool_result",),
}
LETTERS_MAX = 10_000
TERMS_MAX = 100
WORDS_MAX = 500  # where a phrase counts each of its words
DATE_WORDS = 4  # of a date without quotes
_SHORTER = "Search for fewer words: those that few other turns have."
_DATES = ("before", "after")
_STATES = ("compaction", "failed", "completed", "pending", "streaming")


class Term(Struct, frozen=True):
    """Words that stand one after the other."""

    text: str
    prefix: bool = False  # the last may go on
    negated: bool = False


class Narrowed(Struct, frozen=True):
    """A value that must be among those of a turn or of a session that holds it."""

    of: Facet | Scope
    value: str
    negated: bool = False


class Asked(Struct):
    """A search, understood. The same operator twice means either."""

    terms: list[Term]
    facets: list[Narrowed]
    scopes: list[Narrowed]
    parts: tuple[Part, ...] = PARTS
    fork: bool | None = None
    from_ms: int | None = None
    until_ms: int | None = None


def parse(text: str, now_ms: int) -> Asked:
    """Understand a search; an operator that does not exist is plain text."""
    if len(text) > LETTERS_MAX:
        raise Refused(
            f"a search has at most {LETTERS_MAX:,} characters, not {len(text):,}", _SHORTER
        )
    asked = Asked([], [], [])
    at = 0
    while token := _TOKEN.search(text, at):
        at = token.end()
        operator = (token["operator"] or "").lower()
        value = token["phrase"] if token["phrase"] is not None else token["word"]
        if operator in _DATES and token["word"]:
            value = _date(text[token.start("word") :], now_ms)
            at = token.start("word") + len(value)
        if operator in OPERATORS and value:
            OPERATORS[operator](asked, value, bool(token["not"]), now_ms)
        else:
            _plain(asked, token)
    _refuse_long(asked)
    if not any((asked.terms, asked.facets, asked.scopes)) and (
        asked.fork is asked.from_ms is asked.until_ms is None
    ):
        raise Refused("there is nothing to search for", "Give words, or an operator with a value.")
    return asked


def _refuse_long(asked: Asked) -> None:
    """The index takes the square of a phrase's length to look for it."""
    if len(asked.terms) > TERMS_MAX:
        raise Refused(f"a search has at most {TERMS_MAX} words, not {len(asked.terms)}", _SHORTER)
    said = [*(term.text for term in asked.terms), *(facet.value for facet in asked.facets)]
    count = sum(len(tokenizer.asked(text)) for text in said)
    if count > WORDS_MAX:
        raise Refused(
            f"a search has at most {WORDS_MAX} words with those of phrases, not {count}", _SHORTER
        )


def _date(text: str, now_ms: int) -> str:
    """The words at the beginning of a text that are a date: `last week` of `last week parser`; if
    none are, the first."""
    first = list(islice(re.finditer(r"\S+", text), DATE_WORDS))
    for word in reversed(first):
        with suppress(Refused):
            moment(text[: word.end()], now_ms)
            return text[: word.end()]
    return first[0][0]


def _plain(asked: Asked, token: re.Match[str]) -> None:
    word = token["word"]
    if word is not None:
        prefix = len(word) > 1 and word.endswith("*")
    else:
        word, prefix = token["phrase"], bool(token["star"])
    said = f"{token['operator']}:{word}" if token["operator"] else word
    if any(letter.isalnum() for letter in said):
        asked.terms.append(Term(said, prefix, bool(token["not"])))


# -- operators --------------------------------------------------------------------------------

Operator = Callable[[Asked, str, bool, int], None]


def _facet(of: Facet) -> Operator:
    def narrow(asked: Asked, value: str, negated: bool, _: int) -> None:
        asked.facets.append(Narrowed(of, value, negated))

    return narrow


def _scope(of: Scope) -> Operator:
    def narrow(asked: Asked, value: str, negated: bool, _: int) -> None:
        asked.scopes.append(Narrowed(of, value, negated))

    return narrow


def _one_of(operator: str, value: str, known: tuple[str, ...], negated: bool = False) -> str:
    if negated:
        raise Refused(f"{operator}: cannot be excluded", f"Take -{operator}:{value} out.")
    if value.lower() not in known:
        raise Refused(f"{operator}:{value} is not known", f"It is one of {', '.join(known)}.")
    return value.lower()


def _role(asked: Asked, value: str, negated: bool, _: int) -> None:
    role = _one_of("role", value, get_args(MessageRole), negated)
    _restrict(asked, _PARTS_OF_ROLE[role])


def _in(asked: Asked, value: str, negated: bool, _: int) -> None:
    part = _one_of("in", value, PARTS, negated)
    _restrict(asked, tuple(each for each in PARTS if each == part))


def _restrict(asked: Asked, parts: tuple[Part, ...]) -> None:
    asked.parts = parts if asked.parts is PARTS else (*asked.parts, *parts)


def _is(asked: Asked, value: str, negated: bool, _: int) -> None:
    state = _one_of("is", value, ("fork", *_STATES))
    if state == "fork":
        asked.fork = not negated
    else:
        asked.facets.append(Narrowed("state", state, negated))


def _before(asked: Asked, value: str, negated: bool, now_ms: int) -> None:
    _refuse_not("before", value, negated)
    at = moment(value, now_ms)
    asked.until_ms = at if asked.until_ms is None else min(at, asked.until_ms)


def _after(asked: Asked, value: str, negated: bool, now_ms: int) -> None:
    _refuse_not("after", value, negated)
    at = moment(value, now_ms)
    asked.from_ms = at if asked.from_ms is None else max(at, asked.from_ms)


def _refuse_not(operator: str, value: str, negated: bool) -> None:
    if negated:
        raise Refused(f"{operator}: cannot be excluded", f"Take -{operator}:{value} out.")


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
