"""Turns keep their ids though the content that a source makes ids of was removed.

Most sources have ids of their own. Where one makes an id of content, redacted records give another
one: the ledger remembers which id it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from agents_ledger.model.ids import as_id
from agents_ledger.model.imports.sources import Derivation, DerivedTurn, Renaming, Turns
from agents_ledger.model.turns import Turn

T = TypeVar("T", bound=Struct)
_ID_LISTS = ("query_message_ids",)


class Outline(NamedTuple):
    """What a derivation calls its turns, records and sessions, in their order."""

    turns: tuple[tuple[str, bytes, tuple[str, ...]], ...]  # id, fingerprint, records
    sessions: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, derivation: Derivation) -> Outline:
        """The outline of a derivation."""
        return cls(
            tuple(
                (as_id(turn.id), turn.fingerprint, tuple(map(as_id, turn.record_ids)))
                for turn in derivation.turns
            ),
            tuple((s.label, s.session_id, *s.aliases) for s in derivation.sessions),
        )


def renaming(before: Outline, after: Outline) -> Renaming | None:
    """What the ids of redacted records stand for; None if they give another tree."""
    shapes = ([(len(turn[2])) for turn in outline.turns] for outline in (before, after))
    names = ([len(session) for session in outline.sessions] for outline in (before, after))
    if len({tuple(shape) for shape in shapes}) > 1 or len({tuple(name) for name in names}) > 1:
        return None
    pairs: Iterator[tuple[str, str]] = chain(
        ((new[0], old[0]) for old, new in zip(before.turns, after.turns, strict=True)),
        (
            pair
            for old, new in zip(before.turns, after.turns, strict=True)
            for pair in zip(new[2], old[2], strict=True)
        ),
        (
            pair
            for old, new in zip(before.sessions, after.sessions, strict=True)
            for pair in zip(new, old, strict=True)
        ),
    )
    fingerprints = {
        old[0]: (old[1], new[1])
        for old, new in zip(before.turns, after.turns, strict=True)
        if old[1] != new[1]
    }
    return Renaming({new: old for new, old in pairs if new != old}, fingerprints)


def keeping_ids(derivation: Derivation, ids: Mapping[str, str]) -> Derivation:
    """The derivation with the ids that its turns and sessions had before their records were
    redacted."""
    if not ids:
        return derivation
    return structs.replace(
        derivation,
        turns=_RenamedTurns(derivation.turns, ids),
        sessions=tuple(_renamed(session, ids) for session in derivation.sessions),
    )


class _RenamedTurns:
    def __init__(self, turns: Turns, ids: Mapping[str, str]) -> None:
        self._turns = turns
        self._ids = ids

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[DerivedTurn]:
        for turn in self._turns:
            yield structs.replace(
                _renamed(turn, self._ids),
                record_ids=_RenamedIds(turn.record_ids, self._ids),
                repeated_ids=_RenamedIds(turn.repeated_ids, self._ids),
                owner=self._ids.get(turn.owner or "", turn.owner),
                build=_building(turn.build, self._ids),
            )


class _RenamedIds:
    def __init__(self, names: Iterable[str], ids: Mapping[str, str]) -> None:
        self._names = names
        self._ids = ids

    def __iter__(self) -> Iterator[str]:
        return (self._ids.get(as_id(name), name) for name in self._names)


def _building(build: Callable[[], Turn], ids: Mapping[str, str]) -> Callable[[], Turn]:
    def renamed() -> Turn:
        turn = build()
        compaction = turn.compaction
        return structs.replace(
            _renamed(turn, ids),
            messages=_steps(turn.messages, ids),
            tool_calls=_steps(turn.tool_calls, ids),
            compaction=None if compaction is None else _renamed(compaction, ids),
        )

    return renamed


def _steps(steps: Sequence[T], ids: Mapping[str, str]) -> Sequence[T]:
    if isinstance(steps, tuple):
        return tuple(_renamed(step, ids) for step in steps)
    return cast("Sequence[T]", _RenamedSteps(steps, ids))


class _RenamedSteps:
    """Steps of a large turn, which are read while they are iterated."""

    def __init__(self, steps: Iterable[Any], ids: Mapping[str, str]) -> None:
        self._steps = steps
        self._ids = ids

    def __len__(self) -> int:
        return len(cast("Sequence[Any]", self._steps))

    def __iter__(self) -> Iterator[Any]:
        return (_renamed(step, self._ids) for step in self._steps)


def _renamed(value: T, ids: Mapping[str, str]) -> T:
    """A value with its fields that are ids or labels renamed."""
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        if name not in _NAMING and not name.endswith(("_id", "_label")) and name not in _ID_LISTS:
            continue
        current = getattr(value, name)
        if isinstance(current, str) and name in _ID_LISTS:
            listed = msgspec.json.decode(current, type=list[str])
            new = [ids.get(item, item) for item in listed]
            if new != listed:
                changes[name] = msgspec.json.encode(new).decode()
        elif isinstance(current, str) and as_id(current) in ids:
            changes[name] = ids[as_id(current)]
        elif isinstance(current, tuple):
            changes[name] = tuple(ids.get(item, item) for item in current)
    return structs.replace(value, **changes) if changes else value


_NAMING = frozenset({"id", "label", "head", "aliases"})
