"""The only module that prints. It sanitizes all text from a ledger, whether or not the output is a
terminal: piped output may reach one later.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from agents_ledger.model.program import as_typed
from agents_ledger.model.text.sanitize import OTHERS, one_line, visible

SCHEMA_VERSION = 1  # of every JSON answer
PIPED_WIDTH = 100

_UNSAFE_IN_JSON = re.compile(f"[\x7f{OTHERS}]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

_STYLES = {
    "id": "36",
    "label": "1;32",
    "title": "1",
    "dim": "2",
    "bad": "31",
    "live": "33",
    "seam": "35",
    "tool": "34",
    "match": "1;33",
}
_ASCII = str.maketrans(
    {
        "●": "*", "◆": "*", "▬": "=", "◻": "o", "✕": "x", "◌": "~", "★": "*", "…": "...",
        "│": "|", "├": "+", "╰": "`", "─": "-", "┄": "-", "┆": ":", "→": "->", "·": "-",
    }
)  # fmt: skip

Span = str | tuple[str, str]  # text, or text and its style


# -- text -------------------------------------------------------------------------------------


def lines_of(text: str) -> list[str]:
    return [line.rstrip("\r").expandtabs(4) for line in text.rstrip("\n").split("\n")]


def spreadsheet_cell(value: object) -> object:
    """A CSV cell that no spreadsheet evaluates: a leading quote marks a formula as text."""
    if not isinstance(value, str):
        return value
    text = "\n".join(visible(line) for line in value.split("\n"))
    # Spreadsheets evaluate such cells when a file is opened, and a formula can send data elsewhere.
    return f"'{text}" if value.startswith(_FORMULA) else text


# -- width ------------------------------------------------------------------------------------


def width_of(text: str) -> int:
    """The number of terminal columns that a line takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, width: int) -> str:
    """Sanitized text on one line, truncated to `width` columns."""
    text = visible(one_line(text))
    if width_of(text) <= width:
        return text
    return _first_cells(text, width - 1).rstrip() + "…" if width > 0 else ""


def wrap(text: str, width: int) -> Iterator[str]:
    text = visible(text)
    if width_of(text) <= width:
        yield text
        return
    line = ""
    for word in re.findall(r"\s*\S+\s*?", text):
        if width_of(line) + width_of(word) <= width:
            line += word
            continue
        if line:
            yield line
        line = word.lstrip()
        while width_of(line) > width:
            piece = _first_cells(line, width) or line[0]
            yield piece
            line = line[len(piece) :]
    yield line


def _first_cells(text: str, width: int) -> str:
    from rich.cells import cell_len

    used = 0
    for index, char in enumerate(text):
        used += cell_len(char)
        if used > width:
            return text[:index]
    return text


# -- printing ---------------------------------------------------------------------------------


class Output:
    """Standard output: data, as text or as JSON."""

    def __init__(self) -> None:
        stream = sys.stdout
        self.is_terminal = stream.isatty()
        self.width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
        self._colour = _wants_colour(self.is_terminal)
        self._ascii = not _can_draw(stream.encoding)
        if isinstance(stream, io.TextIOWrapper):
            # A terminal with a narrow encoding must not make a command fail.
            stream.reconfigure(errors="backslashreplace")

    def line(self, *spans: Span) -> None:
        self._write(_render(spans, colour=self._colour))

    def text(self, text: str, indent: str = "", style: str = "") -> None:
        for line in lines_of(text):
            width = self.width - len(indent) if self.is_terminal else sys.maxsize
            for piece in wrap(line, width):
                self.line(indent, (piece, style))

    def table(
        self, heads: Sequence[str], rows: Iterable[Sequence[Span]], *, right: Sequence[str] = ()
    ) -> None:
        """Print aligned columns; on a terminal the last one is truncated to the remaining width."""
        lines = [[(head, "dim") for head in heads], *_cells(rows)]
        widths = _widths(lines)
        for line in lines:
            spans: list[Span] = []
            for index, (text, style) in enumerate(line[:-1]):
                gap = " " * (widths[index] - width_of(text))
                spans += [gap, (text, style)] if heads[index] in right else [(text, style), gap]
                spans.append("  ")
            last, style = line[-1]
            if heads[-1] in right:
                last = " " * (widths[-1] - width_of(last)) + last
            elif self.is_terminal:
                last = fit(last, max(1, self.width - sum(widths[:-1]) - 2 * len(widths[:-1])))
            self.line(*spans, (last, style))

    def records(self, heads: Sequence[str], rows: Iterable[Sequence[Span]]) -> None:
        """Print rows one below the other, one line per value."""
        longest = max(width_of(visible(head)) for head in heads)
        for number, row in enumerate(_cells(rows), 1):
            self.line((f"row {number}", "title"))
            for head, (text, style) in zip(heads, row, strict=True):
                name = fit(head, longest)
                gap = " " * (longest - width_of(name))
                room = self.width - longest - 4 if self.is_terminal else sys.maxsize
                self.line("  ", (name, "dim"), gap, "  ", (fit(text, room), style))

    def has_room_for(self, heads: Sequence[str], rows: Sequence[Sequence[Span]]) -> bool:
        """Whether a table of these rows fits the width of the terminal."""
        lines = [[(head, "dim") for head in heads], *_cells(rows)]
        return not self.is_terminal or sum(_widths(lines)) + 2 * len(heads) - 2 <= self.width

    def stream(self, text: str) -> None:
        """Print a part of a text immediately, with its line breaks."""
        text = "\n".join(visible(line.expandtabs(4)) for line in text.split("\n"))
        click.echo(text.translate(_ASCII) if self._ascii else text, nl=False)
        sys.stdout.flush()

    def json(self, **values: Any) -> None:
        """Print one JSON object with our schema version; control characters are escaped."""
        self.plain_json({"schema_version": SCHEMA_VERSION, **values})

    def plain_json(self, value: Any) -> None:
        """Print a value in another program's format, without our schema version."""
        import json

        import msgspec

        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2)
        click.echo(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))

    def piece(self, text: str) -> None:
        """Print a part of a document that its exporter has sanitized."""
        sys.stdout.write(text)

    def csv(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print comma-separated values that no spreadsheet evaluates."""
        import csv

        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([spreadsheet_cell(column) for column in columns])
        for row in rows:
            writer.writerow([spreadsheet_cell(value) for value in row])
        click.echo(buffer.getvalue(), nl=False)

    def _write(self, text: str) -> None:
        if self._ascii:
            text = text.translate(_ASCII)
        if self.is_terminal:
            click.echo(text, color=self._colour)
        else:
            # click.echo() flushes every line, which is slow for long listings in a pipe.
            sys.stdout.write(f"{text}\n")


def note(*spans: Span) -> None:
    colour = _wants_colour(sys.stderr.isatty())
    text = _render(spans, colour=colour)
    # Both streams may go to the same file: keep their order.
    sys.stdout.flush()
    if not _can_draw(sys.stderr.encoding):
        text = text.translate(_ASCII)
    click.echo(text, err=True, color=colour)


def prompt() -> None:
    """Print the prompt of `chat` on stderr."""
    click.echo("> ", nl=False, err=True)


def diagnostic(kind: str, text: str) -> None:
    """Print `kind: text` on stderr; further lines of the text are indented."""
    first, *rest = lines_of(as_typed(text))
    note((f"{kind}:", "bad" if kind == "error" else "dim"), " ", first)
    for line in rest:
        note("       ", line)


def _render(spans: Sequence[Span], *, colour: bool) -> str:
    """The one place where spans become text: each is sanitized, then styled."""
    parts = []
    for text, style in map(_pair, spans):
        safe = visible(text)
        code = _STYLES.get(style) if colour and safe.strip() else None
        parts.append(f"\x1b[{code}m{safe}\x1b[0m" if code else safe)
    return "".join(parts).rstrip()


def _cells(rows: Iterable[Sequence[Span]]) -> list[list[tuple[str, str]]]:
    pairs = [[_pair(cell) for cell in row] for row in rows]
    return [[(visible(one_line(text)), style) for text, style in row] for row in pairs]


def _widths(lines: Sequence[Sequence[tuple[str, str]]]) -> list[int]:
    return [max(width_of(text) for text, _ in column) for column in zip(*lines, strict=True)]


def _pair(span: Span) -> tuple[str, str]:
    return (span, "") if isinstance(span, str) else span


def _wants_colour(is_terminal: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal and os.environ.get("TERM") != "dumb"


def _can_draw(encoding: str | None) -> bool:
    try:
        "●│".encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
