"""Qwen Code: how the values of a log are mapped.

Evidence: chatRecordingService.ts and agent-transcript.ts of QwenLM/qwen-code (2026-08).
"""

from __future__ import annotations

from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields
from agents_ledger.importers.transcript.message_tree import MessageKind
from agents_ledger.model.turns import CallStatus, MessageSource

NAME = "qwen-code"

# By type, or by type and subtype. Other records only pass the chain of parents on.
KINDS: dict[str, MessageKind] = {
    "user": "prompt",
    "user/cron": "prompt",
    "user/notification": "prompt",
    "user/mid_turn_user_message": "notice",  # typed while the agent works: no turn of its own
    "assistant": "reply",
    "tool_result": "notice",
    "system/chat_compression": "compaction",
}
PROMPT_SOURCES: dict[str, MessageSource] = {"cron": "cron", "notification": "event"}
STATUSES: dict[str, CallStatus] = {"error": "failed", "cancelled": "cancelled"}
# The Gemini API's names. promptTokenCount includes the cached tokens.
TOKENS: TokenFields = {
    "input_tokens": "promptTokenCount",
    "output_tokens": "candidatesTokenCount",
    "cached_input_tokens": "cachedContentTokenCount",
    "reasoning_tokens": "thoughtsTokenCount",
    "total_tokens": "totalTokenCount",
}
FILE_TOOLS = FileTools(
    {"read_file": "read", "edit": "written", "write_file": "written"},
    paths=("file_path", "absolute_path", "path"),
)
