"""Codex: histories in pages, in which a rollout does not replay another but goes on from a place in
it. All records have ordinals there, which go on, too."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from agents_ledger.importers.sources.codex.parts import Parts
from agents_ledger.importers.sources.codex.turns import NAME
from agents_ledger.importers.transcript.turn_tree import NONE, as_dict, as_text

if TYPE_CHECKING:
    from agents_ledger.importers.sources.codex.rollout import Rollout

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
ROLLOUT = re.compile(rf"rollout-.*?({UUID})(?:_([0-9a-f-]+))?$")  # the thread, and which of its
ORDINALS = range(1 << 63)


class Base(NamedTuple):
    """The place that a rollout goes on from."""

    rollout_id: str
    end: int  # the first ordinal that is not part of it

    @classmethod
    def of(cls, said: Any) -> Base | None:
        """As the first record of a rollout says."""
        rollout_id = as_text(as_dict(said).get("thread_id"))
        end = as_dict(said).get("end_ordinal_exclusive")
        if rollout_id is None or not isinstance(end, int) or end not in ORDINALS:
            return None
        return cls(rollout_id, end)


class Places:
    """With which ordinals the turn in use changed, and to which."""

    def __init__(self) -> None:
        self._ordinals = array("Q")
        self._turns = array("i")

    @property
    def first(self) -> int:
        """The first ordinal of all, or NONE."""
        return self._ordinals[0] if self._ordinals else NONE

    def note(self, ordinal: Any, turn: int) -> None:
        """The turn in use behind a record, or NONE."""
        is_one = isinstance(ordinal, int) and ordinal in ORDINALS
        if not is_one or (self._turns and turn == self._turns[-1]):
            return
        if not self._ordinals or ordinal > self._ordinals[-1]:
            self._ordinals.append(ordinal)
            self._turns.append(turn)

    def before(self, end: int) -> int:
        """The turn in use before a record, or NONE."""
        at = bisect_left(self._ordinals, end) - 1
        return self._turns[at] if at >= 0 else NONE


def stem(path: PurePath) -> str:
    """The name of a rollout without what says how it is written."""
    return path.name.removesuffix(".zst").removesuffix(".jsonl")


def _rollout_id(rollout: Rollout) -> str:
    """By which others name it: a thread that was reverted has several."""
    found = ROLLOUT.match(stem(PurePath(rollout.file.path.replace("\\", "/"))))
    return (found[2] or found[1]) if found else rollout.thread


class Joined(NamedTuple):
    """What makes rollouts one tree that have no record in common: names, and the turns they lead
    to. What names one is part of the files that go on from it."""

    names: dict[str, list[str]]  # by turn
    file_ids: dict[str, set[int]]


def join(rollouts: Sequence[Rollout], parts: Parts) -> Joined:
    """Hang what rollouts begin with on the turns they go on from."""
    by_id: dict[str, Rollout] = {}
    for rollout in rollouts:
        by_id.setdefault(_rollout_id(rollout), rollout)
    for rollout in rollouts:
        above = _above(rollout, by_id)
        for number in rollout.own if above != NONE else ():
            if parts.read(number).parent is None:
                parts[number].parent = parts.read(above).id
    return _joined([rollout for rollout in rollouts if rollout.own], parts)


def _above(rollout: Rollout, by_id: dict[str, Rollout]) -> int:
    """The turn that the first one of a rollout stands below, or NONE. Ordinals grow on the way
    down, or it would be a circle."""
    base, first = rollout.base, rollout.places.first
    met: set[str] = set()
    while base is not None and base.end <= first and base.rollout_id not in met:
        met.add(base.rollout_id)
        other = by_id.get(base.rollout_id)
        if other is None:
            break
        above, first = other.places.before(base.end), other.places.first
        if above != NONE:
            return above
        base = other.base
    return NONE


def _joined(rollouts: Sequence[Rollout], parts: Parts) -> Joined:
    """A rollout is found by its first turn; one that is not here, by that of the first that goes on
    from it."""
    turns: dict[str, str] = {}  # by rollout
    for rollout in rollouts:
        if rollout.places.first != NONE:
            turns.setdefault(_rollout_id(rollout), parts.read(rollout.own[0]).id)
    joined = Joined({}, {})
    for rollout in rollouts:
        if rollout.base is not None:
            own = parts.read(rollout.own[0]).id
            turn = turns.setdefault(rollout.base.rollout_id, own)
            joined.file_ids.setdefault(turn, set()).add(rollout.file.id)
    for rollout_id, turn in turns.items():
        joined.names.setdefault(turn, []).append(f"{NAME}:rollout:{rollout_id}")
    return joined
