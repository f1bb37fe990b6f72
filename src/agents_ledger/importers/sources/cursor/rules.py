"""Cursor: how the values of its records are mapped, and what the program writes by itself.

Cursor publishes no format. Evidence: real state.vscdb files of 2024-11, 2025-03 and 2025-10, real
transcripts of 2026, public exports and parsers.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import CallStatus, MessageRole, Severity

NAME = "cursor"

# -- where chats are recorded -----------------------------------------------------------------

# The chat panel of 2024, in ItemTable of a workspace: tabs with their bubbles.
TABS = "workbench.panel.aichat.view.aichat.chatdata"
# Lists of chats in ItemTable: whole chats in late 2024, heads only since 2025; in 2026 the second.
LISTS = ("composer.composerData", "composer.composerHeaders")
LIST_FIELDS = ("allComposers", "tabs")
# Since 2026 a table with a row per chat; it prevails over the lists.
HEADERS = "composerHeaders"
# Rows `<kind>:<chat>[:<name>]` in cursorDiskKV, a row per bubble since 2025.
CHAT_KINDS = ("bubbleId", "checkpointId", "composerData", "messageRequestContext")
# A chat that a Task call started has the id of the call behind this prefix.
TASK = "task-"
# The id of the box in which no chat was started yet.
PLACEHOLDER = "empty-state-draft"
# Next to store.db since 2026: where the agent worked.
META = "meta.json"

# -- bubbles ----------------------------------------------------------------------------------

USER_TYPES = (1, "user")  # numbers since late 2024
STATUSES: dict[str, CallStatus] = {
    "aborted": "cancelled",
    "canceled": "cancelled",
    "cancelled": "cancelled",
    "completed": "completed",
    "error": "failed",
    "errored": "failed",
    "failed": "failed",
    "loading": "running",
    "pending": "pending",
    "rejected": "rejected",
    "running": "running",
    "success": "completed",
}
TASK_STATUSES: dict[CallStatus, TaskStatus] = {
    "cancelled": "cancelled",
    "completed": "completed",
    "failed": "failed",
    "pending": "pending",
    "rejected": "cancelled",
    "running": "running",
}
FILE_TOOLS = FileTools(
    {
        "apply_patch": "written",
        "delete_file": "written",
        "edit_file": "written",
        "edit_file_v2": "written",
        "read_file": "read",
        "read_file_v2": "read",
        "search_replace": "written",
        "write": "written",
    },
    paths=("path", "relativeWorkspacePath", "targetFile", "target_file", "file_path", "filePath"),
)
TASK_TOOLS = ("task", "task_v2")
# `name` may be missing in toolFormerData; then the number shows the tool.
TASK_NUMBER = 48
# Both are 0 in most bubbles.
TOKENS: TokenFields = {"input_tokens": "inputTokens", "output_tokens": "outputTokens"}

# Times of the client in bubbles before late 2025, which have no createdAt. clientStartTime may
# count from the start of the program.
CLIENT_TIMES = ("clientRpcSendTime", "clientSettleTime", "clientEndTime", "clientStartTime")
# Smaller values are no Unix times: clientStartTime may be a small float.
CLIENT_TIME_MIN = 1e12  # milliseconds, 2001

# The bubbles of a chat in its order.
BUBBLE_LIST = "fullConversationHeadersOnly"
CHAT_FIELDS = (  # to the metadata of the session, in snake_case
    "branches",
    "contextTokenLimit",
    "contextTokensUsed",
    "contextUsagePercent",
    "createdOnBranch",
    "filesChangedCount",
    "forceMode",
    "forkedFrom",
    "gitWorktree",
    "isAgentic",
    "isArchived",
    "isBestOfNSubcomposer",
    "newlyCreatedFiles",
    "status",
    "subtitle",
    "todos",
    "totalLinesAdded",
    "totalLinesRemoved",
    "trackedGitRepos",
    "unifiedMode",
    "usageData",
)
READ_FIELDS = {
    *CHAT_FIELDS,
    "composerId",
    "context",
    "createdAt",
    "lastUpdatedAt",
    "latestConversationSummary",
    "modelConfig",
    "name",
    "subComposerIds",
    "subagentInfo",
    "workspaceIdentifier",
}
# The others are shown as they are; so are those of these that are read in part.
MAPPED_FIELDS = {BUBBLE_LIST, "conversation", "conversationMap", *READ_FIELDS} - {
    "context",
    "modelConfig",
    "subagentInfo",
}

# -- lints ------------------------------------------------------------------------------------

# Numbers are those of the Language Server Protocol; there are only three words for them here.
SEVERITIES: dict[str, Severity] = {
    "1": "error",
    "2": "warning",
    "3": "info",
    "4": "info",
    "error": "error",
    "hint": "info",
    "info": "info",
    "information": "info",
    "warning": "warning",
}

# -- transcripts and stores of the agent ------------------------------------------------------

ROLES: dict[str, MessageRole] = {"assistant": "assistant", "tool": "tool", "user": "user"}
CALL_BLOCKS = {"tool-call", "tool_call", "tool_use"}  # store.db has "-", transcripts "_"
RESULT_BLOCKS = {"tool-result", "tool_result"}
THINKING_BLOCKS = {"reasoning", "thinking"}
MAPPED_BLOCKS = CALL_BLOCKS | RESULT_BLOCKS | THINKING_BLOCKS | {"text", "redacted-reasoning"}

# The oldest transcripts are text: seen in seven real files. A mark holds until an empty line.
SPEAKER = re.compile(rb"(user|assistant|A):(?=\s|$)")
MARK = re.compile(r"\[(Thinking|Tool call|Tool result)\]\s*(.*)", re.IGNORECASE)
MARKED_BLOCKS = {"thinking": "thinking", "tool call": "tool_use", "tool result": "tool_result"}
ARGUMENT = re.compile(r"\s*([A-Za-z_]\w*): ?(.*)")

QUERY, QUERY_END = "<user_query>", "</user_query>"
# Since 2026 a prompt has its time, first or before the query.
TIMESTAMP_TAG = r"<timestamp>([^<>]{1,80})</timestamp>\s*"
LEADING_TIMESTAMP = re.compile(rf"\A\s*{TIMESTAMP_TAG}")
QUERY_TIMESTAMP = re.compile(rf"{TIMESTAMP_TAG}(?=<user_query>)")
# "Thursday, Aug 6, 2026, 4:33 PM (UTC+5:30)", in English on any machine.
TIMESTAMP = re.compile(
    r"(?:[A-Za-z]+,\s+)?([A-Za-z]{3})[a-z]*\s+(\d{1,2}),\s+(\d{4}),\s+(\d{1,2}):(\d\d)(?::(\d\d))?"
    r"(?:\s*([AP])M)?(?:\s*\((?:UTC|GMT)(?:([-+\u2212])(\d{1,2})(?::(\d\d))?)?\))?"
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
HALF_DAY = 12

# The program's own prompt when a background task ended (2026, five real files).
TASK_ENDED = "Briefly inform the user about the task result"
# Texts that consist of these tags are what the program tells the model.
CONTEXT = re.compile(
    r"<(agent_(?:skills|transcripts)|available_subagent_(?:models|types)|dynamic_tools|git_status|"
    r"mcp_file_system|open_and_recently_viewed_files|rules|system_(?:notification|reminder)|user_info)>"
)


class CursorPrompt(NamedTuple):
    words: str
    at: int  # 0: unknown
    is_event: bool  # the program wrote it


def prompt_in(text: str) -> CursorPrompt:
    """The words and the time of a prompt. A tag with another content stays part of the words."""
    begin = text.find(QUERY)
    end = text.find(QUERY_END, begin) if begin >= 0 else -1
    query = text[begin + len(QUERY) : end].strip() if end >= 0 else None
    tag = LEADING_TIMESTAMP.match(text)
    if tag is None and query is not None:
        # Attached files and links may come before the query, and its time with them.
        tag = QUERY_TIMESTAMP.search(text, 0, end)
    at = timestamp_ms(tag[1]) if tag is not None else 0
    rest = text[tag.end() :] if tag is not None and at and not tag.start() else text
    words = rest if query is None else query
    is_event = words.startswith(TASK_ENDED) or (query is None and _is_context(rest))
    return CursorPrompt(words, at, is_event)


def timestamp_ms(text: str) -> int:
    """Unix milliseconds of the time in a tag, in UTC unless it has an offset; 0 if it is none."""
    match = TIMESTAMP.fullmatch(text.strip())
    month = match[1].lower() if match is not None else ""
    if match is None or month not in MONTHS:
        return 0
    day, year, hour, minute, second = (int(match[n] or 0) for n in range(2, 7))
    if match[7]:
        hour = hour % HALF_DAY + (HALF_DAY if match[7] == "P" else 0) if hour <= HALF_DAY else -1
    offset = timedelta(hours=int(match[9] or 0), minutes=int(match[10] or 0))
    try:
        zone = timezone(offset if match[8] == "+" else -offset)
        at = datetime(year, MONTHS.index(month) + 1, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return 0
    return milliseconds(at.isoformat())


def _is_context(text: str) -> bool:
    rest = text.strip()
    closing = ""
    while tag := CONTEXT.match(rest):
        _, closing, rest = rest.partition(f"</{tag[1]}>")
        rest = rest.lstrip()
    return bool(closing) and not rest
