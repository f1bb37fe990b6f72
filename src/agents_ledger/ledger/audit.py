"""Every rule of the ledger, asked of all it holds."""

from __future__ import annotations

from agents_ledger.model.sessions import Finding
from agents_ledger.store.database import Engine, Transaction


def audit(tx: Transaction, engine: Engine) -> tuple[Finding, ...]:
    return ()
