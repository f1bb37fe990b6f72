"""The one table of abilities: the bus, MCP, HTTP and the reference are made from it."""

from __future__ import annotations

from agents_ledger.bus.abilities import reports, sessions, tasks, turns
from agents_ledger.bus.ability import Ability

ABILITIES: tuple[Ability, ...] = (
    *tasks.ABILITIES,
    *sessions.ABILITIES,
    *turns.ABILITIES,
    *reports.ABILITIES,
)
