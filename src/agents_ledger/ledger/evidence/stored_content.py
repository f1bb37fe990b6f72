"""Reads what evidence covers, as it is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from agents_ledger.ledger.evidence import canonical
from agents_ledger.ledger.evidence.canonical import (
    CALL,
    CODEBLOCK,
    COMPACTION,
    FILE,
    LINT,
    MESSAGE,
    TURN,
    Columns,
    MessageDetails,
    Place,
    TurnContent,
)
from agents_ledger.ledger.evidence.openings import recording
from agents_ledger.store.database import Row, Transaction

_FIRST = itemgetter(0)


class StoredTurn(NamedTuple):
    content: TurnContent
    place: Place  # without a move
    is_projected: bool
    is_sealed: bool


class StoredLeaf(NamedTuple):
    position: int
    kind: str
    subject: str
    move_id: int | None
    opening: bytes | None
    hash: bytes
    payload: str | None


class StoredMove(NamedTuple):
    """A line of session_history, in stored form."""

    id: int
    label: str
    thread_id: str | None
    changed_at: int
    reason: str
    is_projected: bool


def read_turn(tx: Transaction, turn_id: str) -> StoredTurn:
    return read_turns(tx, [turn_id])[turn_id]


def read_turns(tx: Transaction, turn_ids: Sequence[str]) -> dict[str, StoredTurn]:
    """Turns by id; those that are not there are left out."""
    turn_columns = ", ".join(f"t.{name}" for name in TURN.all)
    turns = _rows(
        tx,
        f"SELECT t.id, t.projected, t.parent_turn_id, p.system_prompt_hash, p.persona_id,"
        f" p.thread_key, {turn_columns}"
        " FROM turns t LEFT JOIN places p ON p.turn_id = t.id WHERE t.id IN",
        turn_ids,
    )
    messages = _grouped(
        _rows(tx, _select("turn_id", MESSAGE, "messages"), turn_ids, "turn_id, sequence, id")
    )
    calls = _grouped(
        _rows(tx, _select("turn_id", CALL, "tool_calls"), turn_ids, "turn_id, sequence, id")
    )
    compactions = _grouped(_rows(tx, _select("turn_id", COMPACTION, "compactions"), turn_ids))
    details = _read_details(tx, turn_ids)
    status = TURN.plain.index("status")
    return {
        turn_id: StoredTurn(
            TurnContent(
                tuple(values),
                messages.get(turn_id, ()),
                calls.get(turn_id, ()),
                details.get(turn_id, {}),
                next(iter(compactions.get(turn_id, ())), None),
            ),
            Place(*place),
            bool(projected),
            values[status] in ("completed", "failed"),
        )
        for turn_id, projected, *rest in turns
        for place, values in [(rest[:4], rest[4:])]
    }


def _select(key: str, columns: Columns, table: str) -> str:
    return f"SELECT {key}, {', '.join(columns.all)} FROM {table} WHERE {key} IN"


def _rows(tx: Transaction, sql: str, keys: Sequence[str], order: str = "1") -> list[Row]:
    """Not by a named statement: its rows would be unescaped, and hashed is what is stored."""
    marks = ", ".join("?" for _ in keys)
    return tx.execute(f"{sql} ({marks}) ORDER BY {order}", tuple(keys))


def _grouped(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their first column, without it."""
    return {key: [row[1:] for row in group] for key, group in groupby(rows, key=_FIRST)}


def _read_details(tx: Transaction, turn_ids: Sequence[str]) -> dict[str, dict[str, MessageDetails]]:
    """Files, lints and codeblocks by turn and message."""
    found: dict[str, dict[str, MessageDetails]] = defaultdict(dict)
    for field, table, columns in (
        ("files", "message_files", FILE),
        ("lints", "message_lints", LINT),
        ("codeblocks", "message_codeblocks", CODEBLOCK),
    ):
        names = ", ".join(f"d.{name}" for name in columns.all)
        rows = _rows(
            tx,
            f"SELECT m.turn_id, d.message_id, {names}"
            f" FROM messages m JOIN {table} d ON d.message_id = m.id WHERE m.turn_id IN",
            turn_ids,
            "m.turn_id, d.message_id, d.id",
        )
        for (turn_id, message_id), group in groupby(rows, key=itemgetter(0, 1)):
            known = found[turn_id].get(message_id, MessageDetails())
            found[turn_id][message_id] = known._replace(**{field: [row[2:] for row in group]})
    return found


def values_of(content: TurnContent) -> dict[str, bytes]:
    """Every value of a turn that is salted, by its label."""
    values: dict[str, bytes] = {}
    canonical.content_hash(content, recording(values, lambda _label, _value: ""))
    return values


def read_moves(tx: Transaction, move_ids: Sequence[int]) -> dict[int, StoredMove]:
    """Moves by id; those that are not there are left out."""
    if not move_ids:
        return {}
    marks = ", ".join("?" for _ in move_ids)
    rows = tx.execute(
        "SELECT h.id, h.session_label, h.thread_id, h.changed_at, h.reason,"
        " COALESCE(t.projected, 0) FROM session_history h LEFT JOIN turns t"
        f" ON t.id = h.thread_id WHERE h.id IN ({marks})",
        tuple(move_ids),
    )
    return {row[0]: StoredMove._make((*row[:5], bool(row[5]))) for row in rows}
