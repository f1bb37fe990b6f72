"""AIX: its tables, and the values it stores in them."""

from __future__ import annotations

from agents_ledger.importers.port.source import Table
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import FileKind, MessageRole

NAME = "aix"
VERSION = 4
STORE = "aix.db"  # the source of its sessions: import requests use "aix" as theirs
DETAIL_TABLES = ("message_metadata", "message_lints", "message_files", "message_codeblocks")
TABLES = (
    Table("sessions", ("id",)),
    Table("messages", ("id",)),
    Table("tool_calls", ("id", "session_id")),
    Table("turns", ("id",)),
    Table("files_referenced", ("session_id", "file_path")),
    Table("message_metadata", ("message_id",)),
    Table("message_capabilities", ("message_id", "phase", "capability")),
    Table("message_lints", ("message_id", "file_path", "message", "start_line", "start_col")),
    Table("message_files", ("message_id", "kind", "file_path", "line_number")),
    Table("message_codeblocks", ("message_id", "idx")),
)
# The column that names the session or the message of a row.
OWNER_COLUMNS = {table.name: "message_id" for table in TABLES if table.key[0] == "message_id"} | {
    "sessions": "id",
    **dict.fromkeys(("messages", "tool_calls", "turns", "files_referenced"), "session_id"),
}
ROLES: dict[str, MessageRole] = {"assistant": "assistant", "tool": "tool", "user": "user"}
FILE_KINDS: dict[str, FileKind] = {"context_file_selection": "attached"}
TASK_STATUSES: dict[str, TaskStatus] = {
    "cancelled": "cancelled",
    "completed": "completed",
    "error": "failed",
    "failed": "failed",
    "pending": "pending",
    "running": "running",
}
SESSION_METADATA = (
    "context_token_limit",
    "context_tokens_used",
    "force_mode",
    "model",
    "project",
    "summary",
    "workspace_path",
)
