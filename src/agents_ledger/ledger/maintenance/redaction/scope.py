"""Which rows and archived files a selection is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports.redaction import Selection
from agents_ledger.store.database import Transaction
from agents_ledger.store.tables.texts import TextRow, TextTable
from agents_ledger.store.text import in_batches

# More ids are compared here instead of in the statement.
IDS_IN_STATEMENT = 200
# By table the column that names a message or a call of the turn.
_OF_MESSAGE = {
    "messages": "id",
    "message_files": "message_id",
    "message_lints": "message_id",
    "message_codeblocks": "message_id",
}
_OF_CALL = {"messages": "tool_call_id", "tool_calls": "id"}


class Scope(NamedTuple):
    """Turns and sessions; `turn_ids` None: the whole ledger."""

    turn_ids: frozenset[str] | None = None
    labels: frozenset[str] = frozenset()
    message_id: str | None = None  # of these turns' rows, only those of a message
    call_id: str | None = None  # or of a call
    prompts: frozenset[str] = frozenset()  # hashes of the system prompts that belong to them
    # Archived files that describe nothing but these turns.
    file_ids: frozenset[int] = frozenset()

    @property
    def is_part_of_turn(self) -> bool:
        """Whether it is about one message or call."""
        return self.message_id is not None or self.call_id is not None

    def condition(self, table: TextTable) -> str | None:
        """What a statement asks of the rows of a table; None: no row of it is meant."""
        if self.turn_ids is None:
            return ""
        if self.is_part_of_turn:
            return self._condition_of_part(table, *self.turn_ids)
        if table.name == "system_prompts":
            return _one_of("hash", self.prompts)
        if table.file != "NULL":
            return _one_of(table.file, self.file_ids)
        conditions = [
            _one_of(expression, values)
            for expression, values in ((table.turn, self.turn_ids), (table.session, self.labels))
            if expression != "NULL"
        ]
        named = [condition for condition in conditions if condition is not None]
        if "" in named:
            return ""
        return f"({' OR '.join(named)})" if named else None

    def _condition_of_part(self, table: TextTable, turn_id: str) -> str | None:
        if self.message_id is not None:
            column = _OF_MESSAGE.get(table.name)
            return f"{column} = {_literal(self.message_id)}" if column else None
        column = _OF_CALL.get(table.name)
        if column is None:
            return None
        return f"turn_id = {_literal(turn_id)} AND {column} = {_literal(str(self.call_id))}"

    def has(self, row: TextRow) -> bool:
        """Whether a row that a statement gave is meant, where the ids were too many for it."""
        if self.turn_ids is None or self.is_part_of_turn:
            return True
        if row.turn_id is None and row.session_label is None:
            return True
        return row.turn_id in self.turn_ids or row.session_label in self.labels


def _one_of(expression: str, values: Iterable[object]) -> str | None:
    among = sorted(values, key=str)
    if not among:
        return None
    if len(among) > IDS_IN_STATEMENT:
        return ""
    return f"{expression} IN ({', '.join(map(_literal, among))})"


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def scope_of(tx: Transaction, selection: Selection) -> Scope:
    """The rows that a selection is about, or NotFound."""
    name = selection.scope
    if name is None:
        return Scope()
    key = str(getattr(selection, name))
    if name == "message":
        return Scope(frozenset({_turn_of_message(tx, key)}), message_id=key)
    if name == "call":
        return _of_call(tx, key)
    if name == "turn":
        turn_ids, labels = {threads.resolve_turn(tx, key)}, set[str]()
    elif name == "project":
        turn_ids = {row[0] for row in tx.run("turns_of_project", folder=key.rstrip("/"))}
        labels = set(rows_of(tx, "sessions_at_turns", turn_ids))
    else:
        labels = _labels(tx, name, key)
        turn_ids = set(rows_of(tx, "turns_of_scope_sessions", labels))
    if not turn_ids and not labels:
        raise NotFound(f"no turn is of the {name} {key!r}")
    whole = frozenset(turn_ids)
    return Scope(
        whole,
        frozenset(labels),
        prompts=_prompts(tx, whole, all_of_them=selection.matches),
        file_ids=_own_files(tx, whole),
    )


def scope_of_sessions(tx: Transaction, labels: Iterable[str]) -> Scope:
    """The turns that only these sessions point at, and their sessions' own texts."""
    own = frozenset(labels)
    others = [row[0] for row in tx.run("all_labels") if row[0] not in own]
    shared = set(rows_of(tx, "turns_of_scope_sessions", others))
    turn_ids = frozenset(set(rows_of(tx, "turns_of_scope_sessions", own)) - shared)
    return Scope(
        turn_ids,
        own,
        prompts=_prompts(tx, turn_ids, all_of_them=False),
        file_ids=_own_files(tx, turn_ids),
    )


def _labels(tx: Transaction, name: str, key: str) -> set[str]:
    if name == "session":
        rows = tx.run("session", key=key)
        if not rows:
            raise NotFound(f"there is no session {key!r}")
        return set(rows_of(tx, "sessions_with_subagents", [rows[0][0]]))
    return {row[0] for row in tx.run("sessions_of_persona", persona=key)}


def _turn_of_message(tx: Transaction, message_id: str) -> str:
    rows = tx.run("turn_of_redacted_message", id=message_id)
    if not rows:
        raise NotFound(f"there is no message {message_id!r}")
    return str(rows[0][0])


def _of_call(tx: Transaction, key: str) -> Scope:
    turn, separator, call_id = key.partition("/")
    if not separator:
        raise Refused(f"{key!r} is no call", "Give the turn and the call: TURN/CALL.")
    turn_id = threads.resolve_turn(tx, turn)
    if not tx.run("call_of_turn", turn_id=turn_id, id=call_id):
        raise NotFound(f"turn {turn_id} has no call {call_id!r}")
    return Scope(frozenset({turn_id}), call_id=call_id)


def _prompts(tx: Transaction, turn_ids: frozenset[str], *, all_of_them: bool) -> frozenset[str]:
    """The system prompts of turns: all, or those that no other turn has."""
    hashes = set(rows_of(tx, "prompts_of_turns_only", turn_ids))
    if all_of_them:
        return frozenset(hashes)
    return frozenset(
        prompt
        for prompt in hashes
        if turn_ids.issuperset(row[0] for row in tx.run("prompt_turns", hash=prompt))
    )


def files_of(tx: Transaction, scope: Scope) -> list[int]:
    """The archived files that hold something of a scope."""
    if scope.turn_ids is None:
        return [row[0] for row in tx.run("all_source_files")]
    return sorted(set(rows_of(tx, "files_of_turns", scope.turn_ids)))


def _own_files(tx: Transaction, turn_ids: frozenset[str]) -> frozenset[int]:
    return frozenset(
        file_id
        for file_id in set(rows_of(tx, "files_of_turns", turn_ids))
        if turn_ids.issuperset(row[0] for row in tx.run("turns_of_archived_file", file_id=file_id))
    )


def rows_of(tx: Transaction, statement: str, ids: Iterable[str]) -> list[Any]:
    """The first column of what a statement gives for many ids."""
    return [row[0] for batch in in_batches(ids) for row in tx.run(statement, ids=batch)]
