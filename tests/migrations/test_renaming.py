"""The guards of an earlier version refused to rename a session; they are made anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agents_ledger import Ledger, Refused
from tests.migrations.earlier import downgrade
from tests.raw import Raw

EARLIER = {
    "sqlite": (
        "DROP TRIGGER session_history_label",
        "CREATE TRIGGER session_history_label BEFORE UPDATE OF session_label ON session_history"
        " BEGIN SELECT RAISE(ABORT, 'guard: session_history only grows'); END",
    ),
    "postgresql": (
        "DROP TRIGGER session_history_label ON session_history",
        "CREATE TRIGGER session_history_label BEFORE UPDATE OF session_label ON session_history"
        " FOR EACH ROW EXECUTE FUNCTION guard_refuse('session_history only grows')",
    ),
}


@pytest.mark.finding("users-32")
def test_a_session_of_a_ledger_of_the_version_before_is_renamed(
    new_address: Callable[[], str],
) -> None:
    address = new_address()
    with Ledger.open(address) as ledger:
        turn = ledger.record("old", "q", "r")
    with Raw(address) as raw:
        for statement in EARLIER[raw.engine]:
            raw.execute(statement)
    with Ledger.open(address) as ledger, pytest.raises(Refused, match="only grows"):
        ledger.rename("old", "new")
    downgrade(address, to=21)

    with Ledger.open(address) as ledger:
        assert ledger.rename("old", "new").thread_id == turn.id
        assert ledger.audit() == ()
