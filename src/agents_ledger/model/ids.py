"""Ids and the clock. The only module that reads either, or chance.

Ids are ULIDs: 48 bits of time and 80 of chance in 26 letters. Within a process each is greater
than the one before, whatever the clock does.
"""

from __future__ import annotations

import os
import threading
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_MAX = 200
LATEST_MS = 253_370_764_800_000
"""The year 9999 begins. What is later can neither be written as a date nor meant."""
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_LOW_BITS = 40
_LOW_END = 1 << _LOW_BITS
# The part of the count that changes with nearly every id; the rest is a cached prefix.
_TAIL = (1 << 20) - 1


def is_id(text: str) -> bool:
    """Whether this can be an id: it can be typed, and told from what stands around it."""
    return (
        0 < len(text) <= ID_MAX
        and text.isprintable()
        and " " not in text
        and '"' not in text
        and "\\" not in text
    )


def as_id(text: str) -> str:
    """An id for what another program calls so: the same, or, if that can be none, one like it."""
    if is_id(text):
        return text
    like = "".join(letter if is_id(letter) else "_" for letter in text[: ID_MAX // 2])
    # It loads OpenSSL, which most programs do not need at once.
    import hashlib

    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8)
    return f"{like}~{digest.hexdigest()}"


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def new_seed() -> bytes:
    """Sixteen random bytes, which nobody can guess."""
    return os.urandom(16)


def _letters(number: int, pairs: int) -> str:
    return "".join(_PAIRS[number >> shift & 1023] for shift in range((pairs - 1) * 10, -1, -10))


class _Ids:
    """Counts up from a random start, drawn once: to draw again would cost more than the rest."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        chance = int.from_bytes(os.urandom(10), "big")
        # The top bit stays free: counting up does not run out.
        self.low = chance & (_LOW_END - 1) >> 1
        self.chance = _letters(chance >> _LOW_BITS, 4)
        self.start(0)

    def start(self, ms: int) -> None:
        self.ms = ms
        self.prefix = _letters(ms, 5) + self.chance + _letters(self.low >> 20, 2)

    def next(self) -> str:
        """A new id (ULID): ids of one process sort in the order in which they were made."""
        ms = time.time_ns() // 1_000_000
        with self.lock:
            self.low = low = self.low + 1
            if ms > self.ms:
                self.start(ms)
            elif not low & _TAIL:
                # The tail has wrapped, so the prefix changes. The time stays, even if the clock ran
                # backwards.
                self.start(self.ms)
            return self.prefix + _PAIRS[low >> 10 & 1023] + _PAIRS[low & 1023]


_ids = _Ids()


def _after_fork() -> None:
    """A child must not count on from its parent's last id, nor inherit a held lock."""
    _ids.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

new_id = _ids.next
