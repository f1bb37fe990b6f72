"""Secrets in texts, recognised by their format or by the name beside them.

Recognition is a heuristic: `make bench ONLY=secrets` measures how many secrets it finds and how
often it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agents_ledger.model.secrets.named import named_secrets
from agents_ledger.model.secrets.rules import RULES


class SecretSpan(NamedTuple):
    """Where in a text a secret stands."""

    start: int
    end: int
    kind: str


def find_secrets(text: str) -> list[SecretSpan]:
    """The secrets of a text in their order; none overlap."""
    spans: list[SecretSpan] = []
    for span in _candidates(text):
        clear = _outside(span, spans)
        spans += [clear] if clear else []
    return sorted(spans)


def _candidates(text: str) -> Iterator[SecretSpan]:
    """Specific rules first: what one has found is not reported by a later one."""
    for rule in RULES:
        for start, end in rule.spans(text):
            yield SecretSpan(start, end, rule.kind)
    for start, end, kind in named_secrets(text):
        yield SecretSpan(start, end, kind)


def _outside(span: SecretSpan, others: list[SecretSpan]) -> SecretSpan | None:
    """The span without what others cover already; a part that is left keeps its kind."""
    start, end = span.start, span.end
    for other in others:
        if other.start <= start < other.end:
            start = other.end
        if other.start < end <= other.end:
            end = other.start
        if start < other.start and other.end < end:
            # It encloses the other one, which is replaced.
            others.remove(other)
            return _outside(SecretSpan(start, end, other.kind), others)
    return SecretSpan(start, end, span.kind) if start < end else None
