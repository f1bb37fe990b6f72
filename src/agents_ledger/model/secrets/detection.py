"""Secrets in texts, recognised by their format or by the name beside them.

Recognition is a heuristic: `make bench ONLY=secrets` measures how many secrets it finds and how
often it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agents_ledger.model.secrets.named import named_secrets
from agents_ledger.model.secrets.rules import RULES

# Leading characters of a secret that stay, so that its owner recognises it.
VISIBLE_MAX = 4
MARK = "…[masked]"


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


def masked_text(text: str) -> str:
    """A text with its secrets masked."""
    pieces, at = [], 0
    for span in find_secrets(text):
        pieces += [text[at : span.start], masked_secret(text[span.start : span.end], span.kind)]
        at = span.end
    return "".join([*pieces, text[at:]]) if pieces else text


def masked_secret(secret: str, kind: str) -> str:
    """What is shown instead of a secret."""
    # The first characters of a private key are its header.
    visible = 0 if kind == "private key" else min(VISIBLE_MAX, len(secret) // 4)
    return secret[:visible] + MARK


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
