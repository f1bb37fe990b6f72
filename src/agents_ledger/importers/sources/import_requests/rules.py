"""Import requests: the values of their fields, and ours for them."""

from __future__ import annotations

from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import CallStatus, MessageRole

NAME = "request"
VERSION = 1
ROOT = "__root__"  # the turn of an item that has messages, but no turns
ROLES: dict[str, MessageRole] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
}
STATUSES: dict[str, CallStatus] = {
    "pending": "pending",
    "running": "running",
    "in_progress": "running",
    "completed": "completed",
    "success": "completed",
    "done": "completed",
    "failed": "failed",
    "error": "failed",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "aborted": "cancelled",
    "rejected": "rejected",
    "denied": "rejected",
}
TASK_STATUSES: dict[str, TaskStatus] = {
    "pending": "pending",
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
UNMAPPED = ("systemContextProfiles", "artifacts")  # lists of an item that make no rows
