"""All that an import derived, read from the tables themselves, and digests of it.

Left out are serial numbers, the clock of the import, and how text is packed and indexed.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

Rows = list[str]
DAY_MS = 86_400_000
STARTED_MS = time.time_ns() // 1_000_000
FILE = "source_files f ON f.id = t.file_id"
TOKENS = (
    "input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens,"
    " total_tokens"
)
SELECT = {
    "turns": f"SELECT id, parent_turn_id, turn_type, status, started_at, completed_at, model,"
    f" provider, role, toolset_name, tools_available, permissions_granted, permissions_used,"
    f" {TOKENS}, query_message_ids, response_message_id, has_children, tool_call_count,"
    " source_event_id, workspace_path, effective_config_json, error, projected, request_hash"
    " FROM turns",
    "threads": f"SELECT turn_id, depth, {TOKENS}, compaction_count, compaction_turn_id, model,"
    " provider, persona_id, system_prompt_hash, thread_key FROM places",
    "system_prompts": "SELECT hash, content FROM system_prompts",
    "sessions": "SELECT label, thread_id, persona_id, agent_id, created_as, is_subagent,"
    " parent_session_label, parent_turn_id, spawn_tool_call_id, task_description, task_status,"
    " routing_key, origin, origin_session_id, created_at, updated_at, status, source_title,"
    " metadata_json, source_has_more FROM sessions",
    "names": "SELECT name, session_label, reason FROM names",
    "messages": "SELECT id, turn_id, role, content, source, sequence, created_at, thinking,"
    " context_json, metadata_json, tool_call_id, has_details FROM messages",
    "tool_calls": "SELECT turn_id, id, message_id, tool_name, tool_number, params_json,"
    " result_json, error, status, source_status, spawned_session_label, started_at,"
    " completed_at, sequence FROM tool_calls",
    "compactions": "SELECT turn_id, summary, summarized_through_turn_id, first_kept_turn_id,"
    " turns_summarized, compaction_type, model, provider, tokens_before, tokens_after,"
    " summary_tokens, summarization_input_tokens, summarization_output_tokens, duration_ms,"
    " trigger, metadata_json FROM compactions",
    "message_files": "SELECT message_id, kind, file_path, line_start, line_end FROM message_files",
    "message_lints": "SELECT message_id, file_path, message, lint_source, start_line, start_col,"
    " end_line, end_col, severity FROM message_lints",
    "message_codeblocks": "SELECT message_id, idx, language, content, file_path, line_start,"
    " line_end FROM message_codeblocks",
    "source_files": "SELECT path, generation, source, family, kind, kept_bytes, derived_bytes,"
    " derived_version, cursor_json FROM source_files",
    "turn_sources": f"SELECT turn_id, f.path, f.generation FROM turn_sources t JOIN {FILE}",
    "session_sources": "SELECT session_label, f.path, f.generation"
    f" FROM session_sources t JOIN {FILE}",
    "repeated_records": "SELECT id, turn_id FROM repeated_records",
    "session_imports": "SELECT source, source_provider, source_session_id,"
    " source_session_fingerprint, session_label, head_turn_id, last_run_id FROM session_imports",
    "source_links": "SELECT child_label, parent_label FROM source_links",
    "import_requests": "SELECT idempotency_key, source, mode, run_id, request_hash, response_json"
    " FROM session_import_requests",
    "chunk_parts": "SELECT source, upload_id, chunk_index, chunk_total, mode, run_id, persona_id,"
    " idempotency_key, source_provider, source_session_id, source_session_fingerprint, encoding,"
    " payload FROM session_import_chunk_parts",
    "faults": f"SELECT f.path, f.generation, t.position, t.line FROM source_faults t JOIN {FILE}",
    "fault_texts": f"SELECT f.path, f.generation, t.position, t.what FROM source_faults t"
    f" JOIN {FILE}",
    "source_titles": "SELECT f.path, f.generation, t.record_id, t.position, t.title, t.shown"
    f" FROM source_titles t JOIN {FILE}",
}
# Sessions are derived in any order; the moves of one session's head have theirs.
HISTORY = "SELECT session_label, thread_id, reason FROM session_history ORDER BY session_label, id"


def read(address: str, root: Path) -> dict[str, Rows]:
    """The rows of each table as text in one order, with `root` cut out of every path."""
    if "://" not in address:
        with closing(sqlite3.connect(f"file:{address}?mode=ro", uri=True)) as database:
            return _read(database.execute, root)
    server, _, schema = address.rpartition("schema=")
    with psycopg.connect(server.rstrip("?&"), autocommit=True) as connection:
        connection.execute(f"SET search_path TO {schema}")
        return _read(connection.execute, root)


def _read(execute: Any, root: Path) -> dict[str, Rows]:
    tables = {table: sorted(_texts(execute(sql), root)) for table, sql in SELECT.items()}
    moves = sorted(execute(HISTORY), key=lambda row: str(row[0]))  # engines collate differently
    return tables | {"history": list(_texts(moves, root))}


def _texts(rows: Iterable[tuple[Any, ...]], root: Path) -> Iterable[str]:
    for row in rows:
        yield repr(tuple(map(_comparable, row))).replace(str(root), "")


def _comparable(value: Any) -> Any:
    """A value as both engines and all runs have it. What has no time of its own has that of its
    import."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, int) and STARTED_MS <= value < STARTED_MS + DAY_MS:
        return "now"
    return value


def digest(rows: Rows) -> str:
    """The number of rows, and a hash of them."""
    sha = hashlib.sha256()
    for row in rows:
        sha.update(row.encode("utf-8", "surrogatepass"))
        sha.update(b"\n")
    return f"{len(rows)} {sha.hexdigest()[:16]}"


def digests(tables: dict[str, Rows]) -> dict[str, str]:
    """A digest of each table that has rows."""
    return {table: digest(rows) for table, rows in tables.items() if rows}
