"""Puts the rows of a damaged file into the tables of a new ledger, and mends their references."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.model.errors import Refused
from agents_ledger.store.checks import row_types
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.salvage.damaged_file import DamagedFile, StoredRow
from agents_ledger.store.salvage.sqlite_records import BadText, SalvagedColumn, columns_of
from agents_ledger.store.tables.copying import TABLES
from agents_ledger.store.text import normalised

_CHECK = re.compile(r"CHECK \((\w+ = '\w+'(?: OR \w+ = '\w+')*)\)")
_WORD = re.compile(r"(\w+) = '(\w+)'")
FLAG = frozenset((0, 1))
FLAGS = (
    "has_children",
    "projected",
    "is_subagent",
    "source_has_more",
    "starred",
    "has_details",
    "partial",
    "shown",
)
# Replacements of lost values of columns without a default.
_LIKELY = {
    ("messages", "role"): "assistant",
    ("message_files", "kind"): "referenced",
    ("queue", "status"): "failed",
    ("queue", "mode"): "followup",
    ("bus_messages", "role"): "assistant",
    ("bus_calls", "status"): "failed",
    ("source_files", "kind"): "lines",
}


class TableRows(Struct):
    table: str
    read: int = 0
    lost: int = 0  # rows and pages of rows that make no sense
    dropped: int = 0  # they break a constraint, or what they belong to is lost
    repaired: int = 0  # a value of them was lost


class RowChange(NamedTuple):
    table: str
    key: str
    what: str


class Loading(Struct):
    """What was read, and what had to be changed for it."""

    tables: dict[str, TableRows] = field(default_factory=dict)
    changes: list[RowChange] = field(default_factory=list)

    def of(self, table: str) -> TableRows:
        return self.tables.setdefault(table, TableRows(table))

    def repaired(self, table: str, key: str, what: str) -> None:
        """Note a row that was kept with other values."""
        self.of(table).repaired += 1
        self.changes.append(RowChange(table, key, what))

    def dropped(self, table: str, key: str, what: str) -> None:
        """Note a row that could not be kept."""
        self.of(table).dropped += 1
        self.changes.append(RowChange(table, key, what))


def load(file: DamagedFile, tx: Transaction) -> Loading:
    """Insert every row that can be read and does not break a constraint of its own table."""
    loading = Loading()
    for table in TABLES:
        rows = file.rows(table)
        first = next(rows, None)
        if first is not None:
            tree = file.trees.get(table)
            SalvagedTable(tx, table, loading).load(tree and tree.sql, chain((first,), rows))
        loading.of(table).lost = file.lost.get(table, 0)
        _name_lost(file, tx, table, loading)
    return loading


class SalvagedTable:
    def __init__(self, tx: Transaction, table: str, loading: Loading) -> None:
        self._tx = tx
        self._table = table
        self._loading = loading
        self._types = row_types.columns()[table]
        self._info = {row[1]: row for row in tx.execute(f"PRAGMA table_info({table})")}
        self._names = list(self._info)
        sql = tx.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,))[0][0]
        self._sql = sql
        self._words = {
            words[0][0]: {word for _, word in words}
            for check in _CHECK.findall(sql)
            if (words := _WORD.findall(check))
        }
        self._keys = TABLES[table].split(", ")
        marks = ", ".join("?" for _ in self._names)
        self._insert = f"INSERT INTO {table} ({', '.join(self._names)}) VALUES ({marks})"

    def load(self, sql: str | None, rows: Iterable[StoredRow]) -> None:
        # The file's own text first: the ledger may be of an older schema, with fewer columns.
        columns = columns_of(sql) or columns_of(self._sql)
        for stored in rows:
            self._loading.of(self._table).read += 1
            self._keep(dict(_named(columns, stored.rowid, stored.values)))

    def _keep(self, values: Mapping[str, Any]) -> None:
        wrong: list[str] = []
        row: list[Any] = []
        for name in self._names:
            value, is_right = self._right(name, values)
            row.append(value)
            if not is_right:
                wrong.append(name)
        key = self._key(row)
        # A key that was replaced or escaped in another way could not be looked up again.
        if set(wrong) & set(self._keys):
            self._loading.dropped(self._table, key, "its key is damaged")
            return
        try:
            self._tx.attempt(lambda: self._tx.execute_many(self._insert, [tuple(row)]))
        except Refused as error:
            self._loading.dropped(self._table, key, str(error))
            return
        if wrong:
            self._loading.repaired(self._table, key, f"{', '.join(wrong)} cannot be read")

    def _right(self, name: str, values: Mapping[str, Any]) -> tuple[Any, bool]:
        """The value of a column as it should be, and whether it was."""
        value, kind = values.get(name), self._types[name]
        required, in_key = self._info[name][3], self._info[name][5]
        if name not in values or (value is None and (required or in_key)):
            return self._default(name), name not in values and not in_key
        # One bit makes bytes of a text.
        if isinstance(value, BadText) or (kind is str and isinstance(value, bytes)):
            return normalised(value.decode(errors="replace")), False
        if value is not None and type(value) is not kind:
            return self._default(name), False
        words = FLAG if name in FLAGS else self._words.get(name)
        if value is not None and words is not None and value not in words:
            return self._default(name), False
        stored = normalised(value) if isinstance(value, str) else value
        return stored, stored == value

    def _default(self, name: str) -> Any:
        _, _, _, required, default, _ = self._info[name]
        if default is not None:
            return default.strip("'") if self._types[name] is str else int(default)
        likely = _LIKELY.get((self._table, name))
        if likely is not None or not required:
            return likely
        return {str: "", int: 0, bytes: b""}[self._types[name]]

    def _key(self, row: list[Any]) -> str:
        key_values = (row[self._names.index(key)] for key in self._keys)
        return " ".join(str(value)[: row_types.LENGTH_MAX] for value in key_values)


def _named(
    columns: list[SalvagedColumn], rowid: int, values: list[Any]
) -> Iterator[tuple[str, Any]]:
    """The values of a row by column. One that was added later has the default of its column."""
    for index, column in enumerate(columns):
        if column.is_rowid:
            yield column.name, rowid
        elif index < len(values):
            yield column.name, values[index]


def _name_lost(file: DamagedFile, tx: Transaction, table: str, loading: Loading) -> None:
    """Name the rows that the index of a table's key still knows, if the table lost some."""
    index = f"sqlite_autoindex_{table}_1"
    if not file.lost.get(table) or index not in file.trees:
        return
    width = len(TABLES[table].split(", "))
    for stored in file.rows(index):
        key = stored.values[:width]
        if len(key) < width:
            continue  # of another index
        where = " AND ".join(f"{name} = ?" for name in TABLES[table].split(", "))
        if not tx.execute(f"SELECT 1 FROM {table} WHERE {where}", tuple(key)):
            key_text = " ".join(str(value)[: row_types.LENGTH_MAX] for value in key)
            loading.changes.append(RowChange(table, key_text, "lost"))


# -- references -------------------------------------------------------------------------------


class _Reference(NamedTuple):
    table: str
    column: str
    target: str
    target_column: str
    required: bool


def mend_references(tx: Transaction, loading: Loading, *, leave: tuple[str, ...] = ()) -> None:
    """Clear what refers to a row that is lost; drop the row, if it is nothing without. References
    to the tables named in `leave` are left alone."""
    # A list, not a generator: every reference is mended in each round. Rows dropped in one round
    # may leave others without their target, so it is repeated until nothing changes.
    while any([_mend(tx, reference, loading) for reference in _broken_references(tx, leave)]):
        pass


def _broken_references(tx: Transaction, leave: tuple[str, ...]) -> list[_Reference]:
    """The references that lead nowhere in some row, in the order of the tables."""
    numbers: dict[str, set[int]] = {}
    for table, _, target, number in tx.execute("PRAGMA foreign_key_check"):
        if table in TABLES and target not in leave:
            numbers.setdefault(table, set()).add(number)
    references = []
    for table in filter(numbers.__contains__, TABLES):
        required = {row[1] for row in tx.execute(f"PRAGMA table_info({table})") if row[3] or row[5]}
        for number, _, target, column, to, *_ in tx.execute(f"PRAGMA foreign_key_list({table})"):
            if number in numbers[table]:
                references.append(_Reference(table, column, target, to, column in required))
    return references


def _mend(tx: Transaction, reference: _Reference, loading: Loading) -> bool:
    table, column, target, to, required = reference
    key_text = " || ' ' || ".join(TABLES[table].split(", "))
    broken = (
        f"WHERE {column} IS NOT NULL"
        f" AND NOT EXISTS (SELECT 1 FROM {target} found WHERE found.{to} = {table}.{column})"
    )
    if required:
        rows: list[Row] = tx.execute(f"DELETE FROM {table} {broken} RETURNING {key_text}, {column}")
    else:
        rows = tx.execute(f"SELECT {key_text}, {column} FROM {table} {broken}")
        tx.execute(f"UPDATE {table} SET {column} = NULL {broken}")
    for key, missing in rows:
        note = loading.dropped if required else loading.repaired
        note(table, str(key), f"{column} {missing} is lost")
    return bool(rows)
