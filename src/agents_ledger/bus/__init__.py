"""The Agent Bus: abilities by name, with JSON input and output."""

from agents_ledger.bus.ability import Ability
from agents_ledger.bus.bus import AgentBus, BusError, CallRecord, ErrorCode, InvokeResult
from agents_ledger.bus.live_turns import LiveLimits, LiveTurns

__all__ = [
    "Ability",
    "AgentBus",
    "BusError",
    "CallRecord",
    "ErrorCode",
    "InvokeResult",
    "LiveLimits",
    "LiveTurns",
]
