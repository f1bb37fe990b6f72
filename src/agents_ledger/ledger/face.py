"""How the verbs of Ledger reach the store. `aio/async_face.py` is the same for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar, cast

from agents_ledger.ledger.core import Core
from agents_ledger.store.database import Work

if TYPE_CHECKING:
    from agents_ledger.ledger.turns.live_state import LiveState

P = ParamSpec("P")
T = TypeVar("T")


class Face:
    """A ledger that is open, without its verbs."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @classmethod
    def open(cls, address: str, *, create: bool = True, read_only: bool = False) -> Self:
        """Open the ledger at a file's path or a `postgresql://` address, creating it if need be."""
        return cls(Core.open(address, create=create, read_only=read_only))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger. Everything acknowledged is stored already."""
        self._core.close()

    def _read(self, work: Work[T]) -> T:
        return self._core.read(work)

    def _write(self, work: Work[T]) -> T:
        return self._core.write(work)

    def _call(
        self, verb: Callable[Concatenate[Core, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Call a method of Core that may take long."""
        return verb(self._core, *args, **options)

    def _writer_id(self) -> str:
        return self._core.db.writer().id

    def _begin(self, state: LiveState, first: Work[None]) -> None:
        """Make the first commit of a live turn."""
        self._write(first)


class Begins:
    """What a verb has begun when it returns; with asyncio, once it is awaited or entered."""

    id: str
    _attempted = False  # to begin

    def _begun(self, state: T | None) -> T:
        return cast("T", state)

    def __enter__(self) -> Self:
        return self


def uninterrupted(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function; with asyncio, also if the caller is cancelled meanwhile."""
    return function(*args, **options)
