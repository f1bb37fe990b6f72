"""Values to rows and rows to values, side by side: the order of fields is that of the SELECTs."""

from __future__ import annotations

from msgspec.structs import asdict

from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.sessions import Alias, Move, Session
from agents_ledger.model.turns import Message, ToolCall, Turn
from agents_ledger.store.checks.row_types import of_kind
from agents_ledger.store.database import Row

_check_turn = of_kind(Turn).check_named
_check_session = of_kind(Session).check
_HAS_CHILDREN = Turn.__struct_fields__.index("has_children")
_PROJECTED = Turn.__struct_fields__.index("projected")
_IS_SUBAGENT = Session.__struct_fields__.index("is_subagent")
_HAS_MORE = Session.__struct_fields__.index("source_has_more")
_STARRED = Session.__struct_fields__.index("starred")


def to_turn(
    row: Row,
    messages: tuple[Message, ...] = (),
    tool_calls: tuple[ToolCall, ...] = (),
    compaction: Compaction | None = None,
) -> Turn:
    _check_turn(row)
    values = [*row, messages, tool_calls, compaction]
    values[_HAS_CHILDREN] = bool(values[_HAS_CHILDREN])
    values[_PROJECTED] = bool(values[_PROJECTED])
    return Turn(*values)


def to_session(row: Row) -> Session:
    _check_session((row,))  # some of its columns are expressions
    values = list(row)
    values[_IS_SUBAGENT] = bool(values[_IS_SUBAGENT])
    values[_STARRED] = bool(values[_STARRED])
    values[_HAS_MORE] = bool(values[_HAS_MORE])
    return Session(*values)


def to_move(row: Row) -> Move:
    of_kind(Move).check((row,))
    return Move(*row)


def to_alias(row: Row) -> Alias:
    of_kind(Alias).check((row,))
    return Alias(*row)


def to_compaction(row: Row) -> Compaction:
    of_kind(Compaction).check((row,))
    return Compaction(*row)


def turn_row(turn: Turn, request_hash: bytes) -> dict[str, object]:
    row: dict[str, object] = asdict(turn)
    row.update(
        has_children=int(turn.has_children),
        projected=int(turn.projected),
        request_hash=request_hash,
    )
    return row
