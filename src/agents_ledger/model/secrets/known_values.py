"""Values that are known, found again in other texts; by their digests, if nobody may read them.

A value is looked for where its longest word is: a text is read word by word, whatever the number of
values.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec import Struct

from agents_ledger.model.secrets.nested_json import ValueSpan

WORD_MIN = 4  # characters of a word by which a value is found within a text
_WORD = re.compile(r"[A-Za-z0-9\x80-\U0010ffff]+")
Digest = Callable[[str], bytes]


class KnownValue(Struct, frozen=True):
    """A value by its digest. Without a word that is long enough only a whole text is recognised."""

    digest: bytes
    length: int  # in characters
    word: bytes  # the digest of its longest word; empty: it has none
    word_start: int
    word_length: int
    kind: str = "known value"


def plainly(text: str) -> bytes:
    """For values that are held in memory only."""
    return text.encode("utf-8", "surrogatepass")


def keyed(key: bytes) -> Digest:
    """Digests that nobody can compute without the key."""
    return partial(_keyed, key=key)


def _keyed(text: str, key: bytes) -> bytes:
    return hashlib.blake2b(plainly(text), digest_size=16, key=key).digest()


def known_value(value: str, digest: Digest, kind: str = "known value") -> KnownValue:
    """What is kept of a value to recognise it."""
    words = list(_WORD.finditer(value))
    # A word at an end may go on in another text; one in the middle is delimited by the value.
    inner = [word for word in words if word.start() > 0 and word.end() < len(value)]
    longest = max(inner, key=_length, default=None)
    if longest is None or _length(longest) < WORD_MIN:
        longest = max(words, key=_length, default=None)
    if longest is None or _length(longest) < WORD_MIN:
        return KnownValue(digest(value), len(value), b"", 0, 0, kind)
    return KnownValue(
        digest(value), len(value), digest(longest[0]), longest.start(), _length(longest), kind
    )


def _length(word: re.Match[str]) -> int:
    return word.end() - word.start()


class KnownValues:
    """Finds values in a text: within it, if they have a word, and as the whole of it."""

    def __init__(self, values: Iterable[KnownValue], digest: Digest) -> None:
        self._digest = digest
        self._by_word: dict[bytes, list[KnownValue]] = {}
        self._whole: dict[bytes, KnownValue] = {}
        self._word_lengths: set[int] = set()
        self._lengths: set[int] = set()
        for value in values:
            if value.word:
                self._by_word.setdefault(value.word, []).append(value)
                self._word_lengths.add(value.word_length)
            else:
                self._whole[value.digest] = value
                self._lengths.add(value.length)

    def __bool__(self) -> bool:
        return bool(self._by_word or self._whole)

    def __call__(self, text: str) -> Iterator[ValueSpan]:
        """The places in a text where one of the values stands."""
        if len(text) in self._lengths and (known := self._whole.get(self._digest(text))):
            yield ValueSpan(0, len(text), known.kind, text)
        if not self._by_word:
            return
        for word in _WORD.finditer(text):
            if _length(word) in self._word_lengths:
                for value in self._by_word.get(self._digest(word[0]), ()):
                    start = word.start() - value.word_start
                    candidate = text[max(start, 0) : start + value.length]
                    if start >= 0 and self._digest(candidate) == value.digest:
                        yield ValueSpan(start, start + value.length, value.kind, candidate)


def of_values(values: Iterable[str], kind: str = "known value") -> KnownValues:
    """A search for values that are at hand."""
    return KnownValues((known_value(value, plainly, kind) for value in values), plainly)
