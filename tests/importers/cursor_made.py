"""Databases of Cursor for tests."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from agents_ledger import Ledger

START = "2026-01-28T16:00:{:02d}.000Z"


def state_db(
    path: Path,
    disk: Mapping[str, Any] | None = None,
    items: Mapping[str, Any] | None = None,
    *,
    wal: bool = False,
) -> Path:
    """Write rows into a state.vscdb; values that are not text, bytes or None become JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as made:
        if wal:
            made.execute("PRAGMA journal_mode = WAL")
        for table, rows in (("ItemTable", items or {}), ("cursorDiskKV", disk or {})):
            made.execute(
                f"CREATE TABLE IF NOT EXISTS {table}"
                " (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"
            )
            for key, value in rows.items():
                plain = value if isinstance(value, str | bytes | None) else json.dumps(value)
                made.execute(f"INSERT INTO {table} VALUES (?, ?)", (key, plain))
        made.commit()
    return path


def headers(path: Path, *heads: dict[str, Any]) -> Path:
    """Write rows of the table of chats, as it is since 2026."""
    with closing(sqlite3.connect(path)) as made:
        made.execute(
            "CREATE TABLE IF NOT EXISTS composerHeaders (composerId TEXT PRIMARY KEY,"
            " workspaceId TEXT, lastUpdatedAt INTEGER, value TEXT)"
        )
        for head in heads:
            place = head.get("workspaceIdentifier", {}).get("id")
            made.execute(
                "INSERT INTO composerHeaders VALUES (?, ?, ?, ?) ON CONFLICT (composerId)"
                " DO UPDATE SET lastUpdatedAt = lastUpdatedAt + 1, value = excluded.value",
                (head["composerId"], place, 1, json.dumps(head)),
            )
        made.commit()
    return path


def bubble(name: str, kind: int, text: str = "", second: int = 0, **fields: Any) -> dict[str, Any]:
    """A bubble of the newest shape."""
    made = {"_v": 3, "type": kind, "bubbleId": name, "text": text}
    return {**made, "createdAt": START.format(second), "relevantFiles": [], **fields}


def chat(composer: str, *bubbles: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The rows of a chat whose bubbles are rows of their own."""
    heads = [{"bubbleId": each["bubbleId"], "type": each["type"]} for each in bubbles]
    rows: dict[str, Any] = {
        f"composerData:{composer}": {
            "_v": 10,
            "composerId": composer,
            "createdAt": 1769616000000,
            "lastUpdatedAt": 1769616600000,
            "fullConversationHeadersOnly": heads,
            **fields,
        }
    }
    return rows | {f"bubbleId:{composer}:{each['bubbleId']}": each for each in bubbles}


def tool(call_id: str, name: str, number: int, **fields: Any) -> dict[str, Any]:
    """What a bubble holds of a tool call."""
    return {"tool": number, "name": name, "toolCallId": call_id, "status": "completed", **fields}


def shown(ledger: Ledger, view: str, **wanted: Any) -> dict[str, Any]:
    """The row of a view with these values."""
    names, rows = ledger.query(f"SELECT * FROM {view}")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    matching = [row for row in found if wanted.items() <= row.items()]
    assert len(matching) == 1, found
    return matching[0]
