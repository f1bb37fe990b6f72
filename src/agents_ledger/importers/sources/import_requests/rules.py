"""Import requests: the values of their fields, and ours for them."""

from __future__ import annotations

from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import CallStatus

NAME = "request"
VERSION = 2
ROOT = "__root__"  # the turn of an item that has messages, but no turns
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
# Lists of an item that make no rows, and their names in reports.
UNMAPPED = {"system_context_profiles": "systemContextProfiles", "artifacts": "artifacts"}
