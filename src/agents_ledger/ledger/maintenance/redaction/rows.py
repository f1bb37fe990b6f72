"""Texts in the rows of a ledger: searched, and replaced through the door that the guards leave."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from agents_ledger.ledger.maintenance.redaction.record_contents import CONTENT
from agents_ledger.ledger.maintenance.redaction.scope import Scope
from agents_ledger.model.secrets.nested_json import (
    Find,
    ValueSpan,
    blanked,
    is_json,
    looks_like_json,
    string_spans,
    value_spans,
)
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.tables.texts import (
    TEXT_TABLES,
    TextRow,
    TextTable,
    text_rows,
    write_text,
)

# Where the scope is whole turns, sessions, projects or personas, these are their content; the rest
# is the skeleton that stays: ids, times, names of tools, paths of files, numbers of tokens.
_CONTENT_COLUMNS = {
    "turns": {"error"},
    "messages": {"content", "thinking", "context_json", "metadata_json"},
    "tool_calls": {"params_json", "result_json", "error"},
    "compactions": {"summary"},
    "message_lints": {"message"},
    "message_codeblocks": {"content"},
    "system_prompts": {"content"},
    "partial_texts": {"content"},
    "queue": {"ask_json", "error"},
    "sessions": {"task_description", "source_title"},
    "annotations": {"title", "note"},
    "source_titles": {"title"},
    "bus_messages": {"content"},
    "bus_calls": {"parameters", "details"},
    "bus_stream_texts": {"content"},
}


class TextChange(NamedTuple):
    """A text from which values are removed."""

    table: TextTable
    key: Row
    column: str
    turn_id: str | None
    session_label: str | None
    text: str
    spans: tuple[ValueSpan, ...]

    @property
    def blanked(self) -> str:
        """The text without the values."""
        return blanked(self.text, [(span.start, span.end) for span in self.spans])


def changes(tx: Transaction, scope: Scope, find: Find | None) -> Iterator[TextChange]:
    """The texts of a scope that have values; without a search, all its content."""
    for table in TEXT_TABLES:
        condition = scope.condition(table)
        if condition is None:
            continue
        rows = (row for row in text_rows(tx, table, condition) if scope.has(row))
        if table.pieces_of:
            yield from _in_pieces(table, rows, find)
            continue
        for row in rows:
            yield from _of_row(table, row, find)


def _of_row(table: TextTable, row: TextRow, find: Find | None) -> Iterator[TextChange]:
    for column, text in zip(table.columns, row.texts, strict=True):
        if text and column not in table.fixed:
            spans = _spans(table, column, text, find)
            if spans:
                yield TextChange(
                    table, row.key, column, row.turn_id, row.session_label, text, tuple(spans)
                )


def _spans(table: TextTable, column: str, text: str, find: Find | None) -> list[ValueSpan]:
    if find is not None:
        return value_spans(text, find)
    if column not in _CONTENT_COLUMNS.get(table.name, ()):
        return []
    if looks_like_json(text) and is_json(text):
        spans = string_spans(text, CONTENT)
    else:
        spans = [ValueSpan(0, len(text), CONTENT, text)]
    return [span for span in spans if span.value.strip("*")]  # what was removed before


def _in_pieces(
    table: TextTable, rows: Iterator[TextRow], find: Find | None
) -> Iterator[TextChange]:
    """A text that streams in is cut anywhere: it is searched as a whole."""
    for _, group in groupby(rows, lambda row: row.key[0]):
        pieces = list(group)
        texts = [piece.texts[0] or "" for piece in pieces]
        spans = _spans(table, table.columns[0], "".join(texts), find)
        at = 0
        for piece, text in zip(pieces, texts, strict=True):
            inside = tuple(
                ValueSpan(max(0, start - at), min(len(text), end - at), kind, value)
                for start, end, kind, value in spans
                if start < at + len(text) and end > at
            )
            if inside:
                column = table.columns[0]
                yield TextChange(
                    table, piece.key, column, piece.turn_id, piece.session_label, text, inside
                )
            at += len(text)


def write(tx: Transaction, change: TextChange) -> None:
    """Store a text without its values."""
    write_text(tx, change.table, change.key, change.column, change.blanked)
