"""The only module that prints. It sanitizes all text from a ledger, whether or not the output is a
terminal: piped output may reach one later.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.text.sanitize import OTHERS, csv_text, one_line, visible

SCHEMA_VERSION = 1  # of every JSON answer
PIPED_WIDTH = 100
PIPED_HEIGHT = 24
FLEXIBLE_MIN = 24  # columns of a terminal
TRUNCATED_MIN = 16

_UNSAFE_IN_JSON = f"[\x7f{OTHERS}]"

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
_DRAWN = dict.fromkeys(_ASCII)

Span = str | tuple[str, str]  # text, or text and its style


# -- text -------------------------------------------------------------------------------------


def lines_of(text: str) -> list[str]:
    return [line.rstrip("\r").expandtabs(4) for line in text.rstrip("\n").split("\n")]


# -- width ------------------------------------------------------------------------------------


def width_of(text: str) -> int:
    """The number of terminal columns that a line takes."""
    if text.translate(_DRAWN).isascii():  # what this program draws takes one column each
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, width: int) -> str:
    """Sanitized text on one line, truncated to `width` columns."""
    text = visible(one_line(text))
    if width_of(text) <= width:
        return text
    return _first_cells(text, width - 1).rstrip() + "…" if width > 0 else ""


def fit_end(text: str, width: int) -> str:
    """Like fit(), but of a text such as a path, whose end says most, the end is left."""
    text = visible(one_line(text))
    if width_of(text) <= width:
        return text
    return "…" + _first_cells(text[::-1], width - 1)[::-1] if width > 0 else ""


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
        self.width, self._height = _terminal_size()
        self._page: list[str] | None = None
        self._colour = _wants_colour(self.is_terminal)
        self._ascii = not _can_draw(stream.encoding)
        if isinstance(stream, io.TextIOWrapper):
            # A terminal with a narrow encoding must not make a command fail.
            stream.reconfigure(errors="backslashreplace")

    def line(self, *spans: Span) -> None:
        self._write(_render(spans, colour=self._colour))

    def text(self, text: str, indent: str = "", style: str = "") -> None:
        for line in lines_of(text):
            self.wrapped(indent, (line, style))

    def wrapped(self, indent: str, *spans: Span) -> None:
        """Print spans after the indent; on a terminal, on as many such lines as they take."""
        pairs = [(visible(text), style) for text, style in map(_pair, spans)]
        text = "".join(text for text, _ in pairs)
        width = self.width - len(indent) if self.is_terminal else sys.maxsize
        end = 0
        for piece in wrap(text, width):
            start = text.index(piece, end)  # only spaces are left out between two pieces
            end = start + len(piece)
            self.line(indent, *_between(pairs, start, end))

    def table(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[Span]],
        *,
        right: Sequence[str] = (),
        flexible: str | None = None,
        optional: Sequence[str] = (),
        truncated: Sequence[str] = (),
        shorten: Callable[[str, int], str] = fit,
    ) -> None:
        """Print aligned columns.

        On a terminal the flexible column, else the last, is shortened to the remaining width. While
        that leaves too little of it, the optional columns are omitted, then the truncated ones
        shortened, in their order.
        """
        lines = [[(head, "dim") for head in heads], *_cells(rows)]
        columns = list(zip(*lines, strict=True))
        names = list(heads)
        flexible = flexible or (None if heads[-1] in right else heads[-1])
        if self.is_terminal and flexible:
            needed = min(FLEXIBLE_MIN, _width(columns[names.index(flexible)]))
            for name in optional:
                if _room(columns, names.index(flexible), self.width) >= needed:
                    break
                del columns[names.index(name)]
                names.remove(name)
            at = names.index(flexible)
            for name in truncated:
                place, missing = names.index(name), needed - _room(columns, at, self.width)
                if missing > 0:
                    most = max(TRUNCATED_MIN, _width(columns[place]) - missing)
                    columns[place] = tuple(
                        (fit(text, most), style) for text, style in columns[place]
                    )
            room = max(1, _room(columns, at, self.width))
            columns[at] = tuple((shorten(text, room), style) for text, style in columns[at])
        widths = [_width(column) for column in columns]
        for line in zip(*columns, strict=True):
            spans: list[Span] = []
            for name, width, (text, style) in zip(names, widths, line, strict=True):
                gap = " " * (width - width_of(text))
                spans += [gap, (text, style)] if name in right else [(text, style), gap]
                spans.append("  ")
            self.line(*spans)

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
        columns = zip(*([(head, "dim") for head in heads], *_cells(rows)), strict=True)
        widths = [_width(column) for column in columns]
        return not self.is_terminal or sum(widths) + 2 * len(heads) - 2 <= self.width

    @contextmanager
    def paged(self) -> Iterator[None]:
        """On a terminal, show what is printed here by $PAGER if it has more lines than fit."""
        self._page = [] if self.is_terminal else None
        try:
            yield
        finally:
            lines, self._page = self._page or [], None
            if len(lines) < self._height:
                for line in lines:
                    self._write(line)
            else:
                click.echo_via_pager((f"{line}\n" for line in lines), color=self._colour)

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
        click.echo(_json(value, indent=2))

    def piece(self, text: str) -> None:
        """Print a part of a document that its exporter has sanitized."""
        sys.stdout.write(text)

    def csv(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print comma-separated values that no spreadsheet evaluates."""
        click.echo(csv_text(columns, rows), nl=False)

    def _write(self, text: str) -> None:
        if self._ascii:
            text = text.translate(_ASCII)
        if self._page is not None:
            self._page.append(text)
        elif self.is_terminal:
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


def json_diagnostic(**values: str) -> None:
    """Print an error on stderr as one JSON object on one line."""
    sys.stdout.flush()
    click.echo(_json({"schema_version": SCHEMA_VERSION, **values}), err=True)


def _json(value: Any, indent: int | None = None) -> str:
    import json

    import msgspec

    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent)
    return re.sub(_UNSAFE_IN_JSON, lambda match: f"\\u{ord(match[0]):04x}", text)


def _render(spans: Sequence[Span], *, colour: bool) -> str:
    """The one place where spans become text: each is sanitized, then styled."""
    parts = []
    for text, style in map(_pair, spans):
        safe = visible(text)
        code = _STYLES.get(style) if colour and safe.strip() else None
        parts.append(f"\x1b[{code}m{safe}\x1b[0m" if code else safe)
    return "".join(parts).rstrip()


def _between(spans: Iterable[tuple[str, str]], start: int, end: int) -> Iterator[Span]:
    """The part of the spans from one position of their text to another."""
    position = 0
    for text, style in spans:
        yield text[max(0, start - position) : max(0, end - position)], style
        position += len(text)


def _cells(rows: Iterable[Sequence[Span]]) -> list[list[tuple[str, str]]]:
    pairs = [[_pair(cell) for cell in row] for row in rows]
    return [[(visible(one_line(text)), style) for text, style in row] for row in pairs]


def _width(column: Iterable[tuple[str, str]]) -> int:
    return max(width_of(text) for text, _ in column)


def _room(columns: Sequence[Sequence[tuple[str, str]]], at: int, width: int) -> int:
    """The width that the other columns leave for one."""
    used = sum(_width(column) + 2 for index, column in enumerate(columns) if index != at)
    return width - used


def _terminal_size() -> tuple[int, int]:
    """Columns and lines, as shutil.get_terminal_size() finds them; importing that takes 2 ms."""
    try:
        actual = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except (OSError, ValueError):
        actual = os.terminal_size((PIPED_WIDTH, PIPED_HEIGHT))
    columns, lines = (os.environ.get(name, "") for name in ("COLUMNS", "LINES"))
    return (
        int(columns if columns.isdecimal() else 0) or actual.columns or PIPED_WIDTH,
        int(lines if lines.isdecimal() else 0) or actual.lines or PIPED_HEIGHT,
    )


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
