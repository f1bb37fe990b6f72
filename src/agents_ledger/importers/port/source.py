"""The base class of all sources. A source opens nothing and stores nothing: it recognises the files
of one agent and derives turns and sessions from their archived records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.model.imports.records import RowRecord
from agents_ledger.model.imports.sources import Derivation, SourceKind

T = TypeVar("T")


class Table(NamedTuple):
    """A table of an agent's database, and which of its rows are read."""

    name: str
    # The columns that identify a row; none: all of them.
    key: tuple[str, ...]
    # Values of the first key column; neither these nor prefixes: all.
    keys: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    # A changed row is written anew, with a larger rowid.
    grows: bool = False
    # Digests of its rows are remembered, to compare them with.
    is_small: bool = False


class FolderTrace(NamedTuple):
    """What an agent made of the path of a project folder; the path cannot be recovered from it."""

    # A hash; the path with all but letters and digits as dashes; or a value too long to look into.
    kind: Literal["md5", "sha256", "dashes", "long"]
    value: str


Project = str | FolderTrace
SelectRows = Callable[[Table, Sequence[str]], Iterator[tuple[Any, ...]]]


class FileProbe(Protocol):
    """What a source may look at to find out the project of a file. Nothing of it is archived."""

    def head(self, path: Path, size: int = ...) -> bytes:
        """The first bytes of a file; empty if it cannot be read."""

    def document(self, path: Path, read: Callable[[Any], T]) -> T:
        """The result of `read` for a JSON document (None if it is not JSON), cached until the file
        changes."""

    def names(self, folder: Path) -> Collection[str]:
        """The sorted names in a folder."""

    def working_folder(self, path: Path) -> str | None:
        """The working folder that the first record of a file with one names."""

    def working_folder_within(self, folder: Path) -> str | None:
        """The working folder of the first file of lines in a folder that names one."""

    def rows(self, path: Path, table: Table, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Rows of another database."""

    def row(
        self, path: Path, table: Table, columns: Sequence[str], first: str
    ) -> tuple[Any, ...] | None:
        """The one of these rows whose first column has this value."""


class RowFilter(Protocol):
    """Decides which rows of a database are archived when projects are excluded."""

    excluded: frozenset[str]  # ids of sessions
    # Those of them whose project is in a value too long to look into.
    uncertain: frozenset[str]
    without_project: set[str]  # found so far

    def __call__(self, row: RowRecord) -> RowRecord | None:
        """The row, or as much of it as may be archived."""


class SharedDatabase(NamedTuple):
    """A database with sessions of several projects, some of which are excluded."""

    path: Path
    select: SelectRows  # reads its rows
    probe: FileProbe
    is_excluded: Callable[[Project], bool]


class Source:
    """An agent whose history can be imported. Subclasses implement `recognises` and `derive`, and
    whatever else does not fit the defaults."""

    name: str  # the origin of its sessions
    # Raised when the same records come to be understood differently.
    version: int
    kind: SourceKind = "lines"
    tables: Sequence[Table] = ()  # of its databases; no other table is ever read

    def roots(self, home: Home) -> Sequence[Path]:
        """The folders or files where the agent stores its history."""
        return ()

    def wants(self, path: Path) -> bool:
        """Whether a file below a root is part of the history."""
        return False

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file was written by this agent, by its first bytes, whatever its name."""
        raise NotImplementedError

    def is_named(self, path: Path, head: bytes) -> bool:
        """Whether a file that no source recognises has a name that only this agent uses, and
        nothing at its beginning contradicts that."""
        return False

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """How a file is written, by its first bytes and its name."""
        return self.kind

    def family(self, path: Path) -> str:
        """The key that a file shares with all files that must be derived together with it."""
        return f"{self.name}:{path}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        """The projects of a file. None: unknown; empty: it has none, or its rows have."""
        return None

    def row_filter(self, database: SharedDatabase) -> RowFilter | None:
        """A filter for the rows of a database with several projects."""
        return None

    def derive(self, material: Material) -> Derivation:
        """Turns and sessions of a family of files."""
        raise NotImplementedError
