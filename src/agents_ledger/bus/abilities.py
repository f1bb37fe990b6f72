"""The table of the ledger's abilities, for the bus, MCP, HTTP and their reference."""

from __future__ import annotations

from agents_ledger.bus import report_abilities, session_abilities, task_abilities, turn_abilities
from agents_ledger.bus.ability import Ability

ABILITIES: tuple[Ability, ...] = (
    *task_abilities.ABILITIES,
    *session_abilities.ABILITIES,
    *turn_abilities.ABILITIES,
    *report_abilities.ABILITIES,
)
