"""Text that may hold anything, made harmless for whoever shows it.

Whoever wrote a message may have put codes in it that move a cursor, set a clipboard or turn the
reading order. They are shown instead of obeyed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

# C0 with DEL; then C1, marks and overrides of the reading order, line separators, and halves of
# characters, which no encoding can write.
CONTROLS = "\x00-\x1f\x7f"
OTHERS = "\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
# Compiled where used, which is seldom: they take 3 ms.
_UNSAFE = f"[{CONTROLS}{OTHERS}]"
_UNSAFE_IN_LINES = f"[\x00-\x08\x0b-\x1f\x7f{OTHERS}]"
_SPACE = re.compile(r"\s+")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_UNSAFE, _picture, text)


def visible_lines(text: str) -> str:
    """Text of many lines with nothing else in it that a reader would not see."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_UNSAFE_IN_LINES, _picture, text.replace("\r\n", "\n"))


def _picture(found: re.Match[str]) -> str:
    letter = found[0]
    if letter == "\x7f":
        return "\u2421"
    return chr(0x2400 + ord(letter)) if letter < " " else f"\\u{ord(letter):04x}"


def _cell(value: object) -> object:
    """A CSV cell that no spreadsheet evaluates: a leading quote marks a formula as text."""
    if not isinstance(value, str):
        return value
    text = "\n".join(visible(line) for line in value.split("\n"))
    # Spreadsheets evaluate such cells when a file is opened, and a formula can send data elsewhere.
    return f"'{text}" if value.startswith(_FORMULA) else text


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Comma-separated values that no spreadsheet evaluates."""
    import csv

    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_cell(column) for column in columns])
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return buffer.getvalue()
