"""Text as the index sees it: words in lower case, without accents.

Chinese, Japanese and Korean are written without spaces, or glue words together. There every two
neighbouring letters are a word, so that any part of a run is found.
"""

from __future__ import annotations

import re
import unicodedata

_GLUED = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_GLUED}]+")
_WORD = re.compile(r"[^\W_]+")
_OTHER_LETTER = rf"[^\W_{_GLUED}]"
WORD_OR_RUN = re.compile(rf"[{_GLUED}]+|{_OTHER_LETTER}+")
_BELOW_GLUED = bytes(range(0xE3))  # lead bytes of letters that are never glued


def _has_runs(text: str) -> bool:
    return not text.isascii() and bool(
        text.encode("utf-8", "surrogatepass").translate(None, _BELOW_GLUED)
    )


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run))]


def spaced(text: str) -> str:
    """The text with the pairs of its unspaced runs in their place, apart from each other."""
    if not _has_runs(text):
        return text
    return _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


class _Folding(dict[int, str]):
    """Each letter as one letter: positions in the folded text are those of the text."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        plain = "" if _RUN.match(letter) else unicodedata.normalize("NFKD", letter)[0].lower()
        self[code] = folded = plain[:1] or letter
        return folded


_FOLDING = _Folding()


def fold(text: str) -> str:
    """The text in lower case and without accents, letter for letter."""
    return text.lower() if text.isascii() else text.translate(_FOLDING)


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return _WORD.findall(fold(spaced(text)))


def asked(text: str) -> list[str]:
    """The words to look for, one after the other, as they were typed. The last letter of a run
    stands alone only where the run ends, so a run that is asked for leaves it out."""
    found: list[str] = []
    at = 0
    for run in _RUN.finditer(text):
        found += _WORD.findall(text[at : run.start()])
        found += _pairs(run[0])[:-1] if len(run[0]) > 1 else [run[0]]
        at = run.end()
    return found + _WORD.findall(text[at:])


def is_letter(text: str) -> bool:
    """Whether this is a single letter of an unspaced run: it is found as the start of a pair."""
    return len(text) == 1 and _RUN.fullmatch(text) is not None


def pattern(text: str, *, prefix: bool = False) -> re.Pattern[str] | None:
    """What finds the words of `text`, one after the other, in a folded text; None: it has none."""
    folded = fold(text)
    pieces: list[str] = []
    for word in WORD_OR_RUN.finditer(folded):
        letters = word[0]
        glued = _RUN.fullmatch(letters) is not None
        ends = glued or (prefix and word.end() == len(folded.rstrip()))
        said = re.escape(letters)
        # What may not stand before comes after: a pattern that begins with letters is found sooner.
        before = "" if glued else f"(?<!{_OTHER_LETTER}{said})"
        after = "" if ends else f"(?!{_OTHER_LETTER})"
        pieces.append(f"{said}{before}{after}")
    return re.compile(r"[\W_]*".join(pieces)) if pieces else None
