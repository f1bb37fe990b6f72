"""What a selection finds in a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.redaction import Selection
from agents_ledger.model.secrets.detection import find_secrets
from agents_ledger.model.secrets.named import KEY, PASSWORD
from agents_ledger.model.secrets.nested_json import Find, ValueSpan
from agents_ledger.model.secrets.rules import RULES

ANY_KIND = "all"
MATCH = "match"


def finder_of(selection: Selection) -> Find:
    """The search that a selection with a pattern, text or kind means."""
    if selection.kind is not None:
        return secrets_of_kind(selection.kind)
    if selection.text is not None:
        return _matches(re.compile(re.escape(selection.text)))
    try:
        return _matches(re.compile(str(selection.pattern)))
    except re.error as error:
        raise Refused(f"{selection.pattern!r} is no regular expression: {error}") from error


def secrets_of_kind(kind: str) -> Callable[[str], Iterator[ValueSpan]]:
    """A search for the secrets of one kind, or of all."""
    if kind != ANY_KIND and kind not in KINDS:
        raise Refused(
            f"there is no kind of secrets {kind!r}",
            "`agents-ledger secrets` names the kinds in this ledger; `all` means every kind.",
        )

    def find(text: str) -> Iterator[ValueSpan]:
        for start, end, found in find_secrets(text):
            if kind in (ANY_KIND, found):
                yield ValueSpan(start, end, found, text[start:end])

    return find


def _matches(pattern: re.Pattern[str]) -> Find:
    def find(text: str) -> Iterator[ValueSpan]:
        for match in pattern.finditer(text):
            if match.end() > match.start():
                yield ValueSpan(match.start(), match.end(), MATCH, match[0])

    return find


def any_of(*finders: Find) -> Find:
    """A search for what any of these finds."""
    return lambda text: chain.from_iterable(find(text) for find in finders)


KINDS = frozenset({PASSWORD, KEY, *(rule.kind for rule in RULES)})
