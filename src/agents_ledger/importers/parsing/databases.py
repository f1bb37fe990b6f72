"""Other programs' SQLite databases: read in one snapshot with their log, never written.

Only the tables and keys that a reader names are looked at. What is new or changed is appended to
what is kept; a row that vanished stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import msgpack

from agents_ledger.importers.parsing import files
from agents_ledger.importers.parsing.db_cursor import (
    Cursor,
    Mark,
    State,
    cursor_of,
    hashed,
    wanted_of,
)
from agents_ledger.importers.parsing.large_values import LongCell, long_row, quoted
from agents_ledger.importers.port.source import TEXT_MAX, Select, Sieve, Table, is_long
from agents_ledger.ledger.projection.source_records import Looks, Sources
from agents_ledger.model.errors import LedgerError, Refused
from agents_ledger.model.imports.records import BAD_TEXT, RowRecord, digest, frame, records
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.text import humanize

MAGIC = b"SQLite format 3\0"
SIDECARS = ("-wal", "-shm", "-journal")
BATCH_BYTES = 8 << 20
LENGTH = sqlite3.SQLITE_LIMIT_LENGTH
LONGEST = 1_000_000_000  # as databases have it
WAIT_SECONDS = 10
COPIES = 3
MARKS = 8
SETTINGS = {
    "query_only": 1,
    "trusted_schema": 0,
    "cell_size_check": 1,
    "writable_schema": 1,  # else one that was cut off is refused as a whole; nothing is written
}
FIRST_ROWID, LAST_ROWID = -(1 << 63), (1 << 63) - 1
STRETCH = 16  # so many whole rows behind a damaged one, and all are read at once again
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG)
UNREADABLE = (LedgerError, OSError, sqlite3.Error)  # what comes of a look into one
UNTOLD = "kept though folders are excluded: nothing says the project"
DOUBTED = "left out as folders are excluded: what says the project is too long to look through"
LOGGED = 18  # where a database says with 2 that its changes go to a log first


MakeSieve = Callable[[Select], Sieve]


class Leaving(NamedTuple):
    """What is to be left out of a database."""

    folders: tuple[str, ...]
    sieve: MakeSieve | None
    met: set[str]  # those of the folders that left something out, so far


NOTHING = Leaving((), None, set())


class Kept(NamedTuple):
    """What came of reading a database."""

    file: SourceFile
    rows: int
    faults: tuple[str, ...]
    is_whole: bool  # else some could not be read this time


def state(path: Path) -> State:
    """How a database looks now. An empty log says nothing."""
    looks = [path.stat()]
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        looks.append(log.stat())
    return State(sum(s.st_size for s in looks), max(s.st_mtime_ns for s in looks))


def is_as_kept(
    file: SourceFile, path: Path, tables: Sequence[Table], leaving: Leaving = NOTHING
) -> bool:
    """Whether a database looks as when it was read, the same is read of it, and the same left out:
    folders that left nothing out may be missing now."""
    if file.kind != "rows" or (file.size, file.mtime_ns) != state(path):
        return False
    before, now = cursor_of(file), set(map(hashed, leaving.folders))
    is_same = set(before.met) <= now <= set(before.excluding)
    return is_same and before.wanted == wanted_of(tables)


def left_out(file: SourceFile, leaving: Leaving) -> tuple[int, set[str]]:
    """How many sessions were left out of a database, and by which folders."""
    cursor = cursor_of(file)
    return len(cursor.left), {each for each in leaving.folders if hashed(each) in cursor.met}


def keep(
    sources: Sources,
    file: SourceFile,
    path: Path,
    tables: Sequence[Table],
    leaving: Leaving = NOTHING,
) -> Kept:
    """Append the rows of a database that are not kept yet, and that a sieve lets pass."""
    files.open_regular(path).close()  # not a link, a pipe or a device
    seen = state(path)
    rows = _Rows(sources, file, tables, leaving.sieve)
    batch, size, number = [], 0, 0
    before = file.cursor_json
    try:
        with snapshot(path) as connection:
            for data in rows.new(connection):
                batch.append(data)
                size, number = size + len(data), number + 1
                if size >= BATCH_BYTES:
                    # Until all is kept the size is none: an interrupted import compares all again.
                    file = sources.append(file, b"".join(batch), size=-1, mtime_ns=0, cursor=before)
                    batch, size = [], 0
    except sqlite3.Error as error:
        raise Refused(f"cannot be read as a database: {error}") from error
    looks: Looks = {"size": -1, "mtime_ns": 0, "cursor": before}
    if rows.is_whole:
        folders, met = (sorted(map(hashed, each)) for each in (leaving.folders, leaving.met))
        reached = Cursor(rows.marks, wanted_of(tables), folders, met, sorted(rows.left))
        cursor = msgspec.json.encode(reached).decode()
        looks = {"size": seen.size, "mtime_ns": seen.mtime_ns, "cursor": cursor}
    file = sources.append(file, b"".join(batch), **looks)
    return Kept(file, number, tuple(rows.faults), rows.is_whole)


@contextmanager
def snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """The database as it is at one moment, log included, whoever writes to it meanwhile. Nothing
    beside it is made or changed."""
    if _is_put_away(path):
        before = state(path)
        with closing(_opened(path, "mode=ro&immutable=1")) as connection:
            yield connection
        if state(path) != before:
            raise sqlite3.OperationalError("it was written to while it was read; import it again")
        return
    try:
        connection = _opened_in_use(path)
    except sqlite3.OperationalError:  # it has no index of its log, or was left half written
        import tempfile

        with tempfile.TemporaryDirectory(prefix="agents-ledger-") as folder:
            copy = _copied(path, Path(folder))
            with closing(_opened(copy, "mode=rw")) as connection:
                yield connection
        return
    with closing(connection):
        yield connection


def schema(path: Path) -> bytes:
    """How the tables of a database were made, but for what is only in its log; nothing if it cannot
    be read. It may be anybody's: nothing is copied, and nobody waits."""
    with suppress(sqlite3.Error), closing(_opened(path, "mode=ro&immutable=1")) as connection:
        query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"
        return "\n".join(str(sql) for (sql,) in connection.execute(query)).encode(errors="replace")
    return b""


def has_any(path: Path, tables: Sequence[Table]) -> bool:
    """Whether a database has one of these tables, perhaps only in its log; also if it cannot be
    read, which is told when it is to be."""

    def has(connection: sqlite3.Connection) -> bool:
        return any(_is_table(connection, table.name) for table in tables)

    try:
        with closing(_opened(path, "mode=ro&immutable=1")) as connection:
            if has(connection):
                return True
        with snapshot(path) as connection:
            return has(connection)
    except (LedgerError, OSError, sqlite3.Error):
        return True


def _is_put_away(path: Path) -> bool:
    """Whether a database writes a log, and nobody has it open: opening it would make the log."""
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    with files.open_regular(path) as file:
        has_log = file.read(LOGGED + 1)[LOGGED:] == b"\x02"
    return has_log and not index.exists() and not (log.exists() and log.stat().st_size)


def _opened_in_use(path: Path) -> sqlite3.Connection:
    """The index of its log tells where a reader is; it need not be noted there for us, unless that
    index has no room yet."""
    try:
        return _opened(path, "mode=ro&readonly_shm=1")
    except sqlite3.OperationalError:
        if not path.with_name(path.name + "-shm").exists():
            raise
        return _opened(path, "mode=ro")


def _opened(path: Path, how: str) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?{how}"
    connection = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
    try:
        connection.text_factory = _text
        for name, value in SETTINGS.items():
            connection.execute(f"PRAGMA {name} = {value}")
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes the snapshot
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _copied(path: Path, folder: Path) -> Path:
    """A copy that did not change while it was made."""
    import shutil

    for _ in range(COPIES):
        before = state(path)
        for name in (path.name, path.name + "-wal", path.name + "-journal"):
            if (path.parent / name).exists():
                shutil.copyfile(path.parent / name, folder / name)
        if state(path) == before:
            break
    return folder / path.name


def _text(raw: bytes) -> object:
    try:
        return msgpack.Ext(BAD_TEXT, raw) if is_long(raw) else raw.decode()
    except UnicodeDecodeError:
        return msgpack.Ext(BAD_TEXT, raw)


class _Met(NamedTuple):
    """A row of a database."""

    row: RowRecord
    is_new: bool  # that is known; else it is to be compared
    long: Sequence[LongCell]  # of its values


class _Rows:
    """Finds what is new: beyond the rowid last seen, or by comparing every row."""

    def __init__(
        self, sources: Sources, file: SourceFile, tables: Sequence[Table], sieve: MakeSieve | None
    ) -> None:
        before = cursor_of(file)
        self.marks = before.marks if before.wanted == wanted_of(tables) else {}
        self.left: set[str] = set()
        self.faults: list[str] = []
        self.is_whole = True
        self._sources = sources
        self._file = file
        self._tables = tables
        self._known: dict[bytes, bytes] | None = None
        self._make_sieve = sieve
        self._left_before = set(before.left)

    def new(self, connection: sqlite3.Connection) -> Iterator[bytes]:
        """The frames of new and changed rows, in the order they were written."""
        sieve = self._sieve(connection)
        for row, goes_on, long in self._rows(connection):
            passed = sieve(row) if sieve is not None else row
            if passed is None:
                continue
            data = frame(passed)
            if goes_on or self._kept().get(passed.identity) != digest(data):
                for cell in long:
                    yield from cell.parts()
                yield data
        if sieve is not None:
            told = ((sieve.untold, UNTOLD), (sieve.doubted, DOUBTED))
            self.faults += [f"{humanize.count(len(n), 'session')} {what}" for n, what in told if n]

    def _sieve(self, connection: sqlite3.Connection) -> Sieve | None:
        """Where something was left out and is no longer, all rows are compared."""
        made = None
        if self._make_sieve is not None:
            made = self._make_sieve(partial(select, connection))
            self.left = {hashed(name) for name in made.left}
        if not self._left_before <= self.left:
            self.marks = {}
        return made

    def _rows(self, connection: sqlite3.Connection) -> Iterator[_Met]:
        """The rows that there are."""
        for table in self._tables:
            try:
                if _is_table(connection, table.name):
                    yield from self._of(connection, table)
            except sqlite3.DatabaseError as error:
                self.faults.append(f"table {table.name} cannot be read to its end: {error}")
                self.is_whole = self.is_whole and _is_damage(error)

    def _of(self, connection: sqlite3.Connection, table: Table) -> Iterator[_Met]:
        columns = _columns(connection, table.name)
        if not set(table.key) <= set(columns):
            self.faults.append(f"table {table.name} has no column {', '.join(table.key)}")
            return
        table = table if table.key else table._replace(key=columns)
        scan = _scan(connection, table, columns)
        has_rowid = scan.has_rowid
        mark = self.marks.get(table.name, Mark())
        goes_on = table.grows and has_rowid and _stands(connection, table, mark)
        latest = Mark(mark.rowid, dict(mark.keys)) if goes_on else Mark()
        for rowid, *found in scan.rows(mark.rowid if goes_on else None):
            long = [each for each in found if isinstance(each, LongCell)]
            told = (each.parted.value() if each in long else each for each in found)
            values = tuple(told if long else found)
            row = RowRecord(table.name, table.key, columns, values)
            if has_rowid:
                latest.rowid = max(latest.rowid, rowid)
                latest.keys[rowid] = row.identity.hex()
                latest.keys.pop(min(latest.keys) if len(latest.keys) > MARKS else -1, None)
            if not table.is_small:
                yield _Met(row, goes_on, long)
                continue
            name, said = row.identity.hex(), digest(frame(row)).hex()
            latest.said[name] = said
            if mark.said.get(name) != said:
                yield _Met(row, bool(mark.said), long)
        self.marks[table.name] = latest
        if scan.damages:
            del self.marks[table.name]  # should it be mended, all is compared
            places = f"damaged in {humanize.count(scan.damages, 'place')}, the rest is read"
            what = places if has_rowid else "damaged, and read only as far as that"
            self.faults.append(f"table {table.name} is {what}: {scan.damage}")

    def _kept(self) -> dict[bytes, bytes]:
        """The content last kept of every row."""
        if self._known is None:
            self._known = {}
            for each in records(self._sources.stream(self._file.id)):
                if each.row is not None:
                    self._known[each.row.identity] = digest(each.data)
        return self._known


def select(
    connection: sqlite3.Connection, table: Table, columns: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Columns of the rows of a table that may be read; nothing where it has not got them."""
    if not _is_table(connection, table.name):
        return
    if set(columns) <= set(_columns(connection, table.name)):
        for _, *values in _scan(connection, table, columns).rows(None):
            yield tuple(each.told() if isinstance(each, LongCell) else each for each in values)


def _stands(connection: sqlite3.Connection, table: Table, mark: Mark) -> bool:
    """Whether rowids still mean what they did: a vacuum, or rows deleted at the end, change it; of
    what is damaged nobody knows."""
    try:
        return mark.rowid > 0 and _is_as_marked(connection, table, mark)
    except sqlite3.DatabaseError as error:
        _raise_unless_damage(error)
        return False


def _is_as_marked(connection: sqlite3.Connection, table: Table, mark: Mark) -> bool:
    name = quoted(table.name)
    top = connection.execute(f"SELECT max(rowid) FROM {name}").fetchone()[0]
    if top is None or top < mark.rowid:
        return False
    key = ", ".join(quoted(column) for column in table.key)
    for rowid, identity in mark.keys.items():
        found = connection.execute(f"SELECT {key} FROM {name} WHERE rowid = ?", (rowid,)).fetchone()
        if found and RowRecord(table.name, table.key, table.key, found).identity.hex() != identity:
            return False
    return True


def _scan(connection: sqlite3.Connection, table: Table, columns: Sequence[str]) -> _Scan:
    has_rowid = _has_rowid(connection, table.name)
    _limit(connection, TEXT_MAX if has_rowid else LONGEST)
    return _Scan(connection, table, columns, has_rowid)


class _Scan:
    """The rows of a table in the order they were written; what is damaged is passed over."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        table: Table,
        columns: Sequence[str],
        has_rowid: bool,
    ) -> None:
        self.damages = 0
        self.damage = ""  # the first one
        self._connection = connection
        self._execute = connection.execute
        self._table = table
        self._columns = columns
        self.has_rowid = has_rowid

    def rows(self, after: int | None) -> Iterator[tuple[Any, ...]]:
        """Each with its rowid first; only those after one, if it is given."""
        at = FIRST_ROWID if after is None else after + 1
        while at <= LAST_ROWID:
            try:
                for row in self._selected(at, LAST_ROWID):
                    yield row
                    at = max(at, row[0] + 1)
                break
            except sqlite3.DatabaseError as error:
                if not self.has_rowid:
                    self._note(error)
                    return
                _raise_unless_damage(error)
            at = yield from self._one_by_one(at)

    def _one_by_one(self, at: int) -> Generator[tuple[Any, ...], None, int]:
        """Past what is damaged, until the rows are whole again; the rowid to go on from. Read at
        once, the row before a damaged one would be lost with it."""
        whole = 0
        while whole < STRETCH:
            try:
                at = self._nearest(at)
                if at > LAST_ROWID:
                    break
                yield from self._row(at)
                whole, at = whole + 1, at + 1
            except sqlite3.DatabaseError as error:
                self._note(error)
                whole, at = 0, self._beyond(at)
        return at

    def _row(self, at: int) -> Iterator[tuple[Any, ...]]:
        """One row; what is too long of it is not read yet."""
        try:
            yield from self._selected(at, at)
        except sqlite3.DataError:
            if _allowed(self._table)[0]:  # that it may be read must be known
                list(_Scan(self._connection, self._table, self._table.key, True)._selected(at, at))
            yield long_row(self._connection, self._table.name, self._columns, at)

    def _note(self, error: sqlite3.DatabaseError) -> None:
        _raise_unless_damage(error)
        self.damages += 1
        self.damage = self.damage or str(error)

    def _selected(self, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        key = ", ".join(quoted(column) for column in self._table.key)
        conditions, values = [], []
        if self.has_rowid:
            conditions, values = ["rowid BETWEEN ? AND ?"], [first, last]
        allowed, named = _allowed(self._table)
        if allowed:
            conditions.append(f"({allowed})")
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        wanted = ", ".join(quoted(column) for column in self._columns)
        yield from self._execute(
            f"SELECT {'rowid' if self.has_rowid else '0'}, {wanted} "
            f"FROM {quoted(self._table.name)} "
            f"{where}ORDER BY {'rowid' if self.has_rowid else key}",
            (*values, *named),
        )

    def _nearest(self, at: int) -> int:
        """The first rowid from one on; the one behind the last if there is none."""
        if at > LAST_ROWID:
            return at
        name = quoted(self._table.name)
        query = f"SELECT rowid FROM {name} WHERE rowid >= ? ORDER BY rowid LIMIT 1"
        found = self._execute(query, (at,)).fetchone()
        if found and found[0] < at:
            error = sqlite3.DatabaseError("its rows are out of order")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return found[0] if found else LAST_ROWID + 1

    def _beyond(self, at: int) -> int:
        """The nearest rowid from which on something can be found again."""
        at = -1 if at == FIRST_ROWID else at
        low, step = at, 1
        while not self._leads_on(at + step):
            low, step = at + step, step * 2
        high = min(at + step, LAST_ROWID + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._leads_on(middle) else (middle, high)
        return high

    def _leads_on(self, at: int) -> bool:
        try:
            self._nearest(at)
        except sqlite3.DatabaseError as error:
            _raise_unless_damage(error)
            return False
        return True


def _limit(connection: sqlite3.Connection, most: int) -> None:
    """Let the database refuse longer cells instead of giving them whole. Of a text in UTF-16 it
    would give bytes that are no UTF-8."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    if encoding == "UTF-8":
        connection.setlimit(LENGTH, most)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether it is the same each time: not that the disk fails, or that others write."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE


def _raise_unless_damage(error: sqlite3.DatabaseError) -> None:
    if not _is_damage(error):
        raise error


def _allowed(table: Table) -> tuple[str, list[str]]:
    """The condition that a key is one of those named. The plus keeps the scan in rowid order."""
    key = f"+{quoted(table.key[0])}"
    parts = [f"{key} = ?" for _ in table.keys]
    values = list(table.keys)
    for prefix in table.prefixes:
        parts.append(f"({key} >= ? AND {key} < ?)")
        values += [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
    return " OR ".join(parts), values


def _is_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is a plain table of this name: neither a view nor a virtual one."""
    found = connection.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)
    ).fetchone()
    return bool(found) and str(found[0]).upper().startswith("CREATE TABLE")


def _columns(connection: sqlite3.Connection, name: str) -> tuple[str, ...]:
    described = connection.execute(f"SELECT * FROM {quoted(name)} LIMIT 0").description
    return tuple(column[0] for column in described)


def _has_rowid(connection: sqlite3.Connection, name: str) -> bool:
    try:
        connection.execute(f"SELECT rowid FROM {quoted(name)} LIMIT 0")
    except sqlite3.OperationalError:
        return False
    return True
