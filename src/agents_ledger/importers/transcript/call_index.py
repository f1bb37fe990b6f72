"""Which turn each tool call of a file belongs to, packed: a session may have a million calls."""

from __future__ import annotations

from array import array

from agents_ledger.model.imports.interning import Numbering


class CallIndex:
    """Calls by id. A call that starts again belongs to its latest turn."""

    def __init__(self) -> None:
        self._ids = Numbering(forgets=True)
        self._turns = array("i")
        self._entries = array("i")

    def add(self, call_id: str, turn: int, entry: int = -1) -> None:
        """Add a call with its turn and the entry that started it."""
        call = self._ids.add(call_id)
        if call == len(self._turns):
            self._turns.append(turn)
            self._entries.append(entry)
        else:
            self._turns[call], self._entries[call] = turn, entry

    def turn(self, call_id: str | None) -> int | None:
        """The turn of a call."""
        call = self._ids.get(call_id) if call_id else -1
        return self._turns[call] if call >= 0 else None

    def entry(self, call_id: str) -> int | None:
        """The entry that started a call."""
        call = self._ids.get(call_id)
        return self._entries[call] if call >= 0 else None
