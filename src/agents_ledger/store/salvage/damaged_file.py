"""Reads what is left of a damaged SQLite file, page by page, without SQLite and without writing.

The format is that of sqlite.org/fileformat2.html. Trees are walked from their roots around pages
that make no sense; rows of pages that no tree leads to any more are recognised by their shape.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agents_ledger.model.errors import Damaged, NotFound, Refused
from agents_ledger.store.checks import row_types
from agents_ledger.store.concurrency.locks import is_open_here
from agents_ledger.store.salvage.sqlite_records import (
    Unreadable,
    Values,
    columns_of,
    record,
    varint,
)
from agents_ledger.store.salvage.write_ahead_log import WriteAheadLog
from agents_ledger.store.tables.copying import TABLES

MAGIC = b"SQLite format 3\0"
# Of every ledger this program creates; assumed if the header is damaged.
PAGE_SIZE = 4096
INTERIOR_INDEX, INTERIOR_TABLE, LEAF_INDEX, LEAF_TABLE = 0x02, 0x05, 0x0A, 0x0D
HEADER = 100  # bytes of the file's header, on page 1
SCHEMA_COLUMNS = 5
PAGE_HEADER = 8
PAGE_SIZES = tuple(1 << power for power in range(9, 17))


class StoredRow(NamedTuple):
    """A row of the file; the rowid is 0 in an index."""

    rowid: int
    values: Values


class BTree(NamedTuple):
    """A table or index of the schema."""

    kind: str
    name: str
    table: str
    root: int
    sql: str | None


HINT = "Nothing can be salvaged from it: restore a backup with `agents-ledger restore`."


class DamagedFile:
    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFound(f"there is no file {path}", "Give the path of a ledger's file.")
        # Closing our descriptor would drop the locks that SQLite holds on the file in this process.
        if is_open_here(path):
            raise Refused(f"{path} is open in this process", "Close it first.")
        self.path = path
        self.remarks: list[str] = []
        self.lost: dict[str, int] = {}  # rows or pages that make no sense, by table
        self._file = path.open("rb")
        header = self._file.read(HEADER).ljust(HEADER, b"\0")
        self._page_size, self._usable = self._sizes(header)
        self._log = WriteAheadLog(path.with_name(f"{path.name}-wal"), self._page_size)
        self.remarks += self._log.remarks
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.pages = self._count_pages()
        self._free = self._free_pages()
        self._visited: set[int] = set()
        self.trees = {tree.name: tree for tree in self._schema()}
        self._leaves = {name: list(self._walk(tree)) for name, tree in self.trees.items()}
        unlisted = [table for table in TABLES if table not in self.trees]
        if len(unlisted) == len(TABLES):
            raise Damaged(f"no table of a ledger can be found in {self.path}", HINT)
        if unlisted:
            self.remarks.append(f"the schema is damaged: it lacks {', '.join(unlisted)}")
        self._orphans = self._orphaned_rows()

    def _count_pages(self) -> int:
        length = self.path.stat().st_size
        self._in_file = length // self._page_size
        pages: int = max([self._in_file, *self._log])
        if not pages or (length < self._page_size and 1 not in self._log):
            raise Damaged(f"{self.path} has {length} bytes: nothing can be read from it", HINT)
        expected = int.from_bytes(self._page(1)[28:32], "big")
        if length % self._page_size:
            self.remarks.append(f"the file ends within a page, at byte {length}")
        elif not self.remarks and expected > pages:
            self.remarks.append(f"the file has {pages} of {expected} pages")
        return pages

    def close(self) -> None:
        self._file.close()
        self._log.close()

    def _sizes(self, header: bytes) -> tuple[int, int]:
        size = struct.unpack(">H", header[16:18])[0]
        size = PAGE_SIZES[-1] if size == 1 else size
        if not header.startswith(MAGIC) or size not in PAGE_SIZES:
            self.remarks.append("the header is damaged")
            return PAGE_SIZE, PAGE_SIZE
        return size, size - header[20]

    def _page(self, number: int) -> bytes:
        logged = self._log.page(number)
        if logged is not None:
            return logged
        self._file.seek((number - 1) * self._page_size)
        page = self._file.read(self._page_size)
        if number < 1 or len(page) < self._page_size:
            raise Unreadable(f"page {number} is behind the end")
        return page

    def _present(self) -> Iterator[int]:
        """The numbers of all pages but the first. The log may hold pages far behind the end of
        the file: those between are not looked for."""
        yield from range(2, self._in_file + 1)
        yield from (number for number in self._log if number > max(self._in_file, 1))

    def _free_pages(self) -> set[int]:
        """What is on the list of free pages: rows there were deleted."""
        free: set[int] = set()
        trunk = int.from_bytes(self._page(1)[32:36], "big")
        while trunk and trunk not in free and trunk <= self.pages:
            free.add(trunk)
            try:
                page = self._page(trunk)
            except Unreadable:
                break
            count = min(int.from_bytes(page[4:8], "big"), self._usable // 4 - 2)
            free.update(struct.unpack(f">{count}I", page[8 : 8 + 4 * count]))
            trunk = int.from_bytes(page[:4], "big")
        return free

    # -- trees --------------------------------------------------------------------------------

    def _schema(self) -> Iterator[BTree]:
        """What the schema says; where its own pages are lost, whatever looks like a line of it."""
        pages = list(self._walk(BTree("table", "sqlite_master", "", 1, None)))
        rows = [row for page in pages for row in self._cells(page, "sqlite_master")]
        if "sqlite_master" in self.lost:
            unreferenced = (n for n in self._present() if n not in self._free)
            rows += [row for n in unreferenced if n not in pages for row in self._cells(n, None)]
        for row in rows:
            if len(row.values) == SCHEMA_COLUMNS:
                kind, name, table, root, sql = row.values
                if kind in ("table", "index") and isinstance(name, str) and _is_root(root):
                    yield BTree(kind, name, str(table), root, sql if isinstance(sql, str) else None)

    def _walk(self, tree: BTree) -> Iterator[int]:
        """The pages of a tree that hold rows, in order, around those that make no sense."""
        waiting = [tree.root]
        while waiting:
            number = waiting.pop()
            # A damaged pointer may lead back up or into another tree; each page is read once.
            if number in self._visited or not 1 <= number <= self.pages:
                self._note_lost(tree.table or tree.name, tree)
                continue
            self._visited.add(number)
            try:
                kind, start, count = self._head(number)
            except Unreadable:
                self._note_lost(tree.table or tree.name, tree)
                continue
            if kind in (LEAF_TABLE, LEAF_INDEX, INTERIOR_INDEX):
                yield number
            if kind in (INTERIOR_TABLE, INTERIOR_INDEX):
                waiting += reversed(self._children(number, start, count))

    def _note_lost(self, table: str, tree: BTree) -> None:
        if tree.kind == "table":  # an index is made anew
            self.lost[table] = self.lost.get(table, 0) + 1

    def _head(self, number: int) -> tuple[int, int, int]:
        """Kind of a page of a tree, where its header begins, and how many cells it has."""
        page = self._page(number)
        start = HEADER if number == 1 else 0
        kind, count = page[start], int.from_bytes(page[start + 3 : start + 5], "big")
        page_types = (INTERIOR_INDEX, INTERIOR_TABLE, LEAF_INDEX, LEAF_TABLE)
        if kind not in page_types or start + 8 + 2 * count > self._usable:
            raise Unreadable(f"page {number} is no page of a tree")
        return kind, start, count

    def _children(self, number: int, start: int, count: int) -> list[int]:
        page = self._page(number)
        pointers = struct.unpack(f">{count}H", page[start + 12 : start + 12 + 2 * count])
        children = [int.from_bytes(page[at : at + 4], "big") for at in pointers]
        return [*children, int.from_bytes(page[start + 8 : start + 12], "big")]

    # -- rows ---------------------------------------------------------------------------------

    def rows(self, table: str) -> Iterator[StoredRow]:
        """Every row of a table or index that can be read."""
        for page in self._leaves.get(table, ()):
            yield from self._cells(page, table if self.trees[table].kind == "table" else None)
        yield from self._orphans.get(table, ())

    def _cells(self, number: int, table: str | None) -> Iterator[StoredRow]:
        """The rows of one page; what makes no sense is counted for the table, if one is named."""
        try:
            kind, start, count = self._head(number)
            page = self._page(number)
        except Unreadable:
            return
        first = start + (12 if kind in (INTERIOR_TABLE, INTERIOR_INDEX) else 8)
        for at in range(first, first + 2 * count, 2):
            try:
                yield self._cell(page, kind, int.from_bytes(page[at : at + 2], "big"))
            except (Unreadable, IndexError, struct.error):
                if table is not None:
                    self.lost[table] = self.lost.get(table, 0) + 1

    def _cell(self, page: bytes, kind: int, at: int) -> StoredRow:
        if not PAGE_HEADER <= at < self._usable or kind == INTERIOR_TABLE:
            raise Unreadable("a cell outside of its page")
        at += 4 if kind == INTERIOR_INDEX else 0
        size, at = varint(page, at)
        rowid = 0
        if kind == LEAF_TABLE:
            rowid, at = varint(page, at)
        return StoredRow(rowid, record(self._payload(page, at, size, kind)))

    def _payload(self, page: bytes, at: int, size: int, kind: int) -> bytes:
        usable = self._usable
        most = usable - 35 if kind == LEAF_TABLE else (usable - 12) * 64 // 255 - 23
        # A damaged length must not make us allocate or follow more than the file can hold.
        if size > self.pages * self._page_size:
            raise Unreadable("a row longer than the file")
        local = size
        if size > most:
            least = (usable - 12) * 32 // 255 - 23
            fitting = least + (size - least) % (usable - 4)
            local = fitting if fitting <= most else least
        if at + local > usable:
            raise Unreadable("a row behind the end of its page")
        parts = [page[at : at + local]]
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        left = size - local
        # A damaged chain of overflow pages may lead back to itself.
        seen: set[int] = set()
        while left > 0:
            if not 1 < following <= self.pages or following in seen:
                raise Unreadable("a row whose rest is lost")
            seen.add(following)
            further = self._page(following)
            parts.append(further[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
            following = int.from_bytes(further[:4], "big")
        return b"".join(parts)

    # -- pages that no tree leads to ----------------------------------------------------------

    def _orphaned_rows(self) -> dict[str, list[StoredRow]]:
        """Rows of pages whose tree lost its way to them, by the only table they fit."""
        orphans: dict[str, list[StoredRow]] = {}
        unassigned = 0
        shapes = dict(self._shapes()) if self.lost else {}
        for number in self._present() if shapes else ():
            # Rows on free pages were deleted on purpose; only leaves that a tree lost are wanted.
            if number in self._visited or number in self._free or self._kind(number) != LEAF_TABLE:
                continue
            rows = [row for row in self._cells(number, None) if row.rowid > 0]
            fitting = [
                name for name, types in shapes.items() if all(_fits(row, types) for row in rows)
            ]
            # A row that fits several tables is not guessed: in the wrong one it would be a false
            # record.
            if len(fitting) == 1:
                orphans.setdefault(fitting[0], []).extend(rows)
            elif fitting:
                unassigned += len(rows)
        if unassigned:
            self.remarks.append(f"{unassigned} rows are left that fit several tables")
        return orphans

    def _kind(self, number: int) -> int | None:
        try:
            return self._head(number)[0]
        except Unreadable:
            return None

    def _shapes(self) -> Iterator[tuple[str, list[type | None]]]:
        """The types of the values of a row, by table; None: anything."""
        for table, types in row_types.columns().items():
            tree = self.trees.get(table)
            if table in row_types.clustered() or table not in TABLES:
                continue
            columns = columns_of(tree.sql) if tree else []
            if columns:
                yield table, [None if c.is_rowid else types.get(c.name) for c in columns]
            else:
                yield table, list(types.values())


def _fits(row: StoredRow, types: list[type | None]) -> bool:
    return len(row.values) == len(types) and all(
        value is None or kind is None or type(value) is kind
        for value, kind in zip(row.values, types, strict=True)
    )


def _is_root(value: object) -> bool:
    """A virtual table has none."""
    return isinstance(value, int) and value > 0
