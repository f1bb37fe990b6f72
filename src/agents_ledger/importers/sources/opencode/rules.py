"""opencode: the rules learned from its records and its source, each with its evidence.

Its formats: files of JSON (until 2026-01; 1.0.107 was read), a database (1.17.3 was read), and
since version 2 the second format in the same database. "Source" is branch v2 of August 2026.
"""

from __future__ import annotations

import re

from agents_ledger.importers.port.source import Table
from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import CallStatus, MessageRole

NAME = "opencode"

# -- where records are ------------------------------------------------------------------------

PROJECTS = Table("project", ("id",))
# The tables of the first and of the second format. What the second says prevails.
SESSION_TABLES = (Table("session", ("id",)), Table("session_v2", ("id",)))
# Not account, control_account, credential and session_share: they hold secrets. Not event: it
# repeats the other rows (1.17.3).
TABLES = (
    PROJECTS,
    SESSION_TABLES[0],
    Table("message", ("id",)),
    Table("part", ("id",)),
    Table("todo", ()),
    SESSION_TABLES[1],
    Table("session_message", ("id",)),
    Table("session_inbox", ("id",)),
    Table("session_pending", ("id",)),
    Table("session_input", ()),
    Table("session_context_epoch", ()),
    Table("instruction_entry", ("session_id", "key")),
    Table("instruction_state", ("session_id",)),
)
SESSIONS = tuple(table.name for table in SESSION_TABLES)
DERIVED = (*SESSIONS, "message", "part", "session_message")
FOLDERS = {"info", "message", "part", "project", "session", "session_diff", "todo"}

# -- ids --------------------------------------------------------------------------------------

# Exports whose ids a tool made unreadable have "redacted" or "xxx" in place of the id.
READABLE_SESSION = re.compile(r"ses_(?!redacted|x+$)\w+", re.IGNORECASE)
READABLE_RECORD = re.compile(r"(?:msg|prt)_(?!redacted|x+$)", re.IGNORECASE)
# Ids begin with their time: that of text added to a prompt begins as the prompt's (v1-migration).
TIME_CHARS = 16

# -- sessions ---------------------------------------------------------------------------------

# Shown before a session has a title (1.0.107, 1.17.3).
DEFAULT_TITLE = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z(?: \(fork #\d+\))?")
SESSION_METADATA = (
    "agent",
    "cost",
    "fork",
    "model",
    "projectID",
    "revert",
    "slug",
    "summary",
    "version",
)
SUBAGENT_TOOLS = {"task", "subagent"}  # task in the first format, subagent in the second
TASK_STATUSES: dict[str, TaskStatus] = {
    "completed": "completed",
    "error": "failed",
    "pending": "pending",
    "running": "running",
    "success": "completed",
}

# -- messages ---------------------------------------------------------------------------------

ASKS, ANSWERS, SUMMARY = 1, 2, 4
# Types of messages of the second format (source: schema/src/session-message.ts). Other types, such
# as a switch of the model, are not part of a conversation.
TYPES = {
    "user": ASKS,
    "synthetic": ASKS,
    "skill": ASKS,
    "shell": ASKS | ANSWERS,
    "assistant": ANSWERS,
    "system": 0,
    "compaction": ANSWERS | SUMMARY,
}
ROLES: dict[str, MessageRole] = {"user": "user", "system": "system"}
IN_COLUMNS = {"id", "messageID", "modelID", "providerID", "role", "sessionID", "time", "tokens"}
IN_CONTENT = {"reasoning", "step-finish", "step-start", "text", "tool"}  # types of parts
# Fields of the second format that become parts of the first.
BECOME_PARTS = {"command", "content", "files", "output", "skills", "summary", "text", "type"}

# Steps repeat the tokens of their message (1.17.3).
TOKENS: TokenFields = {
    "input_tokens": "input",
    "output_tokens": "output",
    "reasoning_tokens": "reasoning",
    "cached_input_tokens": "cache.read",
    "cache_write_tokens": "cache.write",
}
# pending, running, completed and error are of calls, exited, killed and timeout of what a user ran
# (source: shell); streaming and success of calls of the second format.
STATUSES: dict[str, CallStatus] = {
    "completed": "completed",
    "error": "failed",
    "exited": "completed",
    "killed": "failed",
    "pending": "pending",
    "running": "running",
    "streaming": "running",
    "success": "completed",
    "timeout": "failed",
}
FILE_TOOLS = FileTools(
    {
        "edit": "written",
        "multiedit": "written",
        "patch": "written",
        "read": "read",
        "write": "written",
    },
    paths=("filePath", "path"),
)
