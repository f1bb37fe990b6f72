"""What a reader is: it stores nothing and opens nothing; it says what kept records mean."""

from __future__ import annotations

import hashlib
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from msgspec import Struct, structs

from agents_ledger.importers.parsing.duplicate_keys import is_sound, repeated_name
from agents_ledger.importers.parsing.encodings import BOM, Bytes, Utf8
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.model.imports.records import (
    PARTED,
    Framed,
    Parted,
    Peeked,
    RowRecord,
    digest,
    peek,
    raw,
    records,
    unframe,
)
from agents_ledger.model.imports.sources import (
    Derivation,
    Fate,
    Fault,
    SourceFile,
    SourceKind,
    SourceTitle,
)

SHOWN = 80  # letters of a value in a fault
RECORD_MAX = 64 << 20  # a longer record is kept and reported, but not parsed
TEXT_MAX = 28 << 20  # so is one with a text that takes more than this in memory
TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)  # to its end, or to the end of all
WIDEST = 4
WIDTHS = (  # bytes in memory of all letters of a text that has one of these
    (WIDEST, re.compile(rb"[\xf0-\xf4]|(?<!\\)(?:\\\\)*+\\u[dD][89abAB]")),
    (2, re.compile(rb"[\xc4-\xef]|(?<!\\)(?:\\\\)*+\\u(?!00)")),
)
CONTINUING = bytes(range(0x80, 0xC0))  # bytes that go on with a letter
ESCAPED = len(rb"\u0000") - 1  # bytes that are no letter either
NO_TEXT = "not UTF-8: bytes that are no text are shown as \ufffd"
UTF_16 = "it is UTF-16, as PowerShell writes it: kept so, and read"
HOLD_MAX = 24 << 20  # a larger family is read again for its content, to spare memory
ROW_VALUES = 6  # times the bytes of a row: its values in memory
IDENTITY = 16  # bytes
SOME_TEXT = re.compile(rb".{1,%d}[\x80-\xbf]{0,3}" % (1 << 20), re.DOTALL)  # whole letters
LENGTH_BITS = 32  # of a line: see RECORD_MAX


class Home(NamedTuple):
    """Where a user's programs keep their files."""

    home: Path
    environment: Mapping[str, str]
    platform: str  # as sys.platform

    def chosen(self, variable: str, otherwise: Path) -> Path:
        """The folder that a variable names; one that is set to nothing names none."""
        return Path(self.environment.get(variable) or otherwise)

    def config(self, name: str) -> Path:
        """The folder in which a desktop program keeps its data."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support" / name
        if self.platform == "win32":
            return self.chosen("APPDATA", self.home / "AppData" / "Roaming") / name
        return self.chosen("XDG_CONFIG_HOME", self.home / ".config") / name

    def data(self, name: str) -> Path:
        """The folder in which a command-line program keeps its data."""
        return self.chosen("XDG_DATA_HOME", self.home / ".local" / "share") / name


class Line(Struct, frozen=True, gc=False):
    """One record of a file of lines."""

    file: SourceFile
    offset: int
    length: int
    number: int  # from 1
    data: bytes | None  # None: to be read again

    def fingerprint(self) -> bytes:
        """Tells this record from another with the same id."""
        return b"%d:%d;" % (self.length, zlib.crc32(self.data or b""))


class Place(Struct, frozen=True, gc=False, array_like=True):
    """Where a record stands, to be read again: there may be very many."""

    file_id: int
    span: int  # its offset, shifted by LENGTH_BITS, and its length


Held = bytes | Place
"""A record to be read later: what it says, or of large families only where it stands."""


class Table(NamedTuple):
    """A table of a source's databases, and which of its rows may be read."""

    name: str
    key: tuple[str, ...]  # the columns that tell a row from the others; none: all of them
    keys: tuple[str, ...] = ()  # of the first key column; none named: all rows
    prefixes: tuple[str, ...] = ()
    grows: bool = False  # a row that changes gets a larger rowid: it is written anew
    is_small: bool = False  # what its rows said is remembered beside, to compare them with


class Row(Struct, frozen=True, gc=False, array_like=True):
    """One record of a database."""

    file_id: int
    offset: int
    length: int
    table: str
    values: dict[str, Any] | None  # None: to be read again
    print: bytes
    latest: bool  # no later version of the row is kept

    def fingerprint(self) -> bytes:
        """Tells this version of a row from another."""
        return self.print


class _Version(NamedTuple):
    """A row as it was kept, without its bytes."""

    offset: int
    length: int
    row: RowRecord | None
    print: bytes
    long_value: int


def _version(framed: Framed) -> _Version:
    print_ = digest(framed.data)
    return _Version(framed.offset, framed.length, framed.row, print_, long_value(framed))


def long_value(framed: Framed) -> int:
    """The bytes of a value of a row that is too long to read; 0: there is none."""
    has_large = framed.length * WIDEST > TEXT_MAX
    if framed.row is None or not (has_large or PARTED in framed.data):
        return 0
    for value in framed.row.values:
        parted = Parted.of(value)
        if parted is not None:
            return parted.size
        if not has_large or (isinstance(value, str) and _is_narrow_text(value)):
            continue
        data = raw(value)
        if has_long_text(data) if data[:1] in (b"{", b"[") else is_long(data):
            return len(data)
    return 0


def _is_narrow_text(text: str) -> bool:
    return len(text) <= TEXT_MAX and text.isascii() and r"\u" not in text


def _latest(identities: bytes | bytearray) -> bytearray:
    """Of each of these, which stand side by side, whether it does not come again."""

    def identity(number: int) -> bytes:
        return bytes(identities[IDENTITY * number : IDENTITY * number + IDENTITY])

    found = bytearray(len(identities) // IDENTITY)
    lots: dict[int, array[int]] = {}  # by the first byte: memory shall not hold all as objects
    for number in range(len(found)):
        lots.setdefault(identities[IDENTITY * number], array("I")).append(number)
    for lot in lots.values():
        for number in {identity(number): number for number in lot}.values():
            found[number] = True
    return found


def _held(file: SourceFile) -> int:
    """How many bytes it takes to hold what a file says."""
    return file.kept_bytes * (ROW_VALUES if file.kind == "rows" else 1)


def fingerprint(version: int, prints: Iterable[bytes]) -> bytes:
    """Of the records a turn comes from, as this version of a reader understands them."""
    digest = hashlib.blake2b(b"%d;" % version, digest_size=16)
    for each in prints:
        digest.update(each)
    return digest.digest()


def texts(data: bytes, errors: str) -> Iterator[str]:
    """What UTF-8 says, some at a time: a letter may take four bytes in memory."""
    return (some[0].decode(errors=errors) for some in SOME_TEXT.finditer(data))


def is_text(data: bytes, errors: str = "surrogatepass") -> bool:
    """Whether it is UTF-8; halves of letters may stand in it, unless it is to be "strict"."""
    try:
        for _ in texts(data, errors):
            pass
    except UnicodeDecodeError:
        return False
    return True


def has_long_text(data: bytes) -> bool:
    """Whether a text in some JSON would take too much memory: it is held two or three times."""
    least = TEXT_MAX // WIDEST
    if len(data) <= least or _is_narrow(data):
        return False
    for text in TEXT.finditer(data):
        start, end = text.span()
        if end - start > least and is_long(data[start:end]):
            return True
    return False


def _is_narrow(text: bytes) -> bool:
    """Whether it takes no more than its bytes, and these are few enough: quickly told."""
    return len(text) <= TEXT_MAX and text.isascii() and rb"\u" not in text


def is_long(text: bytes) -> bool:
    """Whether a text, as it is or as JSON has it, would take so much."""
    if len(text) * WIDEST <= TEXT_MAX or _is_narrow(text):
        return False
    escaped = text.count(rb"\u") - text.count(rb"\\u")  # not where a backslash stands before it
    letters = len(text.translate(None, CONTINUING)) - ESCAPED * escaped
    width = next((width for width, sign in WIDTHS if sign.search(text)), 1)
    return letters * width > TEXT_MAX


Titles = Callable[[Iterable[str]], Iterable[SourceTitle]]


class Material:
    """The kept files of a family, for a reader to derive from."""

    def __init__(
        self,
        sources: Bytes,
        files: Sequence[SourceFile],
        version: int = 0,
        titles: Titles = lambda _: (),
    ) -> None:
        """`version` of the reader, unless everything is to be read again. `titles` gives what other
        files call the sessions of records."""
        self.titles = titles
        self._sources = Utf8(sources, self._is_wide)
        self._version = version
        self.files = tuple(files)
        self.faults: list[Fault] = []
        self.counts: Counter[tuple[str, Fate]] = Counter()
        self.firsts: dict[str, str] = {}  # of each type that makes no rows, the first record
        self._line: Line | None = None  # that is looked at
        self._peeked: dict[int, list[Peeked]] = {}
        self._timeless: set[int] = set()  # files with something else for a time
        self.holds = sum(map(_held, files)) <= HOLD_MAX

    def _is_wide(self, file_id: int) -> None:
        path = next((file.path for file in self.files if file.id == file_id), None)
        if path is not None:
            self.faults.append(Fault(path, UTF_16))

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """The lines of a file in order; blank ones, and ones too long to parse, are left out."""
        begun: list[bytes] = []  # of a line that goes on in the next block
        blocks = self._sources.stream(file.id)
        first = next(blocks, b"")
        length, start, number = 0, len(BOM) if first.startswith(BOM) else 0, 1
        for block in chain((first[start:],), blocks, (b"\n",)):
            *ended, rest = block.split(b"\n")
            for piece in ended:
                length += len(piece)
                data = b"".join([*begun, piece]) if begun else piece
                begun = []
                if length > RECORD_MAX or has_long_text(data):
                    self._overlong(file, start, number, length)
                elif data and not data.isspace():
                    self._line = line = Line(file, start, length, number, data)
                    self.check(line, data)
                    yield line
                start, number, length = start + length + 1, number + 1, 0
            length += len(rest)
            if length > RECORD_MAX:
                begun = []
            elif rest:
                begun.append(rest)
        self._line = None

    def _overlong(self, file: SourceFile, offset: int, number: int, length: int) -> None:
        what = f"a record of {length:,} bytes is kept, but too long to read"
        at = self._sources.kept_at(file.id, offset)
        self.faults.append(Fault(file.path, what, at, number))
        self.count("(overlong)", "malformed")

    def too_long(self, file: SourceFile, offset: int, row: RowRecord, length: int) -> None:
        """Report a row with a value so long that it is not read."""
        named = dict(zip(row.columns, row.values, strict=False))
        key = ", ".join(str(named.get(column))[:SHOWN] for column in row.key)
        what = f"a value of {length:,} bytes is kept, but too long to read: {row.table} {key}"
        self.faults.append(Fault(file.path, what, offset))
        self.count("(overlong)", "malformed")

    def held(self, line: Line) -> Held:
        """A line for later."""
        if self.holds:
            return line.data or b""
        return Place(line.file.id, line.offset << LENGTH_BITS | line.length)

    def bytes_of(self, held: Line | Held) -> bytes:
        """The bytes of a line."""
        if isinstance(held, bytes):
            return held
        if isinstance(held, Place):
            offset, length = held.span >> LENGTH_BITS, held.span & (1 << LENGTH_BITS) - 1
            return self._sources.read(held.file_id, offset, length)
        if held.data is not None:
            return held.data
        return self._sources.read(held.file.id, held.offset, held.length)

    def document(self, file: SourceFile) -> bytes:
        """The whole of a file."""
        data = BytesIO()  # unlike a list of blocks to be joined it holds them once
        data.writelines(self._sources.stream(file.id))
        return data.getvalue()

    def text_document(self, file: SourceFile) -> bytes:
        """The whole of a file of text; what is none is reported."""
        data = self.document(file)
        self.check(file, data)
        return data

    def check(self, at: Line | Row | SourceFile, data: bytes) -> None:
        """Report JSON that means less than it says: bytes that are no text, and values that another
        of the same name stands behind."""
        if is_sound(data):
            return
        if not (data.isascii() or is_text(data)):
            self.fault(at, NO_TEXT)
        name = repeated_name(data)
        if name is not None:
            self.fault(at, f"{name[:SHOWN]!r} stands twice in one object: the last one counts")

    def blocks(self, file: SourceFile) -> Iterator[bytes]:
        """A file's bytes, some at a time."""
        return self._sources.stream(file.id)

    def was_derived(self, file: SourceFile) -> bool:
        """Whether some of a file was derived as it would be now."""
        return 0 < self._version == file.derived_version and file.derived_bytes > 0

    def is_derived(self, file: SourceFile) -> bool:
        """Whether all of it was."""
        return self.was_derived(file) and file.derived_bytes == file.kept_bytes

    def peek(self, file: SourceFile) -> Iterator[Peeked]:
        """Every version of every row, without what it says."""
        if not self.holds:
            return peek(self._sources.stream(file.id))
        if file.id not in self._peeked:
            self._peeked[file.id] = list(peek(self._sources.stream(file.id)))
        return iter(self._peeked[file.id])

    def rows(
        self, file: SourceFile, wanted: Callable[[Peeked], bool] | None = None
    ) -> Iterator[Row]:
        """Every version of every row, or of those wanted, in the order they were kept."""
        held: list[_Version] = []
        latest = iter(_latest(self._identities(file, wanted, held)))
        for each in held or map(_version, self._framed(file, wanted)):
            row = each.row
            if row is None:
                self.faults.append(Fault(file.path, "not a row", each.offset))
                self.count("(malformed)", "malformed")
                continue
            if each.long_value:
                self.too_long(file, each.offset, row, each.long_value)
                continue
            values = dict(zip(row.columns, row.values, strict=False))
            is_latest = bool(next(latest))
            found = Row(file.id, each.offset, each.length, row.table, values, each.print, is_latest)
            self._check_cells(found)
            yield found

    def _check_cells(self, row: Row) -> None:
        for cell in row.values.values() if row.values else ():
            if isinstance(cell, str) and cell[:1] in ("{", "["):
                self.check(row, cell.encode(errors="surrogatepass"))
            elif isinstance(cell, bytes) and cell[:1] in (b"{", b"["):
                self.check(row, cell)

    def _identities(
        self, file: SourceFile, wanted: Callable[[Peeked], bool] | None, held: list[_Version]
    ) -> bytearray:
        """Of all rows, side by side. What may be held is added to `held`."""
        identities = bytearray()
        for framed in self._framed(file, wanted):
            if framed.row is not None and not long_value(framed):
                identities += framed.row.identity
            if self.holds:
                held.append(_version(framed))
        return identities

    def _framed(
        self, file: SourceFile, wanted: Callable[[Peeked], bool] | None
    ) -> Iterator[Framed]:
        if wanted is None:
            return records(self._sources.stream(file.id))
        return (
            Framed(row.offset, len(row.data), row.data, unframe(row.data))
            for row in self.peek(file)
            if wanted(row)
        )

    def held_row(self, row: Row) -> Row:
        """The row to keep for later: of large families only where it stands."""
        return row if self.holds else structs.replace(row, values=None)

    def values_of(self, row: Row) -> dict[str, Any]:
        """The values of a held row."""
        if row.values is not None:
            return row.values
        found = unframe(self._sources.read(row.file_id, row.offset, row.length))
        return dict(zip(found.columns, found.values, strict=False)) if found else {}

    def fault(self, at: Line | Row | SourceFile, what: str) -> None:
        """Report what could not be understood."""
        file = self.file_of(at)
        offset = 0 if isinstance(at, SourceFile) else self._sources.kept_at(file.id, at.offset)
        number = at.number if isinstance(at, Line) else None
        self.faults.append(Fault(file.path, what, offset, number))

    def file_of(self, at: Line | Row | SourceFile) -> SourceFile:
        """The file that something stands in."""
        if isinstance(at, SourceFile):
            return at
        if isinstance(at, Line):
            return at.file
        return next(file for file in self.files if file.id == at.file_id)

    def moment(self, said: object, at: Line | Row | SourceFile) -> int:
        """When something was, in Unix milliseconds; 0 if it does not say. What is no time is
        reported, once a file."""
        found = milliseconds(said)
        if not found and said not in (None, "", 0):
            file = self.file_of(at)
            if file.id not in self._timeless:
                self._timeless.add(file.id)
                self.fault(at, f"not a time: {str(said)[:SHOWN]}")
        return found

    def count(self, kind: str, fate: Fate, number: int = 1) -> None:
        """Account for records."""
        self.counts[kind, fate] += number
        if fate == "unmapped" and self._line is not None and kind not in self.firsts:
            self.firsts[kind] = f"{self._line.file.path}:{self._line.number}"


class Trace(NamedTuple):
    """What a source made of the folder of a project; the folder itself cannot be had from it."""

    # A hash; all but letters and digits as dashes; or it stands in what is too long to look at.
    kind: Literal["md5", "sha256", "dashes", "long"]
    value: str


Project = str | Trace
Found = TypeVar("Found")
Select = Callable[[Table, Sequence[str]], Iterator[tuple[Any, ...]]]  # columns of a table's rows


class Look(Protocol):
    """What may be looked at to tell projects; nothing of it is kept."""

    def head(self, path: Path, size: int = ...) -> bytes:
        """The first bytes of a file; none if it cannot be read."""

    def document(self, path: Path, read: Callable[[Any], Found]) -> Found:
        """What `read` makes of a JSON document; of None if it is none. Made once until it changes,
        for all files that it tells of."""

    def names(self, folder: Path) -> Collection[str]:
        """What stands in a folder, in order."""

    def folder(self, path: Path) -> str | None:
        """The folder that the first record of a file to name its own worked in."""

    def folder_beside(self, place: Path) -> str | None:
        """That of the first file of lines in a folder that says one."""

    def rows(self, path: Path, table: Table, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Rows of another database."""

    def row(
        self, path: Path, table: Table, columns: Sequence[str], first: str
    ) -> tuple[Any, ...] | None:
        """That of them whose first column says this."""


class Reader(Protocol):
    """One source. Readers never write, and never see a database of ours."""

    name: str  # the origin of its sessions
    version: int  # raised when the same records come to be understood differently
    kind: SourceKind

    def roots(self, home: Home) -> Sequence[Path]:
        """The folders or files where this source keeps its history."""

    def wants(self, path: Path) -> bool:
        """Whether a file found below a root is one of history."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file is of this source, by its first bytes, whatever it is called."""

    def family(self, path: Path) -> str:
        """The key of the files that must be derived together with this one."""

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """The projects of a file. None: nothing tells; an empty one: it has none, or its rows
        tell."""

    def derive(self, material: Material) -> Derivation:
        """What the records say."""


@runtime_checkable
class ReaderOfKinds(Reader, Protocol):
    """A source whose files are not all of one kind."""

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """How this file is written; its first bytes count before its name."""


@runtime_checkable
class ReaderOfNames(Reader, Protocol):
    """A source whose files are called as no other's are."""

    def is_named(self, path: Path, head: bytes) -> bool:
        """Whether a file that nothing else tells is of this source by its name, and says nothing
        else where it begins."""


@runtime_checkable
class ReaderOfRows(ReaderOfKinds, Protocol):
    """A source that keeps its history in databases, and perhaps in files beside them."""

    tables: Sequence[Table]  # no other is ever read


class Sieve(Protocol):
    """Which rows of a database may be kept, where projects are left out."""

    left: frozenset[str]  # what is left out, by name
    doubted: frozenset[str]  # of these, what says its project where it is too long to look for
    untold: set[str]  # what says no project, so far

    def __call__(self, row: RowRecord) -> RowRecord | None:
        """The row as far as it may be kept."""


@runtime_checkable
class ReaderOfManyProjects(ReaderOfRows, Protocol):
    """A source that keeps many projects in one database."""

    def sieve(
        self, path: Path, own: Select, look: Look, is_left: Callable[[Project], bool]
    ) -> Sieve:
        """What of it may be kept. `own` gives rows of the database itself, as it is read."""


# To ask whether a reader meets a protocol takes as long as to open a file: these look for the name.


def kind_of(reader: Reader, path: Path, head: Callable[[], bytes]) -> SourceKind:
    """How a file of a source is written; `head` gives its first bytes, where they tell."""
    of_kinds: Callable[[Path, bytes], SourceKind] | None = getattr(reader, "kind_of", None)
    return of_kinds(path, head()) if of_kinds is not None else reader.kind


def tables_of(reader: Reader) -> Sequence[Table]:
    """The tables that a source keeps its history in."""
    tables: Sequence[Table] = getattr(reader, "tables", ())
    return tables
