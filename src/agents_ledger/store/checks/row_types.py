"""Whether rows hold what their columns say.

SQLite stores a value of any type in any column, so one flipped bit turns a text into a number. Rows
are validated where they leave the database: by the names of their columns, or by the fields of the
values that they become.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from agents_ledger.model.errors import Damaged
from agents_ledger.store import queries
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.tables.copying import TABLES

Types = tuple[type, ...]

_TABLE = re.compile(r"^CREATE TABLE (\w+) \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^    (\w+) (TEXT|BIGINT|<\w+>)", re.MULTILINE)
_STORED: dict[str, type] = {
    "TEXT": str,
    "BIGINT": int,
    "<serial_key>": int,
    "<log_key>": int,
    "<bytes>": bytes,
    "<floats>": bytes,
}
NOTHING = type(None)
_SHOWN = {int: "a number", float: "a fraction", bytes: "bytes", bool: "a flag", NOTHING: "nothing"}
_NAMING = ("id", "turn_id", "label", "session_label", "name", "message_id", "segment_id", "hash")
_UNDECODED = re.compile(r"Could not decode to UTF-8 column '(\w+)'")
_FALLBACK = re.compile(r"COALESCE\(\w+\.(\w+),.*\)$", re.DOTALL)  # a column, or its fallback
LENGTH_MAX = 60  # of a key that is shown
# With fewer rows, a lookup of the types of each row is faster than a pass over each column.
FEW = 8


@cache
def columns() -> dict[str, dict[str, type]]:
    """The type of every column, by table."""
    return {
        table: {name: _STORED[kind] for name, kind in _COLUMN.findall(body)}
        for table, body in _TABLE.findall(queries.read("schema.sql"))
    }


@cache
def clustered() -> frozenset[str]:
    """The tables that are stored in the order of their key (WITHOUT ROWID)."""
    text = queries.read("schema.sql")
    ends = ((table[1], text[table.end() :]) for table in _TABLE.finditer(text))
    return frozenset(name for name, rest in ends if rest.startswith(" <clustered>"))


@cache
def _by_name() -> dict[str, set[type]]:
    """The types that columns of a name have, in whichever table."""
    types: dict[str, set[type]] = {}
    for table in columns().values():
        for name, kind in table.items():
            types.setdefault(name, {NOTHING}).add(kind)
    return types


class RowTypes:
    """What rows may hold: the rows of one statement, or those that become values of one kind."""

    def __init__(
        self,
        called: str,
        names: Sequence[str],
        allowed: Sequence[Collection[type] | None],  # None: anything
        words: Mapping[int, frozenset[object]] | None = None,
    ) -> None:
        self._called = called
        self._names = names
        self._allowed = [None if types is None else frozenset(types) for types in allowed]
        self._words = words or {}
        self._seen: set[Types] = set()
        # What rows that were validated before, by the names of their columns, may still lack.
        required = [n for n, types in enumerate(self._allowed) if types and NOTHING not in types]
        self._required = itemgetter(*required, required[0]) if required else tuple
        self._worded = itemgetter(*self._words, next(iter(self._words))) if self._words else tuple
        self._known_words: set[object] = set()

    def check(self, rows: Sequence[Row]) -> None:
        """Damaged, if a value is not of its column's type, or not one of its words."""
        if len(rows) < FEW:
            for types in set(map(tuple, map(map, repeat(type), rows))) - self._seen:
                self._check_columns(rows)
                self._seen.add(types)
        else:  # column by column takes half the time
            self._check_columns(rows)
        for index, words in self._words.items():
            if not words.issuperset(map(itemgetter(index), rows)):
                self._fail(index, next(row for row in rows if row[index] not in words))

    def check_named(self, row: Row) -> None:
        """The same for a row whose columns were validated by their names."""
        if None in self._required(row):
            self._check_columns((row,))
        if (values := self._worded(row)) not in self._known_words:
            for index, words in self._words.items():
                if row[index] not in words:
                    self._fail(index, row)
            self._known_words.add(values)

    def _check_columns(self, rows: Sequence[Row]) -> None:
        for index, column in enumerate(zip(*rows, strict=True)):
            allowed = self._allowed[index]
            if allowed is not None and not allowed.issuperset(map(type, column)):
                self._fail(index, next(row for row in rows if type(row[index]) not in allowed))

    def _fail(self, index: int, row: Row) -> NoReturn:
        value = row[index]
        value_text = f"{value!r:.40}" if isinstance(value, str) else _SHOWN[type(value)]
        raise Damaged(f"{self._name(row)} holds {value_text} for {self._names[index]}")

    def _name(self, row: Row) -> str:
        for name in _NAMING:
            if name in self._names:
                value = repr(row[self._names.index(name)])[:LENGTH_MAX]
                return f"the row with {name} {value} ({self._called})"
        return f"a row ({self._called})"


def of_statement(name: str, columns_read: Sequence[str]) -> RowTypes:
    """What the rows of a statement may hold, by the names of their columns."""
    plain = [_FALLBACK.sub(r"\1", column) for column in columns_read]
    return RowTypes(name, plain, [_by_name().get(column) for column in plain])


# -- values -----------------------------------------------------------------------------------

# Columns whose words the tables restrict; others hold whatever a source says.
_RESTRICTED = ("role", "status", "turn_type", "kind", "severity", "created_as", "task_status")


@cache
def of_kind(kind: type) -> RowTypes:
    """What the rows may hold that become values of a kind."""
    hints = get_type_hints(kind)
    names: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    words = {
        index: words
        for index, name in enumerate(names)
        if name in _RESTRICTED and (words := _words(hints[name]))
    }
    return RowTypes(kind.__name__, names, [_types(hints[name]) for name in names], words)


def _types(hint: Any) -> set[type] | None:
    """The types a field takes; None: it is not a column."""
    parts = get_args(hint) if get_origin(hint) not in (None, Literal, tuple) else (hint,)
    types: set[type] = set()
    for part in parts:
        if get_origin(part) is Literal:
            types.add(str)
        elif part in (str, int, bytes, NOTHING):
            types.add(part)
        elif part is bool:
            types |= {bool, int}
    return types if types - {NOTHING} else None


def _words(hint: Any) -> frozenset[object]:
    parts = (hint,) if get_origin(hint) is Literal else get_args(hint)
    words = {word for part in parts if get_origin(part) is Literal for word in get_args(part)}
    return frozenset(words | {None} if NOTHING in parts else words)


# -- looking for rows -------------------------------------------------------------------------


def undecoded_column(error: Exception) -> str | None:
    """The column that SQLite's driver could not decode, if it complains of that."""
    complaint = _UNDECODED.match(str(error))
    return complaint[1] if complaint else None


def wrong_values(tx: Transaction, column: str | None = None) -> Iterator[tuple[str, str]]:
    """Rows of SQLite whose values are not of their column's type, or are no UTF-8; only those of
    one column, if it is named."""
    for table in TABLES:
        # A ledger that was not upgraded yet lacks some.
        names = [name for name in tx.columns(table) if column in (None, name)]
        if names:
            try:
                yield from tx.attempt(partial(_wrong_rows, tx, table, names))
            except Damaged as error:
                yield table, str(error)


def _wrong_rows(tx: Transaction, table: str, names: list[str]) -> list[tuple[str, str]]:
    types = columns()[table]
    key_text = " || ' ' || ".join(f"hex(COALESCE({key}, ''))" for key in TABLES[table].split(", "))
    picked = ", ".join(
        f"typeof({name}), {f'CAST({name} AS BLOB)' if types[name] is str else 'NULL'}"
        for name in names
    )
    return [
        fault
        for batch in tx.stream(f"SELECT {key_text}, {picked} FROM {table} NOT INDEXED")
        for row in batch
        for fault in _wrong(table, row[0], names, types, row[1:])
    ]


def _wrong(
    table: str, key: str, names: list[str], types: dict[str, type], values: Row
) -> Iterator[tuple[str, str]]:
    for name, kind, raw in zip(names, values[::2], values[1::2], strict=True):
        if kind not in ("null", _AS_SQLITE_CALLS[types[name]]):
            yield _key(table, key), f"{name} is {kind}"
        elif kind == "text" and not raw.isascii():
            try:
                raw.decode()
            except UnicodeDecodeError:
                yield _key(table, key), f"{name} is not UTF-8"


_AS_SQLITE_CALLS: dict[type, str] = {str: "text", int: "integer", bytes: "blob"}


def _key(table: str, key: str) -> str:
    key_text = " ".join(bytes.fromhex(part).decode(errors="replace") for part in key.split(" "))
    return f"{table}:{key_text[:LENGTH_MAX]}"
