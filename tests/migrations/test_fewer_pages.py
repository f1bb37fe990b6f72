"""Migration 30: indexes that every turn paid for are gone, and turns being written are kept."""

from __future__ import annotations

from collections.abc import Callable

from agents_ledger import Ledger, ToolCall
from agents_ledger.store import migrations
from tests.migrations.earlier import downgrade
from tests.raw import Raw

DAY_MS = 86_400_000
DROPPED = {"idx_tool_calls_tool", "idx_turns_leaf", "idx_places_persona", "idx_live_turns_writer"}
BEFORE = (
    "CREATE INDEX idx_tool_calls_tool ON tool_calls (tool_name, started_at, turn_id)",
    "CREATE INDEX idx_turns_leaf ON turns (started_at) WHERE has_children = 0",
    "CREATE INDEX idx_places_persona ON places (persona_id)",
    "CREATE INDEX idx_live_turns_writer ON live_turns (writer_id)",
    "DELETE FROM schema_migrations WHERE number >= 30",
)


def indexes(raw: Raw) -> set[str]:
    if raw.engine == "sqlite":
        rows = raw.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
    else:
        rows = raw.execute("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()")
    return {row[0] for row in rows}


def test_a_ledger_of_the_version_before_keeps_what_is_being_written(
    new_address: Callable[[], str],
) -> None:
    address = new_address()
    with Ledger.open(address) as ledger:
        for label, day in (("b", 2), ("a", 3), ("c", 1)):
            at = day * DAY_MS
            call = ToolCall("Weigh", f'{{"day": {day}}}', "{}", started_at=at)
            ledger.record(label, "Weigh.", "Done.", steps=[call], started_at=at, completed_at=at)
        turn = ledger.turn("a", "Weigh again.")
        turn.__enter__()
        turn.stream("It we")
        downgrade(address, to=30)
        with Raw(address) as raw:
            for statement in BEFORE:
                raw.execute(statement)

        with Ledger.open(address) as later:
            assert later.get_turn(turn.id).status == "streaming"
            assert later.partial_text(turn.id) == "It we"
            found = later.pages.tool_examples("Weigh", limit=2)
            rest = later.pages.tool_examples("Weigh", limit=2, before=found.next)
            assert [call.started_at // DAY_MS for call in (*found.calls, *rest.calls)] == [3, 2, 1]
            assert rest.next is None
            assert later.recover() == ()
            assert later.audit() == ()
    with Raw(address) as raw:
        assert not indexes(raw) & DROPPED
        (newest,) = raw.execute("SELECT max(number) FROM schema_migrations")[0]
    assert newest == migrations.newest() >= 30
