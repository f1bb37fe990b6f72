"""Which file a new one continues: agents copy a whole session when it is resumed or forked."""

from __future__ import annotations

import re
from collections import deque

HEAD_BYTES = 64 << 10
REMEMBERED = 16  # files of one source
TRIED = 8
TRIED_LEAST = 3
# Bytes from the middle of a record: its content, not its new ids and times.
SAMPLE = 48
RECORD_MIN = 4 * SAMPLE
_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Heads:
    """The beginnings of the latest files of one source."""

    def __init__(self) -> None:
        self._heads: deque[tuple[str, bytes]] = deque(maxlen=REMEMBERED)

    def remember(self, path: str, data: bytes) -> None:
        """Note how a file begins."""
        self._heads.append((path, data[:HEAD_BYTES]))

    def original(self, data: bytes) -> str | None:
        """The path of the first file that begins with the same records."""
        samples = _samples(data[:HEAD_BYTES])
        if len(samples) < TRIED_LEAST:
            return None
        matches = [(_matches(head, samples), path) for path, head in self._heads]
        most, path = max(matches, key=lambda match: match[0], default=(0, ""))
        return path if most > len(samples) // 2 else None

    def shares_ids(self, path: str, data: bytes) -> bool:
        """Whether a file has ids of another: without them the same texts are other records."""
        ids = {name for other, head in self._heads if other == path for name in _ID.findall(head)}
        return not ids.isdisjoint(_ID.findall(data[:HEAD_BYTES]))


def _matches(head: bytes, samples: list[bytes]) -> int:
    """The number of samples in a head; 0 as soon as most of them are missing."""
    missing = 0
    for sample in samples:
        missing += sample not in head
        if missing >= len(samples) - len(samples) // 2:
            return 0
    return len(samples) - missing


def _samples(head: bytes) -> list[bytes]:
    """Parts of records, spread evenly; the last record may be incomplete and is left out."""
    records = [record for record in head.split(b"\n")[1:-1] if len(record) >= RECORD_MIN]
    middles = [(record, (len(record) - SAMPLE) // 2) for record in records]
    samples = [record[at : at + SAMPLE] for record, at in middles]
    return [samples[n * len(samples) // TRIED] for n in range(min(TRIED, len(samples)))]
