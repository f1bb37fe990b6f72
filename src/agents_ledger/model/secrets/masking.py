"""Secrets masked in what is shown, and listed for review.

Data that cannot be checked, such as images, is removed and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from operator import is_
from typing import Any, TypeVar, cast

from msgspec import Struct, structs

from agents_ledger.model.secrets.detection import (
    VISIBLE_MAX,
    SecretSpan,
    find_secrets,
    masked_secret,
)
from agents_ledger.model.secrets.plausibility import DIGIT, LETTER

T = TypeVar("T")

# Characters without a space: data rather than words, and no rule can tell what it holds.
OPAQUE_MIN = 1000
_OPAQUE = re.compile(rf"[A-Za-z0-9+/_-]{{{OPAQUE_MIN},}}={{0,2}}")


class Masked(Struct, frozen=True):
    """The secrets of one kind that were masked in one place."""

    kind: str
    where: str
    count: int
    shown: str


class Masker:
    """Masks texts, and counts what it masked."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self._counts: Counter[tuple[str, str, str]] = Counter()

    @property
    def masked(self) -> tuple[Masked, ...]:
        """What was masked so far, in the order it was encountered."""
        return tuple(
            Masked(kind, where, count, replacement)
            for (kind, where, replacement), count in self._counts.items()
        )

    def text(self, text: str, where: str) -> str:
        """The text with its secrets masked. The review lists them under `where`."""
        if not self.on:
            return text
        pieces, at = [], 0
        for span in find_secrets(text):
            pieces += [text[at : span.start], self._mask(text, span, where)]
            at = span.end
        text = "".join([*pieces, text[at:]]) if pieces else text
        # Last, so that a long key is masked by its own rule.
        if len(text) >= OPAQUE_MIN:
            text = _OPAQUE.sub(lambda match: self._leave_out(match[0], where), text)
        return text

    def _mask(self, text: str, span: SecretSpan, where: str) -> str:
        replacement = masked_secret(text[span.start : span.end], span.kind)
        self._counts[span.kind, where, replacement] += 1
        return replacement

    def _leave_out(self, data: str, where: str) -> str:
        # A ruler of dashes or one repeated letter is no data.
        if not (DIGIT.search(data) and LETTER.search(data)):
            return data
        replacement = f"[{len(data):,} characters of data removed]"
        self._counts["opaque data", where, replacement] += 1
        return replacement


_LENGTH_MIN = 8  # no secret is shorter
_STAR = "*"


def masked_value(value: T) -> T:
    """A value of any shape with the secrets in its texts masked. Texts keep their length, so that
    what points into them still fits."""
    return cast("T", _masked_value(value))


def _masked_value(value: Any) -> Any:
    kind = value.__class__
    if kind is str:
        return value if len(value) < _LENGTH_MIN else _starred(value)
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changes = {name: _masked_value(field) for name, field in fields.items()}
        changes = {name: field for name, field in changes.items() if field is not fields[name]}
        return structs.replace(value, **changes) if changes else value
    if isinstance(value, dict):
        return kind({key: _masked_value(item) for key, item in value.items()})
    if isinstance(value, (tuple, list)):
        items = [_masked_value(item) for item in value]
        if all(map(is_, items, value)):
            return value
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    return value


def _starred(text: str) -> str:
    pieces, at = [], 0
    for start, end, kind in find_secrets(text):
        visible = 0 if kind == "private key" else min(VISIBLE_MAX, (end - start) // 4)
        pieces += [text[at : start + visible], _STAR * (end - start - visible)]
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def review(masked: Iterable[Masked]) -> dict[str, int]:
    """The number of masked secrets of each kind, most frequent first."""
    counts: Counter[str] = Counter()
    for one in masked:
        counts[one.kind] += one.count
    return dict(counts.most_common())
