"""Claude.ai: how the values of an export are mapped.

Evidence: descriptions and public parsers (2025-2026); no real export was available.
"""

from __future__ import annotations

from agents_ledger.importers.transcript.message_tree import MessageKind

KINDS: dict[str, MessageKind] = {"human": "prompt", "assistant": "reply"}  # by sender
