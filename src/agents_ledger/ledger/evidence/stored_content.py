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
    MessageDetails,
    Place,
    TurnContent,
)
from agents_ledger.ledger.evidence.openings import recording
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.tables import stored_rows

_FIRST = itemgetter(0)


class StoredTurn(NamedTuple):
    content: TurnContent
    place: Place  # without a move
    is_projected: bool


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


def read_turn(tx: Transaction, turn_id: str, *, just_written: bool = False) -> StoredTurn:
    return read_turns(tx, [turn_id], just_written=just_written)[turn_id]


def read_turns(
    tx: Transaction, turn_ids: Sequence[str], *, just_written: bool = False
) -> dict[str, StoredTurn]:
    """Turns by id; those that are not there are left out. `just_written`: nobody can have added
    rows yet that the turns and messages themselves do not tell of."""
    turns = stored_rows.turns(tx, TURN.all, turn_ids)
    messages = _grouped(
        stored_rows.of_turns(
            tx, "messages", ("has_details", *MESSAGE.all), turn_ids, order="sequence, id"
        )
    )
    calls = _grouped(
        stored_rows.of_turns(tx, "tool_calls", CALL.all, turn_ids, order="sequence, id")
    )
    turn_type = 6 + TURN.plain.index("turn_type")
    compacts = not just_written or any(row[turn_type] == "compaction" for row in turns)
    detailed = not just_written or any(row[0] for rows in messages.values() for row in rows)
    compactions = _grouped(
        stored_rows.of_turns(tx, "compactions", COMPACTION.all, turn_ids) if compacts else ()
    )
    details = _read_details(tx, turn_ids) if detailed else {}
    return {
        turn_id: StoredTurn(
            TurnContent(
                tuple(values),
                [row[1:] for row in messages.get(turn_id, ())],
                calls.get(turn_id, ()),
                details.get(turn_id, {}),
                next(iter(compactions.get(turn_id, ())), None),
            ),
            Place(*place),
            bool(projected),
        )
        for turn_id, projected, *rest in turns
        for place, values in [(rest[:4], rest[4:])]
    }


def _grouped(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their first column, without it."""
    return {key: [row[1:] for row in group] for key, group in groupby(rows, key=_FIRST)}


def _read_details(tx: Transaction, turn_ids: Sequence[str]) -> dict[str, dict[str, MessageDetails]]:
    """Files, lints and codeblocks by turn and message."""
    details: dict[str, dict[str, MessageDetails]] = defaultdict(dict)
    for field, table, columns in (
        ("files", "message_files", FILE),
        ("lints", "message_lints", LINT),
        ("codeblocks", "message_codeblocks", CODEBLOCK),
    ):
        rows = stored_rows.details(tx, table, columns.all, turn_ids)
        for (turn_id, message_id), group in groupby(rows, key=itemgetter(0, 1)):
            earlier = details[turn_id].get(message_id, MessageDetails())
            details[turn_id][message_id] = earlier._replace(**{field: [row[2:] for row in group]})
    return details


def values_of(content: TurnContent) -> dict[str, bytes]:
    """Every value of a turn that is salted, by its label."""
    values: dict[str, bytes] = {}
    canonical.content_hash(content, recording(values, lambda _label, _value: ""))
    return values


def read_moves(tx: Transaction, move_ids: Sequence[int]) -> dict[int, StoredMove]:
    """Moves by id; those that are not there are left out."""
    if not move_ids:
        return {}
    rows = stored_rows.moves(tx, move_ids)
    return {row[0]: StoredMove._make((*row[:5], bool(row[5]))) for row in rows}
