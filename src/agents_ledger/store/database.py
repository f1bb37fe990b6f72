"""The port to a database, and the one place that picks an engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from agents_ledger.model.errors import Refused
from agents_ledger.model.installation.extras import needed
from agents_ledger.model.limits import LIMITS, LedgerLimits

if TYPE_CHECKING:
    from pathlib import Path

    from agents_ledger.store.sealed_cache import SealedCache

T = TypeVar("T")
Engine = Literal["sqlite", "postgresql"]
Row = tuple[Any, ...]

_SERVER_SCHEMES = ("postgresql://", "postgres://")
_SCHEMES = (*_SERVER_SCHEMES, "sqlite:///")
_SCHEME = re.compile(r"file:|sqlite:/{0,3}|[A-Za-z][A-Za-z0-9+.-]+://")
_SERVER_OPTION = re.compile(r"[?&](schema|read_from)=")
_ADDRESSES = "Give a file's path, or postgresql://USER@HOST/DATABASE."


class Transaction(Protocol):
    """Runs the named statements of sql/queries, all or nothing."""

    engine: Engine
    limits: LedgerLimits
    cache: SealedCache | None  # what was read before; None where what is read may be rolled back

    def run(self, name: str, /, **values: object) -> list[Row]:
        """Run one statement and return its rows, if it has any."""

    def read_as(self, name: str, kind: Callable[..., T], /, **values: object) -> list[T]:
        """Run one statement and make a value of each row, whose columns are what `kind` takes."""

    def kept(self, read: Callable[[Transaction], T], /) -> T:
        """What `read` reads; an engine may keep it until anything is committed."""

    def nearest(
        self, model: str, vector: Sequence[float], low: int, high: int, limit: int, /
    ) -> list[Row] | None:
        """The turns of these numbers whose vectors are most like the one asked for, as rows of
        `vectors` with the likeness in place of the vector; None: the engine cannot tell."""

    def index_nearest(self, model: str, length: int, /) -> None:
        """Have an index answer `nearest` from now on, where the engine can."""

    def attempt(self, read: Callable[[], T], /) -> T:
        """What `read` reads. If that fails, it raises an error of ours, and the transaction can
        still be used."""

    def change(self, name: str, /, **values: object) -> int:
        """Run one statement that writes, and return how many rows it wrote."""

    def run_many(self, name: str, things: Sequence[object], /) -> int:
        """Run one statement once per thing, whose attributes are its values; return how many rows
        were written."""

    def execute(self, sql: str, values: Sequence[object] = (), /) -> list[Row]:
        """Run a statement that has no name: migrations, copies, what a user typed."""

    def defer_references(self) -> None:
        """Check foreign keys at the end of this transaction, not at each statement."""

    def execute_many(self, sql: str, rows: Sequence[Row], /) -> None:
        """The same, once per row."""

    def columns(self, table: str, /) -> list[str]:
        """The names of a table's columns, in order."""

    def stream(self, sql: str, /) -> Iterator[list[Row]]:
        """The rows of a statement as they are stored, a batch at a time."""


Work = Callable[[Transaction], T]
"""What to do within a transaction. It may be run again after a roll-back, so it must not have
effects of its own."""


class Joint(Protocol):
    """A work that can be done at once with others of its kind."""

    def __call__(self, tx: Transaction, /) -> Any: ...

    def together(self, tx: Transaction, works: Sequence[Any], /) -> list[Any]:
        """Do all of them, this one included; what each returns, in their order. None: that one is
        left to be done by itself."""


class Undone(Enum):
    """What a call returns for a work that it left undone."""

    UNDONE = "undone"


UNDONE = Undone.UNDONE


class ServerCall(NamedTuple):
    """A function of a database server (sql/functions.postgres.sql), its values behind those that
    all take, and what the works return by the rows it gave."""

    function: str
    values: tuple[object, ...]
    results: Callable[[list[Row]], list[Any]]


class ServerWork(Protocol):
    """A work that a database server can do with others of its class in one call."""

    @property
    def key(self) -> str:
        """Works of the same key are done one after the other."""

    def __call__(self, tx: Transaction, /) -> Any: ...

    def call(self, works: Sequence[Any], /) -> ServerCall | None:
        """All of them in one call. None: they have to be done by themselves."""

    def repeat(self, tx: Transaction, /) -> Any:
        """Do it, unless a call whose answer was lost has done it."""


class CommitCallback(Protocol):
    """The place where a submitted work's outcome arrives."""

    def set(self, result: Any, error: BaseException | None) -> Callable[[], None]:
        """Called once, from the thread that committed. What it returns wakes whoever waits; once
        is enough for all answers that return the same."""


class Writer(Protocol):
    """Proof that this process lives, for as long as it has live turns."""

    id: str

    def forget(self, writer_id: str) -> None:
        """Clear away what a dead writer left beside the ledger."""


class Database(Protocol):
    """A ledger's tables. Two exist: SQLite and PostgreSQL."""

    engine: Engine
    address: str
    limits: LedgerLimits

    def write(self, work: Work[T]) -> T:
        """Do `work` durably: once this returns, it is stored."""

    def submit(self, work: Work[T], answer: CommitCallback) -> Callable[[], bool]:
        """Like write, without waiting. The function returned withdraws it, if it still can."""

    def read(self, work: Work[T]) -> T:
        """Do `work`, which only reads, on one snapshot."""

    def read_anywhere(self, work: Work[T]) -> T:
        """read(), from a standby where the ledger has one; it may miss what others have just
        written, but nothing that was written through this handle."""

    def read_at_once(self, work: Work[T]) -> T:
        """read(), for an event loop that must not wait; Locked if it would have to."""

    def snapshot(self) -> AbstractContextManager[None]:
        """What this thread reads within the block is read from one snapshot, where that costs
        nothing. What it writes meanwhile is not seen."""

    def query(self, sql: str) -> tuple[list[str], list[Row]]:
        """Column names and rows of a statement somebody typed; it cannot write."""

    def writer(self) -> Writer:
        """This process's proof of life, made on first use."""

    def known_writer(self) -> Writer | None:
        """The same, if it was made."""

    def is_dead(self, writer_id: str, unseen_ms: int) -> bool:
        """Whether another process's writer is certainly gone."""

    def remove_dead_writers(self) -> None:
        """Clear away what writers left beside the ledger that died before they wrote."""

    def restore(self, work: Work[T]) -> T:
        """Do `work` without guards, references checked at its end: for filling a new ledger."""

    def save_to(self, file: Path) -> bool:
        """Fill an empty file with the ledger as it is now. False: this engine has no files."""

    def forget_read(self) -> None:
        """Forget what was read before and kept because it never changes."""

    def scrub(self) -> bool:
        """Clear free pages and the log of what was removed, as far as the engine can; False if
        somebody still reads what was there before."""

    def facts(self) -> dict[str, Any]:
        """What only the engine knows of itself and of where it keeps the ledger."""

    def close(self) -> None: ...


def _check_address(given: object) -> str:
    """The address as text. Refused is what would only make a file of an odd name."""
    if not isinstance(given, (str, PathLike)):
        raise Refused(f"a ledger's address is text, not {given!r:.80}", _ADDRESSES)
    address = str(given)
    if not address.strip() or "\0" in address:
        raise Refused(f"{address!r} is not the address of a ledger", _ADDRESSES)
    if address.startswith(":memory:"):
        raise Refused(
            "a ledger is not kept in memory", "Use a file in a temporary folder for a passing one."
        )
    scheme = _SCHEME.match(address)
    if scheme and scheme[0] not in _SCHEMES:
        raise Refused(f"a ledger's address does not begin with {scheme[0]}", _ADDRESSES)
    option = _SERVER_OPTION.search(address)
    if option and not address.startswith(_SERVER_SCHEMES):
        raise Refused(f"{address} is a file, which has no {option[1]}", _ADDRESSES)
    return address


def open_database(
    address: str, *, create: bool = True, read_only: bool = False, limits: LedgerLimits = LIMITS
) -> Database:
    """A ledger's database by its address, brought to the newest schema."""
    address = _check_address(address)
    if address.startswith(_SERVER_SCHEMES):
        with needed("postgres", "a ledger on PostgreSQL"):
            from agents_ledger.store.postgres.engine import PostgresDatabase

        return PostgresDatabase(address, create=create, read_only=read_only, limits=limits)
    from agents_ledger.store.sqlite.engine import SqliteDatabase

    return SqliteDatabase(address, create=create, read_only=read_only, limits=limits)
