"""Gives leaves their positions in the log. On SQLite they have them from the beginning."""

from __future__ import annotations

from agents_ledger.store.database import Transaction

LEAVES_AT_ONCE = 5000


def sequence(tx: Transaction) -> bool:
    """Sequence what waits, in the order it was written; whether more may wait."""
    tx.run("lock_evidence")
    return tx.change("sequence_evidence", limit=LEAVES_AT_ONCE) == LEAVES_AT_ONCE
