"""Secrets in a ledger: counted without being shown, and masked where it is set so."""

from __future__ import annotations

import re

import pytest

from agents_ledger import Ledger, Message, Refused, Session, ToolCall
from agents_ledger.model.reports.secrets import SecretReport
from agents_ledger.store import queries
from agents_ledger.store.tables.copying import TABLES
from agents_ledger.store.tables.texts import TEXT_TABLES

# Put together here, so that nobody takes this file for a leak.
TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
PASSWORD = "hunter2-" + "Xyz!"
# Columns of text that hold ids, words of ours, names by which things are found, or hashes.
NO_TEXT = frozenset(
    re.findall(
        r"\S+",
        """access_tokens.* annotations.session_label bus_calls.ability_name bus_calls.status
    names.* messages.source messages.role messages.task_id messages.tool_call_id
    queue.mode queue.status session_history.reason sessions.agent_id sessions.created_as
    sessions.origin sessions.origin_session_id sessions.persona_id sessions.status
    sessions.task_status sessions.label source_files.path source_files.family source_files.source
    source_files.kind session_import_chunk_parts.idempotency_key
    session_imports.* session_import_requests.source session_import_requests.mode
    session_import_requests.request_hash session_import_chunk_parts.mode
    session_import_chunk_parts.persona_id session_import_chunk_parts.encoding
    session_import_chunk_parts.source_provider session_import_chunk_parts.source_session_fingerprint
    tool_calls.source_status tool_calls.status turns.role turns.status turns.turn_type
    turns.query_message_ids compactions.compaction_type compactions.model compactions.provider
    compactions.trigger message_files.kind message_lints.lint_source message_lints.severity
    message_codeblocks.language places.model places.provider places.persona_id places.thread_key
    bus_tasks.completion_status bus_messages.role ledger_settings.*
    evidence.* evidence_checkpoints.*
    redactions.* redacted_places.* redacted_spans.* redacted_values.* redacted_ids.*
    retention_runs.*""",
    )
)


def counts(report: SecretReport) -> dict[tuple[str, str | None], tuple[int, int]]:
    return {(line.kind, line.session_label): (line.count, line.turns) for line in report.counts}


def test_they_are_counted_by_kind_and_session(ledger: Ledger) -> None:
    call = ToolCall.of("Bash", {"command": f"echo {TOKEN}"}, {"out": TOKEN})
    turn = ledger.record("main", f"use {TOKEN}", Message("assistant", "yes"), steps=[call])
    ledger.record("other", f"DB_PASSWORD={PASSWORD}", "done")
    ledger.create_session(Session("third", task_description=f"password: {PASSWORD}"))

    report = ledger.secrets.report()

    assert counts(report) == {
        ("GitHub token", "main"): (3, 1),
        ("password by name", "other"): (1, 1),
        ("password by name", "third"): (1, 0),
    }
    assert report.total == 5
    assert report.by_kind == {"GitHub token": 3, "password by name": 2}
    assert report.counts[0].latest_turn_id == turn.id
    assert TOKEN not in repr(report)
    assert PASSWORD not in repr(report)


def test_by_default_they_are_reported_and_texts_stay(ledger: Ledger) -> None:
    ledger.record("main", f"use {TOKEN}")

    assert ledger.secrets.handling == "report"
    assert ledger.for_people().thread("main").turns[0].messages[0].content == f"use {TOKEN}"


def test_where_it_is_set_so_people_are_shown_masks(ledger: Ledger, address: str) -> None:
    call = ToolCall.of("Bash", {"command": f"echo {TOKEN} ok"})
    ledger.record("main", f"please use {TOKEN} here", steps=[call])
    ledger.secrets.set_handling("mask")

    with Ledger.open(address, read_only=True) as other:
        [turn] = other.for_people().thread("main").turns
        [hit] = other.search("please").hits
        rows = other._core.query("SELECT content FROM messages")[1]

    hidden = TOKEN[:4] + "*" * (len(TOKEN) - 4)
    assert turn.messages[0].content == f"please use {hidden} here"
    assert turn.tool_calls[0].params_json == f'{{"command":"echo {hidden} ok"}}'
    assert TOKEN not in repr(hit)
    assert rows == [(f"please use {hidden} here",)]
    # What programs read is as it was written.
    assert ledger.thread("main").turns[0].messages[0].content == f"please use {TOKEN} here"


def test_what_is_set_can_be_changed_back_and_must_be_known(ledger: Ledger) -> None:
    ledger.record("main", f"use {TOKEN}")
    ledger.for_people()
    for handling, seen in (("mask", False), ("report", True)):
        ledger.secrets.set_handling(handling)  # type: ignore[arg-type]
        assert (TOKEN in repr(ledger.thread("main"))) is seen
    with pytest.raises(Refused, match="unknown handling of secrets 'hide'"):
        ledger.secrets.set_handling("hide")  # type: ignore[arg-type]


def test_no_column_of_text_is_forgotten() -> None:
    schema = queries.read("schema.sql")
    read = {(table.name, column) for table in TEXT_TABLES for column in table.columns}
    keys = {(table, column) for table, key in TABLES.items() for column in key.split(", ")}
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\)", schema, re.DOTALL):
        for column in re.findall(r"^    (\w+) TEXT\b(?!.*REFERENCES)", body, re.MULTILINE):
            is_id = (table, column) in keys or f"_{column}".endswith(("_id", "_hash", "_label"))
            is_known = {f"{table}.{column}", f"{table}.*"} & NO_TEXT
            is_derived = table in (
                "search_vectors",
                "usage_sums",
                "tool_sums",
                "schema_migrations",
                "search_waiting",
            )
            if (table, column) not in read:
                assert is_id or is_known or is_derived, f"{table}.{column}"
