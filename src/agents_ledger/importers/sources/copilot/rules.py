"""Copilot CLI: the rules learned from its logs, each with its evidence.

Versions are those of logs that were read: 0.0.420 to 1.0.82, and documents of October 2025. "SDK"
is the event schema of the public SDK.
"""

from __future__ import annotations

import re

from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields

NAME = "copilot"

# -- events -----------------------------------------------------------------------------------

PROMPT = "user.message"
# A prompt that the program adds to the turn that is being worked on (our own name).
ADDED_PROMPT = "user.message:added"
# session.compaction_complete, where it becomes a turn (our own name).
COMPACTION = "compaction"
# assistant.reasoning since 1.0.77, the others since 0.0.420.
ANSWERS = {"assistant.message", "assistant.reasoning", "tool.execution_start"}
# What belongs to a turn without opening one. permission.completed since 1.0.64.
CARRIED = ANSWERS | {
    ADDED_PROMPT,
    "abort",
    "permission.completed",
    "session.error",
    "session.truncation",
    "subagent.started",
    "system.message",
    "system.notification",
    "tool.execution_complete",
}
RUNS = ("session.start", "session.resume")  # the program was started
USED = CARRIED | {
    *RUNS,
    PROMPT,
    "session.auto_mode_resolved",
    "session.compaction_complete",
    "session.model_change",
    "session.shutdown",
}
# Fields of messages that are kept as metadata.
METADATA = ("interactionId", "turnId", "messageId", "apiCallId", "delivery", "chunkIndex")
COMPACTION_METADATA = ("checkpointNumber", "checkpointPath", "messagesRemoved", "tokensRemoved")

# -- session metadata: our name, the source's field -------------------------------------------

CONTEXT_FIELDS = {
    "cwd": "cwd",
    "git_branch": "branch",
    "git_root": "gitRoot",
    "git_commit": "headCommit",
    "repository": "repository",
}
WORKSPACE_FIELDS = {"cwd": "cwd", "git_branch": "branch", "git_root": "git_root"}

# -- tokens -----------------------------------------------------------------------------------

# Of the totals in session.shutdown (0.0.420 to 1.0.79). The input includes the cache.
TOKENS: TokenFields = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cached_input_tokens": "cacheReadTokens",
    "cache_write_tokens": "cacheWriteTokens",
    "reasoning_tokens": "reasoningTokens",
}

# -- how a call or a turn ended ---------------------------------------------------------------

# SDK: denied-by-rules, denied-interactively-by-user and others; error code "rejected".
DENIED = ("denied", "rejected")
# session.error of this type reports a server that did not start, and ends no turn. "query" and
# "authentication" were seen to end one.
HARMLESS_ERROR = "mcp"


def ends_turn(kind: str, error_type: object) -> bool:
    return kind == "abort" or (kind == "session.error" and error_type != HARMLESS_ERROR)


# -- files ------------------------------------------------------------------------------------

# create, edit and view were seen in 1.0.64; str_replace_editor has them as its commands.
FILE_TOOLS = FileTools(
    {"create": "written", "edit": "written", "str_replace_editor": "written", "view": "read"},
    paths=("path",),
)

# -- prompts ----------------------------------------------------------------------------------

# Versions of late 2025 add the time to what was typed.
_TIME = r"<current_datetime>[^<]{0,64}</current_datetime>\s*"
ADDED_TIME = re.compile(rf"\A\s*{_TIME}|{_TIME}\Z")
# Without a source, a message of nothing but these is the program's: seen after a prompt of one
# attachment and no words.
NOTICE = re.compile(r"\s*<(system_notification|system_reminder)>.*?</\1>\s*", re.DOTALL)
# A source of this prefix is an agent; any other but "user" is the program (since 1.0.70:
# instruction-discovery, skill-<name>).
AGENT_SOURCE = "agent"

# -- documents of history-session-state (2025) ------------------------------------------------

CANCELLED = "Operation cancelled"
NOTICES = ("info", "warning")
# Its field, and the field of session.start.
DOCUMENT_FIELDS = {
    "sessionId": "sessionId",
    "selectedModel": "selectedModel",
    "model": "selectedModel",
}
