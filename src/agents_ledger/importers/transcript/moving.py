"""Until all sources use LazyTurns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from agents_ledger.model.imports.sources import DerivedTurn, Turns

T = TypeVar("T")
HELD_TURNS = 10_000


class _Made(Generic[T]):
    """Turns that are made whenever they are gone through."""

    def __init__(self, given: Sequence[T], make: Callable[[T], DerivedTurn]) -> None:
        self._given = given
        self._make = make

    def __len__(self) -> int:
        return len(self._given)

    def __iter__(self) -> Iterator[DerivedTurn]:
        return map(self._make, self._given)


def made(given: Sequence[T], make: Callable[[T], DerivedTurn]) -> Turns:
    """Turns made of what is given; where they are many, memory need not hold them."""
    found = _Made(given, make)
    return tuple(found) if len(given) <= HELD_TURNS else found


class NamedLater:
    """Records of one turn, named whenever they are gone through."""

    def __init__(self, names: Callable[[int], Iterable[str]], turn: int) -> None:
        self._names = names
        self._turn = turn

    def __iter__(self) -> Iterator[str]:
        return iter(self._names(self._turn))


def answered_above(
    turn: str | None, parents: Mapping[str, str | None], answered: Callable[[str], bool]
) -> str | None:
    """The nearest turn that was answered: a pending prompt is never a head."""
    seen: set[str] = set()
    while turn is not None and turn not in seen and not answered(turn):
        seen.add(turn)
        turn = parents.get(turn)
    return None if turn in seen else turn
