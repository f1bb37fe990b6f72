"""Opens a ledger for a hook, which reads a few rows while an agent waits."""

from __future__ import annotations

from agents_ledger.store.sqlite.hook_reader import HookReader

__all__ = ["HookReader"]
