"""Splits text into words as the index does: in lower case and without accents.

Chinese and Japanese are written without spaces, and Korean joins words. There each pair of
neighbouring characters is a word, so that any part of a run can be found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from typing import NamedTuple

_GLUED = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_WORD = re.compile(r"[^\W_]+")
_OTHER_LETTER = rf"[^\W_{_GLUED}]"
# Compiled where used: it takes 5 ms.
_WORD_OR_RUN = rf"[{_GLUED}]+|{_OTHER_LETTER}+"
_FIRST_GLUED = "\u3005"
_BELOW_GLUED = bytes(range(0xE3))  # lead bytes of letters that are never glued
_SIGNS = (b"\xf0\x9f", b"\xef\xb8\x8f", b"\xef\xbf\xbd")  # pictures and signs: neither are these


@cache
def _runs() -> re.Pattern[str]:
    """Compiled where used: it takes 5 ms."""
    # Not one class with +: that takes twice as long.
    return re.compile(f"[{_GLUED}][{_GLUED}]*")


def _has_runs(text: str) -> bool:
    """Whether there may be letters of runs."""
    if text.isascii():
        return False
    # Most text has no runs, which a pass over its bytes shows without a regular expression.
    stored = text.encode("utf-8", "surrogatepass")
    if not stored.translate(None, _BELOW_GLUED):
        return False
    for sign in _SIGNS:
        stored = stored.replace(sign, b"")
    return bool(stored.translate(None, _BELOW_GLUED))


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run))]


def spaced(text: str) -> str:
    """The text with the pairs of its unspaced runs in their place, apart from each other."""
    if not _has_runs(text):
        return text
    return _runs().sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


class _Folding(dict[int, str]):
    """Each letter as one letter: positions in the folded text are those of the text."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        plain = "" if _runs().match(letter) else unicodedata.normalize("NFD", letter)[0].lower()
        self[code] = folded = plain[:1] or letter
        return folded


_FOLDING = _Folding()


def fold(text: str) -> str:
    """The text in lower case and without accents, letter for letter."""
    return text.lower() if text.isascii() else text.translate(_FOLDING)


def words(text: str) -> list[str]:
    return _WORD.findall(fold(spaced(text)))


def asked(text: str) -> list[str]:
    """The words of a search, in order. The last character of a run is a word only at the end of the
    run in a text, so it is left out."""
    words: list[str] = []
    at = 0
    for run in _runs().finditer(text):
        words += _WORD.findall(text[at : run.start()])
        words += _pairs(run[0])[:-1] if len(run[0]) > 1 else [run[0]]
        at = run.end()
    return words + _WORD.findall(text[at:])


def is_letter(text: str) -> bool:
    """Whether this is one character of an unspaced run, found as the start of a pair."""
    return len(text) == 1 and _runs().fullmatch(text) is not None


def is_glued(word: str) -> bool:
    return _runs().match(word) is not None


class Phrase(NamedTuple):
    """Consecutive words, to be found in a folded text."""

    pattern: re.Pattern[str]
    quick: str  # a text without this does not have the phrase
    begins: bool  # no letter may precede it
    ends: bool  # no letter may follow it
    text: str  # as it was typed

    def spans(self, folded: str) -> Iterator[tuple[int, int]]:
        at = 0
        while hit := self.pattern.search(folded, at):
            start, end = hit.span()
            if (self.begins and _is_letter(folded[start - 1 : start])) or (
                self.ends and _is_letter(folded[end : end + 1])
            ):
                at = start + 1
            else:
                yield start, end
                at = end

    def is_in(self, folded: str) -> bool:
        return self.quick in folded and next(self.spans(folded), None) is not None


def _is_letter(letter: str) -> bool:
    """Whether this is a letter of a word, and not of a run. No letter is none."""
    return letter.isalnum() and (letter < _FIRST_GLUED or not _runs().match(letter))


def phrase(text: str, *, prefix: bool = False) -> Phrase | None:
    """The words of `text` as a phrase, None if it has none. `prefix`: the last may be continued."""
    folded = fold(text)
    words = [word[0] for word in re.finditer(_WORD_OR_RUN, folded)]
    if not words:
        return None
    glued = [_runs().fullmatch(word) is not None for word in words]
    pattern = re.escape(words[0])
    for at, word in enumerate(words[1:], 1):
        apart = "*" if glued[at - 1] or glued[at] else "+"
        pattern += rf"[\W_]{apart}{re.escape(word)}"
    is_open = prefix and folded.rstrip().endswith(words[-1])
    return Phrase(
        re.compile(pattern), max(words, key=len), not glued[0], not (glued[-1] or is_open), text
    )


def any_of(phrases: Sequence[Phrase]) -> Phrase | None:
    """Other spellings of the first phrase; the longest that fits is found."""
    if len(phrases) < 2:  # noqa: PLR2004
        return phrases[0] if phrases else None
    patterns = sorted({phrase.pattern.pattern for phrase in phrases}, key=len, reverse=True)
    ends = zip(min(patterns), max(patterns), strict=False)
    prefix = _WORD.match("".join(a for a, b in takewhile(lambda pair: pair[0] == pair[1], ends)))
    return phrases[0]._replace(
        pattern=re.compile("|".join(patterns)),
        quick=prefix[0] if prefix else "",
        begins=all(phrase.begins for phrase in phrases),
        ends=all(phrase.ends for phrase in phrases),
    )


def names_like(names: Iterable[str], text: str) -> list[str]:
    """The name that `text` is, or else all names that have its words; `op*` begins a word."""
    candidates = list(names)
    if text in candidates:
        return [text]
    wanted = phrase(text.rstrip("*"), prefix=text.endswith("*"))
    return [name for name in candidates if wanted and wanted.is_in(fold(name))]


# Words that say nothing about the subject of a text.
_COMMON = """
a about all also an and any are as at be been but by can could did do does for from get had has
have he her here him his how i if in into is it its just let like make me more my need no not
now of on one only or our out please s she should so some t than that the their them then there
these they this those to too up us use want was we were what when where which who why will with
would you your
"""
COMMON = frozenset(words(_COMMON))
