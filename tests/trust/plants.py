"""Bugs to plant in a harness's own process, to see that it finds them."""

from __future__ import annotations

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.sessions.heads import Pointer
from agents_ledger.store import queries
from agents_ledger.store.concurrency import interrupts
from agents_ledger.store.concurrency.locks import WriteQueue
from agents_ledger.store.database import Transaction

NO_CHECK = "head moved without compare-and-set"
NO_QUEUE = "no queue of writers"
NO_HOLD = "signals strike at any moment"
CHECK = " AND COALESCE(thread_id, '') = COALESCE(CAST(:from_turn AS TEXT), '')"

seen_heads: dict[str, str | None] = {}
"""With NO_CHECK: the heads a writer read before its transaction, and believes in."""


def plant(bug: str) -> None:
    """Plant a bug by its name, before any ledger is opened; none, if it has none."""
    if bug == NO_CHECK:
        _move_unchecked()
        _find_seen_heads()
    elif bug == NO_QUEUE:
        WriteQueue.__enter__ = WriteQueue.__exit__ = lambda *_: None  # type: ignore[method-assign]
    elif bug == NO_HOLD:
        interrupts._SIGNALS = ()
    elif bug:
        raise ValueError(bug)


def _move_unchecked() -> None:
    _, statements = queries._statements()
    checked = statements["move_head"]
    statements["move_head"] = checked.replace(CHECK, "")
    assert statements["move_head"] != checked, "the statement that moves a head has changed"


def _find_seen_heads() -> None:
    find = heads.find

    def find_as_seen(tx: Transaction, key: str, *, exact: bool = False) -> Pointer | None:
        found = find(tx, key, exact=exact)
        if found is not None and key in seen_heads:
            found = found._replace(thread_id=seen_heads[key])
        return found

    heads.find = find_as_seen
