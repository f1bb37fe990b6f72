"""Plans: every lookup of the specification and every statement of ours uses an index."""

from __future__ import annotations

import re

import pytest

from agents_ledger import Ledger, Session
from agents_ledger.store import queries
from agents_ledger.store.postgres.statements import WORDS as POSTGRES_WORDS
from agents_ledger.store.sqlite import statements as sqlite_store
from agents_ledger.store.sqlite.statements import WORDS as SQLITE_WORDS
from tests.builders import a_full_turn, chain
from tests.raw import Raw
from tests.tasking import a_task, calls, says, tasks_of

# The indexes of the specification, as the lookups they are for. Words of few values have an index
# for the rare ones alone. The index is named where a primary key does not do the work. Decision
# 0035 says why turns without children, threads by persona, and calls by tool have none.
LOOKUPS = {
    "turns by parent": ("turns WHERE parent_turn_id = 'x'", "idx_turns_parent"),
    "turns by type": ("turns WHERE turn_type = 'compaction'", "idx_turns_compaction"),
    "turns pending": ("turns WHERE status = 'pending'", "idx_turns_pending"),
    "turns streaming": ("turns WHERE status = 'streaming'", "idx_turns_streaming"),
    "turns failed": ("turns WHERE status = 'failed'", "idx_turns_failed"),
    "turns latest": ("turns ORDER BY started_at DESC LIMIT 9", "idx_turns_started"),
    "turns since": ("turns WHERE started_at > 99", "idx_turns_started"),
    "turns of managers": ("turns WHERE role = 'manager'", "idx_turns_manager"),
    "turns of workers": ("turns WHERE role = 'worker'", "idx_turns_worker"),
    "turns by event": ("turns WHERE source_event_id = 'x'", "idx_turns_source_event"),
    "threads by turn": ("threads WHERE turn_id = 'x'", "places"),
    "threads by key": ("threads WHERE thread_key = 'x'", "idx_places_key"),
    "sessions by label": ("sessions WHERE label = 'x'", "sessions"),
    "sessions by persona": ("sessions WHERE persona_id = 'x'", "idx_sessions_persona"),
    "sessions by routing key": ("sessions WHERE routing_key = 'x'", "idx_sessions_routing"),
    "sessions latest": ("sessions ORDER BY updated_at DESC LIMIT 9", "idx_sessions_updated"),
    "sessions by parent": ("sessions WHERE parent_session_label = 'x'", "idx_sessions_parent"),
    "sessions by origin": ("sessions WHERE origin = 'x'", "idx_sessions_origin"),
    "sessions by source": (
        "sessions WHERE origin = 'x' AND origin_session_id = 'y'",
        "idx_sessions_origin",
    ),
    "messages of a turn": (
        "messages WHERE turn_id = 'x' ORDER BY sequence",
        "idx_messages_turn",
    ),
    "messages of the system": ("messages WHERE role = 'system'", "idx_messages_system"),
    "messages of tools": ("messages WHERE role = 'tool'", "idx_messages_tool"),
    "calls of a turn": ("tool_calls WHERE turn_id = 'x' ORDER BY sequence", "tool_calls"),
    "calls by message": ("tool_calls WHERE message_id = 'x'", "idx_tool_calls_message"),
    "calls by child": (
        "tool_calls WHERE spawned_session_label = 'x'",
        "idx_tool_calls_spawned",
    ),
    "compactions by turn": ("compactions WHERE turn_id = 'x'", "compactions"),
    "history of a session": (
        "session_history WHERE session_label = 'x' AND changed_at <= 9 ORDER BY id DESC LIMIT 1",
        "idx_session_history_label",
    ),
    "history of a thread": (
        "session_history WHERE thread_id = 'x'",
        "idx_session_history_thread",
    ),
    "aliases by name": ("session_aliases WHERE alias = 'x'", "names"),
    "aliases of a session": ("session_aliases WHERE session_label = 'x'", "idx_names_session"),
    "files of a message": ("message_files WHERE message_id = 'x'", "idx_message_files_message"),
    "files by path": ("message_files WHERE file_path = 'x'", "idx_message_files_path"),
    "lints of a message": ("message_lints WHERE message_id = 'x'", "idx_message_lints_message"),
    "codeblocks of a message": (
        "message_codeblocks WHERE message_id = 'x' ORDER BY idx",
        "idx_message_codeblocks_message",
    ),
    "messages of a task": (
        "task_messages WHERE task_id = 'x' ORDER BY timestamp",
        "idx_bus_messages_task",
    ),
    "calls of a task": ("calls WHERE task_id = 'x'", "idx_bus_calls"),
    "calls in progress": (
        "calls WHERE status = 'in_progress' AND task_id = 'x'",
        "idx_bus_calls_in_progress",
    ),
    "tasks by time": ("tasks WHERE created_at BETWEEN 1 AND 2", "idx_bus_tasks_created"),
    "tasks in progress": ("tasks WHERE completion_status IS NULL", "idx_bus_tasks_status"),
    "tasks by status": ("tasks WHERE completion_status = 'x'", "idx_bus_tasks_status"),
    "subtasks": ("tasks WHERE parent_task_id = 'x'", "idx_bus_tasks_parent"),
}
SALVAGE = queries.remarks("queries/salvage.sql")  # goes through a whole ledger, once
# What removes values reads every text there is, and is rare.
REDACTION = queries.remarks("queries/redaction.sql")
# Statements that are about everything there is.
WHOLE = {
    "all_moves",  # verify reads everything
    "derive_all_again",
    "evidence_coverage",
    "evidence_removals",
    "evidence_renames",
    "all_source_files",
    "all_tokens",
    "delete_old_chunks",
    "aliases",
    "counts",
    "head_segments",
    "live_progress",
    # Those being written now are few.
    "delete_writer",
    "live_turns",
    "rename_live_turns",
    "writer_left",
    "writer_turns",
    "migrations_applied",
    "other_writers",
    "session_heads",
    "system_prompts",
    "await_index_all",
    "revoke_all_tokens",
    "docs_without_vector",
    "heads",
    "holders_by_heads",
    "indexed_count",
    "indexed_turns",
    "search_scope",  # narrows to the sessions of an origin, or a persona
    "session_count",
    "session_origins",  # of all sessions, each of which search_scope reads as well
    "unfinished_turn",  # live turns: as many as are being written
    "unindexed",
    "vectors",  # an exact scan
    "vector_count",  # up to so many
    "vector_length",  # of the first
    "unindexed_count",
    "forget_words",
    "forget_all_docs",
    "turn_is_named",  # of a turn to be taken away, which is rare
    "name_tasks_of_messages",  # of a copy
    # Redaction and retention, which are rare.
    "blocks_based_on",
    "forget_all_sums",
    "forget_all_tool_sums",
    "forget_all_usage_sums",
    "prompt_turns",
    "purge_prompt",
    "redacted_ids",  # as many as were redacted
    "retention_sessions",
    "turns_of_project",
    "tree_nodes",  # marks what sessions and compactions point to
}


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """A ledger with a row in every table a plan may look at."""
    chain(ledger, "main", 30)
    ledger.record("main", **a_full_turn())
    for number in range(30):
        tasks_of(ledger).save(
            a_task(f"t{number}", created_at=number),
            says(f"m{number}", "user", "q", number, task_id=f"t{number}"),
            calls(f"c{number}", task_id=f"t{number}", start_message_id=f"m{number}"),
        )
        ledger.create_session(Session(f"s{number}", origin="cursor", origin_session_id="x"))
    return ledger


def explain(raw: Raw, sql: str) -> str:
    """The plan of a statement, one step a line. A server may not read whole tables."""
    if raw.engine == "sqlite":
        values = dict.fromkeys(re.findall(r":(\w+)", sql))
        rows = raw.execute(f"EXPLAIN QUERY PLAN {sql}", values)  # type: ignore[arg-type]
        return "\n".join(row[3] for row in rows)
    names = list(dict.fromkeys(re.findall(r"(?<!:):([a-z_]+)", sql)))
    for number, name in enumerate(names, 1):
        sql = re.sub(rf"(?<!:):{name}\b", f"${number}", sql)
    raw.execute("SET plan_cache_mode TO force_generic_plan")
    raw.execute("SET enable_seqscan TO off")
    raw.execute("SET enable_bitmapscan TO off")
    raw.execute(f"PREPARE asked AS {sql}")
    given = f"({', '.join('NULL' for _ in names)})" if names else ""
    rows = raw.execute(f"EXPLAIN EXECUTE asked{given}")
    raw.execute("DEALLOCATE asked")
    return "\n".join(row[0] for row in rows)


def test_every_lookup_of_the_specification_uses_an_index(filled: Ledger, raw: Raw) -> None:
    # Databases are used again: what a server knows of their tables may be from an empty one.
    if raw.engine != "sqlite":
        raw.execute("ANALYZE")
    slow = {}
    for what, index in LOOKUPS.values():
        columns = "turn_id" if what.startswith("threads") else "*"
        plan = explain(raw, f"SELECT {columns} FROM {what}")
        reads_all = "SCAN" in plan and "LIMIT" not in what and "idx_" not in plan
        if index not in plan or reads_all or "Seq Scan" in plan:
            slow[what] = plan

    assert not slow, "\n\n".join(f"{what}\n{plan}" for what, plan in slow.items())


def of_one_engine(raw: Raw) -> dict[str, str]:
    words = SQLITE_WORDS if raw.engine == "sqlite" else POSTGRES_WORDS
    return queries.load(words)


def test_no_statement_reads_a_whole_table(filled: Ledger, raw: Raw) -> None:
    plain = {table for table in raw.tables() if table != "search_index"}  # is an index
    tables = "|".join(sorted({*plain, "[a-z]"}, key=len, reverse=True))
    scans = re.compile(rf"SCAN (?:{tables})(?: |$)(?!USING (?:COVERING )?INDEX)|Seq Scan on")
    slow = {}
    for name, sql in of_one_engine(raw).items():
        if name.startswith("audit_") or name in WHOLE or name in {*SALVAGE, *REDACTION}:
            continue
        plan = explain(raw, sql)
        if scans.search(plan):
            slow[name] = plan

    assert not slow, "\n\n".join(f"{name}\n{plan}" for name, plan in slow.items())


def test_the_exceptions_exist(raw: Raw) -> None:
    assert set(of_one_engine(raw)) >= WHOLE
    assert sqlite_store.WORDS.keys() == POSTGRES_WORDS.keys()
