"""Every column that holds text of people, models and tools: read to find secrets, written to erase
them.

A test compares the list with the schema, so that no column is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.text import escape_row, unescape_rows

_OF_MESSAGE = "(SELECT m.turn_id FROM messages m WHERE m.id = message_id)"
_OF_TASK_MESSAGE = "(SELECT b.turn_id FROM bus_messages b WHERE b.id = start_message_id)"
ROWS_AT_ONCE = 500


class TextTable(NamedTuple):
    name: str
    key: tuple[str, ...]  # its primary key
    columns: tuple[str, ...]
    turn: str = "NULL"  # an expression: the turn that a row belongs to
    session: str = "NULL"  # of rows without a turn: the label of the session
    pieces_of: str = ""  # a text is cut into rows: those with the same value in this column
    fixed: tuple[str, ...] = ()  # columns that are never changed: names that others are counted by
    file: str = "NULL"  # an expression: the archived file that a row describes


TEXT_TABLES = (
    TextTable(
        "turns",
        ("id",),
        (
            *("error", "workspace_path", "effective_config_json", "tools_available"),
            *("permissions_granted", "permissions_used", "source_event_id", "toolset_name"),
            *("model", "provider"),
        ),
        "id",
        fixed=("model", "provider"),
    ),
    TextTable(
        "messages",
        ("id",),
        ("content", "thinking", "context_json", "metadata_json"),
        "turn_id",
    ),
    TextTable(
        "tool_calls",
        ("turn_id", "id"),
        ("params_json", "result_json", "error", "tool_name"),
        "turn_id",
        fixed=("tool_name",),
    ),
    TextTable("compactions", ("turn_id",), ("summary", "metadata_json"), "turn_id"),
    TextTable("message_files", ("id",), ("file_path",), _OF_MESSAGE),
    TextTable("message_lints", ("id",), ("file_path", "message"), _OF_MESSAGE),
    TextTable("message_codeblocks", ("id",), ("content", "file_path"), _OF_MESSAGE),
    TextTable("system_prompts", ("hash",), ("content",)),
    TextTable("partial_texts", ("turn_id", "piece"), ("content",), "turn_id", "NULL", "turn_id"),
    TextTable("queue", ("position",), ("ask_json", "error"), "NULL", "session_label"),
    TextTable(
        "sessions",
        ("label",),
        ("task_description", "source_title", "metadata_json", "routing_key"),
        "NULL",
        "label",
    ),
    TextTable("annotations", ("session_label",), ("title", "note"), "NULL", "session_label"),
    TextTable("session_import_requests", ("idempotency_key",), ("response_json",)),
    TextTable("session_import_chunk_parts", ("source", "upload_id", "chunk_index"), ("payload",)),
    TextTable("import_runs", ("id",), ("report_json",)),
    TextTable("source_faults", ("file_id", "position", "what"), ("what",), file="file_id"),
    TextTable("source_titles", ("file_id", "record_id"), ("title",), file="file_id"),
    TextTable("source_files", ("id",), ("cursor_json",), file="id"),
    TextTable("bus_messages", ("position",), ("content",), "turn_id"),
    TextTable("bus_calls", ("position",), ("parameters", "details"), _OF_TASK_MESSAGE),
    TextTable(
        "bus_stream_texts", ("stream_id", "piece"), ("content",), "NULL", "NULL", "stream_id"
    ),
)


class TextRow(NamedTuple):
    key: Row
    turn_id: str | None
    session_label: str | None
    texts: tuple[str | None, ...]


def text_rows(tx: Transaction, table: TextTable, where: str = "") -> Iterator[TextRow]:
    """The rows of a table in the order of their keys, a batch at a time."""
    keys, size = ", ".join(table.key), len(table.key)
    columns = ", ".join((*table.key, table.turn, table.session, *table.columns))
    after: Sequence[Any] | None = None
    while True:
        places = ", ".join("?" for _ in table.key)
        beyond = "" if after is None else f"({keys}) > ({places})"
        conditions = " AND ".join(filter(None, (beyond, where)))
        rows = tx.execute(
            f"SELECT {columns} FROM {table.name}"
            f"{' WHERE ' + conditions if conditions else ''} ORDER BY {keys} LIMIT {ROWS_AT_ONCE}",
            tuple(after or ()),
        )
        for stored, row in zip(rows, unescape_rows(rows), strict=True):
            after = stored[:size]
            turn_id, session_label, *texts = cast("list[str | None]", row[size:])
            yield TextRow(stored[:size], turn_id, session_label, tuple(texts))
        if len(rows) < ROWS_AT_ONCE:
            return


def write_text(tx: Transaction, table: TextTable, key: Row, column: str, text: str) -> None:
    condition = " AND ".join(f"{name} = ?" for name in table.key)
    tx.execute(
        f"UPDATE {table.name} SET {column} = ? WHERE {condition}", (*escape_row((text,)), *key)
    )
