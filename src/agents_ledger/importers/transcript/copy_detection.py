"""Which file a new one goes on from: agents copy all of a session when it is resumed or forked."""

from __future__ import annotations

import re
from collections import deque

HEAD_BYTES = 64 << 10
REMEMBERED = 16  # files of one source
TRIED = 8
TRIED_LEAST = 3
SAMPLE = 48  # bytes from the middle of a record: its content, not its new ids and times
RECORD_MIN = 4 * SAMPLE
_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Heads:
    """The beginnings of the files of one source."""

    def __init__(self) -> None:
        self._heads: deque[tuple[str, bytes]] = deque(maxlen=REMEMBERED)

    def remember(self, path: str, data: bytes) -> None:
        """Note how a file begins."""
        self._heads.append((path, data[:HEAD_BYTES]))

    def original(self, data: bytes) -> str | None:
        """The path of the file that begins with the same records; the first, if several do."""
        samples = _samples(data[:HEAD_BYTES])
        if len(samples) < TRIED_LEAST:
            return None
        found = [(_number_in(head, samples), path) for path, head in self._heads]
        most, path = max(found, key=lambda each: each[0], default=(0, ""))
        return path if most > len(samples) // 2 else None

    def shares_ids(self, path: str, data: bytes) -> bool:
        """Whether a file has ids of another's: without them the same words are other records."""
        ids = {each for known, head in self._heads if known == path for each in _ID.findall(head)}
        return not ids.isdisjoint(_ID.findall(data[:HEAD_BYTES]))


def _number_in(head: bytes, samples: list[bytes]) -> int:
    """How many of them there are; none, once it is clear that most are not there."""
    missing = 0
    for sample in samples:
        missing += sample not in head
        if missing >= len(samples) - len(samples) // 2:
            return 0
    return len(samples) - missing


def _samples(head: bytes) -> list[bytes]:
    """Pieces of records, evenly from what is given; the last may be cut."""
    records = [each for each in head.split(b"\n")[1:-1] if len(each) >= RECORD_MIN]
    middles = [(record, (len(record) - SAMPLE) // 2) for record in records]
    samples = [record[at : at + SAMPLE] for record, at in middles]
    return [samples[n * len(samples) // TRIED] for n in range(min(TRIED, len(samples)))]
