"""Which turn each call or task of a file belongs to, packed: a session may have a million."""

from __future__ import annotations

from array import array

from agents_ledger.model.imports.interning import Numbering


class TurnIndex:
    """Turns by the ids of calls or tasks. One that is added again belongs to its latest turn."""

    def __init__(self) -> None:
        self._ids = Numbering(forgets=True)
        self._turns = array("i")
        self._entries = array("i")

    def add(self, name: str, turn: int, entry: int = -1) -> None:
        """Add an id with its turn and the entry that started it."""
        number = self._ids.add(name)
        if number == len(self._turns):
            self._turns.append(turn)
            self._entries.append(entry)
        else:
            self._turns[number], self._entries[number] = turn, entry

    def turn(self, name: str | None) -> int | None:
        """The turn of an id."""
        number = self._ids.get(name) if name else -1
        return self._turns[number] if number >= 0 else None

    def entry(self, name: str) -> int | None:
        """The entry that started a call."""
        number = self._ids.get(name)
        return self._entries[number] if number >= 0 else None
