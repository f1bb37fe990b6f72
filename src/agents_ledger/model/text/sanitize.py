"""Text that may hold anything, made harmless for whoever shows it.

Whoever wrote a message may have put codes in it that move a cursor, set a clipboard or turn the
reading order. They are shown instead of obeyed.
"""

from __future__ import annotations

import re

# C0 with DEL; then C1, marks and overrides of the reading order, line separators, and halves of
# characters, which no encoding can write.
CONTROLS = "\x00-\x1f\x7f"
OTHERS = "\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE = re.compile(f"[{CONTROLS}{OTHERS}]")
_UNSAFE_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f{OTHERS}]")
_SPACE = re.compile(r"\s+")


def is_plain_line(text: str) -> bool:
    """Whether one_line() and visible() would leave the text as it is, as they mostly do."""
    return (
        text.isascii()
        and text.isprintable()
        and "  " not in text
        and not text.startswith(" ")
        and not text.endswith(" ")
    )


def one_line(text: str) -> str:
    """Text with every run of white space as one space."""
    return _SPACE.sub(" ", text).strip()


def visible(text: str) -> str:
    """One line of text with nothing in it that a terminal would obey."""
    return _UNSAFE.sub(_picture, text)


def visible_lines(text: str) -> str:
    """Text of many lines with nothing else in it that a reader would not see."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE_IN_LINES.sub(_picture, text.replace("\r\n", "\n"))


def _picture(found: re.Match[str]) -> str:
    letter = found[0]
    if letter == "\x7f":
        return "\u2421"
    return chr(0x2400 + ord(letter)) if letter < " " else f"\\u{ord(letter):04x}"
