"""All tables of a ledger as plain rows: for copying them, and for comparing copies."""

from __future__ import annotations

from agents_ledger.store.database import Transaction

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


def copy(reading: Transaction, writing: Transaction) -> None:
    """Copy every row of every table. What an older ledger does not have stays empty."""
    for table, key in TABLES.items():
        columns = reading.columns(table)
        places = ", ".join("?" for _ in columns)
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"
        for batch in reading.stream(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {key}"):
            writing.execute_many(insert, batch)


def columns(tx: Transaction) -> dict[str, list[str]]:
    """The columns of every table."""
    return {table: tx.columns(table) for table in TABLES}


def digests(tx: Transaction, compared: dict[str, list[str]]) -> dict[str, tuple[int, str]]:
    """Number of the rows of every table, and hash of their columns that are compared."""
    import hashlib  # loads OpenSSL, which most commands do not need

    digests = {}
    for table, key in TABLES.items():
        names = ", ".join(compared[table])
        count, digest = 0, hashlib.sha256()
        for batch in tx.stream(f"SELECT {names} FROM {table} ORDER BY {key}"):
            count += len(batch)
            for row in batch:
                digest.update(repr(row).encode())
        digests[table] = (count, digest.hexdigest())
    return digests
