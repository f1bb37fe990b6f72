"""The Agent Bus: what agents may do, each ability known by its name, JSON in and JSON out."""

from agents_ledger.bus.ability import Ability
from agents_ledger.bus.bus import AgentBus, BusError, CallRecord, ErrorCode, InvokeResult

__all__ = ["Ability", "AgentBus", "BusError", "CallRecord", "ErrorCode", "InvokeResult"]
