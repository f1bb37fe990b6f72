"""opencode: sessions, and their turns by number, made when they are asked for."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any

from msgspec import Struct, field

from agents_ledger.importers.port.source import fingerprint
from agents_ledger.importers.sources.opencode.records import (
    Messages,
    Parts,
    Place,
    Records,
    Task,
    parts_of,
)
from agents_ledger.importers.sources.opencode.turns import build_turn
from agents_ledger.importers.transcript.turn_tree import NONE, as_dict, as_text
from agents_ledger.model.imports.sources import DerivedTurn
from agents_ledger.model.turns import MessageSource

VERSION = 6


class Session(Struct):
    """A session, as far as it is known."""

    id: str
    is_second: bool = False  # its messages are written in the second format
    said: dict[str, Any] = field(default_factory=dict)
    standing: tuple[int, int, bytes] = (-1, 0, b"")
    file_ids: set[int] = field(default_factory=set)
    reverts: dict[str, int] = field(default_factory=dict)  # message -> when it was taken back
    messages: array[int] = field(default_factory=lambda: array("I"))
    parent: str | None = None
    task: Task | None = None

    @property
    def directory(self) -> str | None:
        """Where it worked."""
        place = as_dict(self.said.get("location"))
        return as_text(self.said.get("directory")) or as_text(place.get("directory"))

    @property
    def forked_from(self) -> str | None:
        """The session whose first messages it has copies of."""
        above = as_text(as_dict(self.said.get("fork")).get("sessionID"))
        return above if above != self.id else None


class Turns:
    """The turns of all sessions by number, parents first, each made when it is asked for."""

    def __init__(self, messages: Messages, parts: Parts, forked: Collection[str | None]) -> None:
        """`forked`: sessions that others are forks of; these are added first."""
        self._messages = messages
        self._parts = parts
        self._order = array("I")  # messages
        self._starts = array("I", [0])  # of each turn there; the last is where they end
        self._above = array("i")
        self._compacts = bytearray()
        self._sessions: list[Session] = []
        self._of = array("I")  # its session
        self._forked: dict[str, dict[Place, int]] = {name: {} for name in forked if name}
        self._copies: dict[int, list[int]] = {}  # messages of forks that are the same, by turn

    def __len__(self) -> int:
        return len(self._above)

    def add(self, session: Session) -> str | None:
        """The turns of a session; the head is the last that was answered and not taken back."""
        head = aside = NONE  # the latter is the end of the branch that was taken back
        spans = self._taken_back(session)
        messages, own = self._messages, len(self._sessions)
        self._sessions.append(session)
        above_fork = self._forked.get(session.forked_from or "", {})
        for group in messages.exchanges(session.messages):
            places = messages.places(group)
            turn = self._copied(group, places, above_fork)
            gone = False
            if turn == NONE:
                at = messages.created(group[0])
                gone = any(first <= at <= last for first, last in spans)
                turn = self._put(group, aside if gone and aside != NONE else head, own)
            if places and session.id in self._forked:
                self._forked[session.id][places[0]] = turn
            if gone:
                aside = turn
            elif any(map(messages.answers, group)):
                head, aside = turn, NONE
        return self._name(head)

    def _put(self, group: list[int], above: int, session: int) -> int:
        self._order.extend(group)
        self._starts.append(len(self._order))
        self._above.append(above)
        is_summary = any(map(self._messages.is_summary, group))
        self._compacts.append(above != NONE and is_summary)
        self._of.append(session)
        return len(self) - 1

    def _copied(self, group: list[int], places: list[Place], turns: dict[Place, int]) -> int:
        """The turn that these are copies of, or NONE: a fork begins with copies of what was said
        before, which have new ids, and the same numbers and times."""
        turn = turns.get(places[0], NONE) if places else NONE
        if turn == NONE:
            return NONE
        messages, told = self._messages, self._group(turn)
        times = {*map(messages.created, told)}
        if places != messages.places(told) or not times.issuperset(map(messages.created, group)):
            return NONE
        self._copies.setdefault(turn, []).extend(group)
        return turn

    def _group(self, turn: int) -> array[int]:
        return self._order[self._starts[turn] : self._starts[turn + 1]]

    def _taken_back(self, session: Session) -> list[tuple[int, int]]:
        """From when to when what was said was taken back."""
        messages, found = self._messages, []
        for name, until in session.reverts.items():
            number = messages.ids.get(name)
            if number in messages and self._is_of(number, session):
                found.append((messages.created(number), until))
        return found

    def _is_of(self, message: int, session: Session) -> bool:
        return self._messages.session(message) == self._messages.sessions.get(session.id)

    def _name(self, turn: int) -> str | None:
        return self._messages.ids.name(self._order[self._starts[turn]]) if turn != NONE else None

    def made(self, turn: int) -> DerivedTurn:
        """A turn."""
        group = self._group(turn)
        session, parent = self._sessions[self._of[turn]], self._name(self._above[turn])
        compacts = bool(self._compacts[turn])
        asked_by: MessageSource = "agent" if session.parent else "human"
        told = f"{session.directory};{compacts};{asked_by};".encode(errors="replace")
        prints, file_ids = [told], set()
        for records, number in self._records(group):
            prints.append(records.print(number))
            file_ids.add(records.file_id(number))
        names = tuple(map(self._messages.ids.name, group))
        return DerivedTurn(
            names[0],
            parent,
            fingerprint(VERSION, prints),
            frozenset(file_ids),
            names,
            partial(
                build_turn,
                self._messages,
                self._parts,
                group,
                parent,
                workspace=session.directory,
                compacts=compacts,
                asked_by=asked_by,
            ),
            repeated_ids=tuple(map(self._messages.ids.name, self._copies.get(turn, ()))),
        )

    def _records(self, group: Iterable[int]) -> Iterator[tuple[Records, int]]:
        """Messages, each with its parts behind it."""
        for message in group:
            yield self._messages, message
            for part in parts_of(self._messages, self._parts, message):
                yield self._parts, part
