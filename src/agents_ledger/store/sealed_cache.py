"""What a process has read of the ledger that never changes: it need not be read again."""

from __future__ import annotations

import threading
from typing import Any

# All values together: 8 MB of ASCII, up to four times that for text of wider characters.
LETTERS_MAX = 8_000_000
# A value that takes a larger part of the cache would evict too many others.
SHARE = 8


class SealedCache:
    """Values by key, for all readers of one database. The first to come is the first to go."""

    def __init__(self, letters_max: int = LETTERS_MAX) -> None:
        self._max = letters_max
        self._values: dict[str, tuple[Any, int]] = {}
        self._length = 0
        self._guard = threading.Lock()

    def get(self, key: str) -> Any:
        # Without the lock: reading a dict is atomic, and a value that is evicted just now is still
        # true.
        value = self._values.get(key)
        return None if value is None else value[0]

    def keep(self, key: str, value: Any, length: int) -> None:
        """Cache a value of a committed snapshot; `length` is its size in characters."""
        if length > self._max // SHARE:
            return
        with self._guard:
            _, before = self._values.pop(key, (None, 0))
            self._values[key] = value, length
            self._length += length - before
            while self._length > self._max:
                oldest = next(iter(self._values))
                self._length -= self._values.pop(oldest)[1]

    def clear(self) -> None:
        """Forget everything: something was removed from the ledger."""
        with self._guard:
            self._values.clear()
            self._length = 0
