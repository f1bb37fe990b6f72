"""Rows as they are stored, without the escape rule: evidence is the hash of what is stored."""

from __future__ import annotations

from collections.abc import Sequence

from agents_ledger.store.database import Row, Transaction


def of_turns(
    tx: Transaction, table: str, columns: Sequence[str], turn_ids: Sequence[str], *, order: str = ""
) -> list[Row]:
    """Turn id and columns of the rows that belong to turns, in order."""
    names, marks = ", ".join(columns), _marks(turn_ids)
    return tx.execute(
        f"SELECT turn_id, {names} FROM {table} WHERE turn_id IN ({marks})"
        f" ORDER BY turn_id{order and f', {order}'}",
        tuple(turn_ids),
    )


def turns(tx: Transaction, columns: Sequence[str], turn_ids: Sequence[str]) -> list[Row]:
    """Id, whether it is projected, parent, prompt, persona, key of turns, and columns of them."""
    names, marks = ", ".join(f"t.{name}" for name in columns), _marks(turn_ids)
    return tx.execute(
        "SELECT t.id, t.projected, t.parent_turn_id, p.system_prompt_hash, p.persona_id,"
        f" p.thread_key, {names} FROM turns t LEFT JOIN places p ON p.turn_id = t.id"
        f" WHERE t.id IN ({marks})",
        tuple(turn_ids),
    )


def details(
    tx: Transaction, table: str, columns: Sequence[str], turn_ids: Sequence[str]
) -> list[Row]:
    """Turn id, message id and columns of what hangs on messages, in order."""
    names, marks = ", ".join(f"d.{name}" for name in columns), _marks(turn_ids)
    return tx.execute(
        f"SELECT m.turn_id, d.message_id, {names} FROM messages m"
        f" JOIN {table} d ON d.message_id = m.id WHERE m.turn_id IN ({marks})"
        " ORDER BY m.turn_id, d.message_id, d.id",
        tuple(turn_ids),
    )


def moves(tx: Transaction, move_ids: Sequence[int]) -> list[Row]:
    """Id, label, turn, time, reason of moves, and whether the turn is projected."""
    return tx.execute(
        "SELECT h.id, h.session_label, h.thread_id, h.changed_at, h.reason,"
        " COALESCE(t.projected, 0) FROM session_history h LEFT JOIN turns t"
        f" ON t.id = h.thread_id WHERE h.id IN ({_marks(move_ids)})",
        tuple(move_ids),
    )


def block(tx: Transaction, file_id: int, start: int) -> Row | None:
    """Path and generation of a block's file, and its length."""
    rows = tx.execute(
        "SELECT f.path, f.generation, b.length FROM source_blocks b"
        " JOIN source_files f ON f.id = b.file_id WHERE b.file_id = ? AND b.start = ?",
        (file_id, start),
    )
    return rows[0] if rows else None


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" for _ in values)
