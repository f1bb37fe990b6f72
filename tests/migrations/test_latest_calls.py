"""Migration 28: the index behind the latest calls of a tool has their time."""

from __future__ import annotations

from collections.abc import Callable

from agents_ledger import Ledger, ToolCall
from agents_ledger.store import migrations
from tests.raw import Raw

DAY_MS = 86_400_000


def schema_27(address: str) -> None:
    """Make a ledger what the version before had made of it."""
    with Raw(address) as raw:
        raw.execute("DROP INDEX idx_tool_calls_tool")
        raw.execute("CREATE INDEX idx_tool_calls_tool ON tool_calls (tool_name, turn_id)")
        raw.execute("DELETE FROM schema_migrations WHERE number >= 28")


def test_calls_of_a_ledger_of_the_version_before_are_listed_by_time(
    new_address: Callable[[], str],
) -> None:
    address = new_address()
    with Ledger.open(address) as ledger:
        for label, day in (("b", 2), ("a", 3), ("c", 1)):
            call = ToolCall("Weigh", f'{{"day": {day}}}', "{}", started_at=day * DAY_MS)
            ledger.record(label, f"Weigh on day {day}", "Done.", steps=[call])
    schema_27(address)

    with Ledger.open(address) as ledger:
        found = ledger.pages.tool_examples("Weigh", limit=2)
        rest = ledger.pages.tool_examples("Weigh", limit=2, before=found.next)
        assert [call.started_at // DAY_MS for call in (*found.calls, *rest.calls)] == [3, 2, 1]
        assert rest.next is None
        assert ledger.audit() == ()
    with Raw(address) as raw:
        (newest,) = raw.execute("SELECT max(number) FROM schema_migrations")[0]
    assert newest == migrations.newest() >= 28
