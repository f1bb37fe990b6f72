"""Every column of the specified tables can be written through the ledger and read back."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from agents_ledger import (
    Alias,
    Compaction,
    Ledger,
    Message,
    Move,
    Session,
    Thread,
    ToolCall,
    Turn,
)
from tests.builders import a_call, a_full_turn, chain
from tests.raw import Raw

# The schema of the specification, with the column that its handoff adds.
SPECIFIED = {
    "turns": "id parent_turn_id turn_type status started_at completed_at model provider role"
    " toolset_name tools_available permissions_granted permissions_used input_tokens output_tokens"
    " cached_input_tokens cache_write_tokens reasoning_tokens total_tokens query_message_ids"
    " response_message_id has_children tool_call_count source_event_id workspace_path"
    " effective_config_json",
    "threads": "turn_id ancestry total_tokens depth persona_id system_prompt_hash thread_key",
    "sessions": "label thread_id persona_id is_subagent parent_session_label parent_turn_id"
    " spawn_tool_call_id task_description task_status routing_key origin origin_session_id"
    " created_at updated_at status",
    "messages": "id turn_id role content source sequence created_at thinking context_json"
    " metadata_json",
    "tool_calls": "id turn_id message_id tool_name tool_number params_json result_json error"
    " status spawned_session_label started_at completed_at sequence",
    "compactions": "turn_id summary summarized_through_turn_id first_kept_turn_id"
    " turns_summarized compaction_type model provider tokens_before tokens_after summary_tokens"
    " summarization_input_tokens summarization_output_tokens duration_ms trigger metadata_json",
    "session_history": "id session_label thread_id changed_at",
    "session_aliases": "alias session_label created_at reason",
    "message_files": "id message_id kind file_path line_start line_end",
    "message_lints": "id message_id file_path message lint_source start_line start_col end_line"
    " end_col severity",
    "message_codeblocks": "id message_id idx language content file_path line_start line_end",
}


def stored_and_read(raw: Raw, table: str, where: str, key: str, value: object) -> None:
    """Each column of a row is filled, and the ledger's value for it is what is stored."""
    row = raw.row(table, where, key)
    internal = {"request_hash", "has_details", "ancestry"}
    derived = {
        "turns": {"long_cache_write_tokens"},
        "sessions": {"source_title", "metadata_json", "source_has_more"},
        "messages": {"task_id", "timestamp"},
    }
    for column, stored in row.items():
        if column in derived.get(table, ()):
            continue
        assert stored is not None, f"{table}.{column} was not written"
        if column not in internal:
            read = getattr(value, column)
            assert (int(read) if isinstance(read, bool) else read) == stored, f"{table}.{column}"


@pytest.mark.parametrize("table", SPECIFIED)
def test_a_table_or_view_has_every_column_of_the_seed(raw: Raw, table: str) -> None:
    assert set(SPECIFIED[table].split()) <= set(raw.columns(table))


def test_every_column_of_a_turn_comes_back(ledger: Ledger, raw: Raw) -> None:
    first, second = chain(ledger, "main", 2)
    said = a_full_turn(
        status="failed",
        error="why it failed",
        compaction=Compaction("short", first, second),
    )

    recorded = ledger.record("main", **said)

    turn = ledger.get_turn(recorded.id)
    assert turn == recorded
    stored_and_read(raw, "turns", "id = ?", turn.id, turn)
    written = {
        "id": turn.id,
        "parent_turn_id": second,
        "turn_type": "compaction",
        "status": "failed",
        "started_at": 1_700_000_000_000,
        "completed_at": 1_700_000_001_000,
        "model": "claude-opus-5",
        "provider": "anthropic",
        "role": "manager",
        "toolset_name": "full",
        "tools_available": '["Read","Bash"]',
        "permissions_granted": '{"fs":"rw"}',
        "permissions_used": '{"fs":"r"}',
        "input_tokens": 10,
        "output_tokens": 20,
        "cached_input_tokens": 3,
        "cache_write_tokens": 4,
        "reasoning_tokens": 5,
        "total_tokens": 42,
        "query_message_ids": turn.query_message_ids,
        "response_message_id": turn.messages[-1].id,
        "has_children": False,
        "tool_call_count": 2,
        "source_event_id": "event-1",
        "workspace_path": "/home/me/project",
        "effective_config_json": turn.effective_config_json,
        "error": "why it failed",
        "projected": False,
    }
    of_imports = {"long_cache_write_tokens"}
    assert set(raw.columns("turns")) - {"request_hash"} - of_imports == set(written)
    assert {name: getattr(turn, name) for name in written} == written


def test_every_column_of_a_message_comes_back(ledger: Ledger, raw: Raw) -> None:
    said = Message(
        role="tool",
        content="content",
        source="trigger",
        thinking="thinking",
        context_json='{"context": 1}',
        metadata_json='{"metadata": 1}',
        tool_call_id="call",
        id="message-1",
        created_at=1_700_000_000_001,
    )

    turn = ledger.record("main", said)

    [message] = ledger.get_turn(turn.id).messages
    stored_and_read(raw, "messages", "id = ?", "message-1", message)
    filled = {"turn_id": turn.id, "sequence": 0}
    assert message == said.__class__(**{**as_dict(said), **filled})


def test_every_column_of_a_tool_call_comes_back(ledger: Ledger, raw: Raw) -> None:
    said = ToolCall(
        tool_name="Task",
        params_json='{"a": 1}',
        result_json='{"b": 2}',
        error="error",
        status="rejected",
        id="call-1",
        message_id="message-1",
        tool_number=38,
        source_status="denied",
        spawned_session_label="child",
        started_at=1_700_000_000_002,
        completed_at=1_700_000_000_003,
    )

    turn = ledger.record("main", "q", steps=[Message("assistant", id="message-1"), said])

    [call] = ledger.get_turn(turn.id).tool_calls
    stored_and_read(raw, "tool_calls", "id = ?", "call-1", call)
    filled = {"turn_id": turn.id, "sequence": 2}
    assert call == ToolCall(**{**as_dict(said), **filled})


def test_every_column_of_a_compaction_comes_back(ledger: Ledger, raw: Raw) -> None:
    first, second, _ = chain(ledger, "main", 3)
    said = Compaction(
        summary="short",
        summarized_through_turn_id=first,
        first_kept_turn_id=second,
        turns_summarized=1,
        compaction_type="sliding_window",
        model="haiku",
        provider="anthropic",
        tokens_before=100,
        tokens_after=10,
        summary_tokens=5,
        summarization_input_tokens=90,
        summarization_output_tokens=6,
        duration_ms=1234,
        trigger="context_limit",
        metadata_json='{"version": 2}',
    )

    turn = ledger.record("main", compaction=said)

    compaction = ledger.get_turn(turn.id).compaction
    stored_and_read(raw, "compactions", "turn_id = ?", turn.id, compaction)
    assert compaction == Compaction(**{**as_dict(said), "turn_id": turn.id})
    assert ledger.compactions("main") == (compaction,)


def test_every_column_of_a_session_comes_back(ledger: Ledger, raw: Raw) -> None:
    head = ledger.record("main", "q", "r", steps=[a_call("Task", id="c")])
    said = Session(
        label="child",
        thread_id=head.id,
        persona_id="atlas",
        agent_id="agent-7",
        created_as="import",
        task_description="look",
        task_status="running",
        routing_key="chat:1",
        origin="cursor",
        origin_session_id="composer-1",
    )
    ledger.create_session(said)
    with ledger.turn("main", "q") as turn:
        turn.tool_call("Task", id="spawning").spawn("child")
        turn.respond("r")

    session = ledger.archive("child")

    stored_and_read(raw, "sessions", "label = ?", "child", session)
    spawned = {
        "is_subagent": True,
        "parent_session_label": "main",
        "parent_turn_id": turn.id,
        "spawn_tool_call_id": "spawning",
        "status": "archived",
    }
    clock = {"created_at": session.created_at, "updated_at": session.updated_at}
    assert session == Session(**{**as_dict(said), **spawned, **clock})
    assert session.created_at > 0
    assert ledger.session("child") == session


def test_a_session_is_created_with_every_word_it_was_given(ledger: Ledger) -> None:
    said = Session("new", title="A title", starred=True, note="a note", status="archived")

    session = ledger.create_session(said)

    assert (session.title, session.starred, session.note) == ("A title", True, "a note")
    assert session.status == "archived"


def test_every_column_of_a_thread_comes_back(ledger: Ledger, raw: Raw) -> None:
    first, second = chain(ledger, "main", 2)
    said = a_full_turn(compaction=Compaction("short", first, second), thread_key="chat:1")

    turn = ledger.record("main", **said)

    thread = ledger.thread("main")
    stored_and_read(raw, "threads", "turn_id = ?", turn.id, thread)
    assert thread == Thread(
        turn_id=turn.id,
        depth=3,
        input_tokens=10,
        output_tokens=20,
        cached_input_tokens=3,
        cache_write_tokens=4,
        reasoning_tokens=5,
        total_tokens=42,
        compaction_count=1,
        compaction_turn_id=turn.id,
        model="claude-opus-5",
        provider="anthropic",
        persona_id="main",
        system_prompt_hash=hashlib.sha256(b"You are brief.").hexdigest(),
        thread_key="chat:1",
        turns=tuple(ledger.get_turn(turn_id) for turn_id in (first, second, turn.id)),
    )
    ancestry = raw.one("SELECT ancestry FROM threads WHERE turn_id = ?", (turn.id,))
    assert ancestry.replace(" ", "") == f'["{first}","{second}","{turn.id}"]'


def test_every_column_of_the_history_and_the_aliases_comes_back(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record("main", "q", "r")
    alias = ledger.alias("nick", "main", reason="identity_promotion")

    [move] = ledger.history("main")

    stored_and_read(raw, "session_history", "session_label = ?", "main", move)
    assert move == Move(move.id, "main", turn.id, move.changed_at, "record")
    stored_and_read(raw, "session_aliases", "alias = ?", "nick", alias)
    assert ledger.aliases() == (alias,)
    assert alias == Alias("nick", "main", alias.created_at, "identity_promotion")


def test_every_column_of_files_lints_and_codeblocks_comes_back(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record("main", **a_full_turn())

    message = ledger.get_turn(turn.id).messages[0]

    known = {"id", "message_id", "idx"}
    for table, values in (
        ("message_files", message.files),
        ("message_lints", message.lints),
        ("message_codeblocks", message.codeblocks),
    ):
        key = "idx" if table == "message_codeblocks" else "id"
        columns = [column for column in raw.columns(table) if column not in known]
        rows = raw.execute(
            f"SELECT {', '.join(columns)} FROM {table} WHERE message_id = ? ORDER BY {key}",
            (message.id,),
        )
        assert [dict(zip(columns, row, strict=True)) for row in rows] == [*map(as_dict, values)]
        assert None not in rows[0], table
    assert raw.execute(
        "SELECT idx FROM message_codeblocks WHERE message_id = ? ORDER BY idx", (message.id,)
    ) == [(0,), (1,)]


def as_dict(value: Any) -> dict[str, Any]:
    """The fields of a value."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def test_every_field_of_a_turn_is_a_column_or_a_part(raw: Raw) -> None:
    parts = {"messages", "tool_calls", "compaction", "depth"}

    assert set(Turn.__struct_fields__) - parts == set(raw.columns("turns")) - {"request_hash"}
