"""Parts of pages that were rendered before, by what they were made from."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
from markupsafe import Markup

CHARACTERS_MAX = 32_000_000  # of keys and HTML together
SHARE = 64  # a part that takes a larger share of the room is not worth the others

_encode = msgspec.msgpack.Encoder().encode


class RenderCache:
    """HTML by every value it shows. Equal values give equal HTML, so an entry cannot be stale:
    whatever changes in the ledger changes the key. What was not used for longest goes first."""

    def __init__(self, characters_max: int = CHARACTERS_MAX) -> None:
        self._max = characters_max
        self._entries: dict[bytes, Markup] = {}
        self._characters = 0
        self._lock = threading.Lock()
        self.made = 0  # parts that were not found

    def get(self, values: object, make: Callable[[], str]) -> Markup:
        """The HTML of `values`, which `make` renders unless it is known."""
        try:
            key = _encode(values)
        except UnicodeEncodeError:  # an unpaired surrogate
            return Markup(make())  # noqa: S704 - rendered by a template that escapes
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._entries[key] = entry  # the last to go
                return entry
            self.made += 1
        entry = Markup(make())  # noqa: S704
        if len(key) + len(entry) <= self._max // SHARE:
            self._keep(key, entry)
        return entry

    def _keep(self, key: bytes, entry: Markup) -> None:
        with self._lock:
            if key not in self._entries:
                self._entries[key] = entry
                self._characters += len(key) + len(entry)
            while self._characters > self._max:
                oldest = next(iter(self._entries))
                self._characters -= len(oldest) + len(self._entries.pop(oldest))
