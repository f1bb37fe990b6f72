"""All tables of a ledger as plain rows: for copying them, and for comparing copies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agents_ledger.store.database import Row, Transaction

# Each with its key, in an order in which references come after what they refer to.
TABLES = {
    "turns": "id",
    "segments": "id",
    "places": "segment_id, depth",
    "system_prompts": "hash",
    "sessions": "label",
    "names": "name",
    "annotations": "session_label",
    "session_history": "id",
    "messages": "id",
    "tool_calls": "turn_id, id",
    "compactions": "turn_id",
    "message_files": "id",
    "message_lints": "id",
    "message_codeblocks": "id",
    "source_files": "id",
    "source_blocks": "file_id, start",
    "turn_sources": "turn_id, file_id",
    "repeated_records": "id",
    "session_sources": "session_label, file_id",
    "session_imports": "source, source_provider, source_session_id",
    "source_links": "child_label",
    "session_import_requests": "idempotency_key",
    "session_import_chunk_parts": "source, upload_id, chunk_index",
    "import_runs": "id",
    "source_faults": "file_id, position, what",
    "source_titles": "file_id, record_id",
    "access_tokens": "id",
    "ledger_settings": "name",
    "redactions": "id",
    "redacted_places": "redaction_id, table_name, row_key, column_name",
    "redacted_spans": "file_id, start",
    "redacted_values": "key_id, digest, family",
    "redacted_ids": "derived_id",
    "retention_runs": "id",
    "bus_tasks": "id",
    "bus_messages": "position",
    "bus_calls": "position",
    "bus_turns": "turn_id",
    "writers": "id",
    "live_turns": "turn_id",
    "partial_texts": "turn_id, piece",
    "queue": "position",
    "bus_streams": "id",
    "bus_stream_texts": "stream_id, piece",
    "evidence": "position",
    "evidence_checkpoints": "size",
}

# Made again from the others when they are wanted.
DERIVED = ("summary_days", "usage_sums", "tool_sums")


class TableDigest(NamedTuple):
    columns: list[str]
    rows: int
    hash: str


class _Hash:
    """Counts and hashes rows as they pass."""

    def __init__(self) -> None:
        import hashlib  # loads OpenSSL, which most commands do not need

        self.rows = 0
        self._hash = hashlib.sha256()

    def add(self, rows: list[Row]) -> None:
        self.rows += len(rows)
        for row in rows:
            self._hash.update(repr(row).encode())

    def digest(self, columns: list[str]) -> TableDigest:
        return TableDigest(columns, self.rows, self._hash.hexdigest())


def copy(
    reading: Transaction, writing: Transaction, *, tables: Iterable[str] = tuple(TABLES)
) -> dict[str, TableDigest]:
    """Copy every row of every table; what was read of each. What an older ledger does not have
    stays empty."""
    digests = {}
    for table in tables:
        key = TABLES[table]
        columns, read = reading.columns(table), _Hash()
        if not columns:  # nobody has upgraded it yet
            digests[table] = read.digest(columns)
            continue
        places = ", ".join("?" for _ in columns)
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"
        for rows in reading.stream(_select(table, columns, key)):
            read.add(rows)
            writing.execute_many(insert, rows)
        digests[table] = read.digest(columns)
    return digests


def digests(tx: Transaction, compared: dict[str, list[str]]) -> dict[str, TableDigest]:
    """What every table has in these columns."""
    digests = {}
    for table, key in TABLES.items():
        columns, read = compared[table], _Hash()
        for rows in tx.stream(_select(table, columns, key)) if columns else ():
            read.add(rows)
        digests[table] = read.digest(columns)
    return digests


def _select(table: str, columns: list[str], key: str) -> str:
    return f"SELECT {', '.join(columns)} FROM {table} ORDER BY {key}"
