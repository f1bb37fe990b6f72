"""The one table of abilities: the bus, MCP, HTTP and the reference are made from it."""

from __future__ import annotations

from agents_ledger.bus.abilities import live, reports, sessions, tasks, turns
from agents_ledger.bus.ability import Ability

# Their functions take the ledger first, those of live turns the live turns of the process.
LEDGER_ABILITIES: tuple[Ability, ...] = (
    *tasks.ABILITIES,
    *sessions.ABILITIES,
    *turns.ABILITIES,
    *reports.ABILITIES,
)
LIVE_ABILITIES = live.ABILITIES
ABILITIES = (*LEDGER_ABILITIES, *LIVE_ABILITIES)
