"""Importing in tests: files in, rows out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents_ledger import Ledger
from agents_ledger.importers import pipeline
from agents_ledger.importers.pipeline import Report
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.ledger.core import Core
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.store.database import open_database

# What an import must end in, whatever the order and the number of its steps. History and import
# times are a log; they may differ.
RESULT = {
    "turns": "SELECT id, parent_turn_id, turn_type, status, started_at, completed_at, model,"
    " provider, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens,"
    " reasoning_tokens, total_tokens, query_message_ids, response_message_id, has_children,"
    " tool_call_count, workspace_path, error, request_hash FROM turns ORDER BY id",
    "messages": "SELECT id, turn_id, role, content, source, sequence, created_at, thinking,"
    " context_json, metadata_json, tool_call_id, has_details FROM messages ORDER BY id",
    "tool_calls": "SELECT id, turn_id, message_id, tool_name, tool_number, params_json,"
    " result_json, error, status, source_status, spawned_session_label, started_at,"
    " completed_at, sequence FROM tool_calls ORDER BY turn_id, id",
    "sessions": "SELECT label, thread_id, is_subagent, parent_session_label, parent_turn_id,"
    " spawn_tool_call_id, origin, origin_session_id, source_title, metadata_json, task_status"
    " FROM sessions ORDER BY label",
    "threads": "SELECT turn_id, depth, input_tokens, output_tokens, total_tokens, compaction_count,"
    " compaction_turn_id, model FROM places ORDER BY turn_id",
    "compactions": "SELECT * FROM compactions ORDER BY turn_id",
    "files": "SELECT message_id, kind, file_path FROM message_files"
    " ORDER BY message_id, kind, file_path",
}

# Memory holds as little as of a million records.
HOLDS_NOTHING = ImportLimits(
    held_bytes=0, held_turn_bytes=0, held_turn_chars=0, held_names=2, held_values=0
)


def import_paths(ledger: Ledger, *paths: Path, limits: ImportLimits = LIMITS) -> Report:
    """Import files or folders, each told by its content."""
    return pipeline.import_paths(ledger, paths, limits)


def result(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]]:
    """The rows an import ends in."""
    return {name: ledger.query(sql)[1] for name, sql in RESULT.items()}


def few_at_once(path: Path) -> Ledger:
    """A ledger that writes an import in as many steps as one of a million records."""
    limits = LedgerLimits(derived_turns=2, held_record_ids=1, held_names=2, step_chars=0)
    return Ledger(Core(open_database(str(path), limits=limits)))


def packed_result(folder: Path, path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows that an import of a path, and a derivation of it again, end in where memory holds as
    little as of a million records."""
    with few_at_once(folder / "packed.db") as ledger:
        import_paths(ledger, path, limits=HOLDS_NOTHING)
        pipeline.rederive(ledger, HOLDS_NOTHING)
        return result(ledger)
