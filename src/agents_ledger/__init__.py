"""Agents Ledger: the permanent record of AI agent conversations."""

from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.turns import Message, ToolCall, Turn, Usage

__all__ = ["Ledger", "Message", "ToolCall", "Turn", "Usage"]
