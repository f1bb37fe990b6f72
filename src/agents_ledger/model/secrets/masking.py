"""Secrets masked in what is shown, and listed for review.

Data that cannot be checked, such as images, is removed and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from agents_ledger.model.secrets.detection import SecretSpan, find_secrets, masked_secret
from agents_ledger.model.secrets.plausibility import DIGIT, LETTER

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


def review(masked: Iterable[Masked]) -> dict[str, int]:
    """The number of masked secrets of each kind, most frequent first."""
    counts: Counter[str] = Counter()
    for one in masked:
        counts[one.kind] += one.count
    return dict(counts.most_common())
