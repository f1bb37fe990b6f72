"""What was redacted or purged: read for verification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from agents_ledger.ledger.evidence.openings import Opening
from agents_ledger.store.database import Transaction


class RedactionEntry(Struct):
    """The payload of a redaction's leaf."""

    at: int
    reason: str
    values: dict[str, str | None]  # commitments of what replaces them, by label; None: nothing


class PurgeEntry(Struct):
    at: int
    reason: str
    kind: str


class _Redacted(NamedTuple):
    entry: RedactionEntry
    opening: Opening


class Removals:
    def __init__(self) -> None:
        self.purged: set[str] = set()
        self._redacted: dict[str, _Redacted] = {}

    def add_redaction(self, subject: str, entry: RedactionEntry, opening: Opening) -> None:
        self._redacted[subject] = _Redacted(entry, opening)

    def wrong(self, subject: str, labels: Iterable[str], values: Mapping[str, bytes]) -> list[str]:
        """Which of the removed values are not what the last redaction put in their place."""
        redacted = self._redacted.get(subject)
        if redacted is None:
            return list(labels)
        wrong = []
        for label in labels:
            value = values.get(label)
            now = None if value is None else redacted.opening.commit(label, value)
            if label not in redacted.entry.values or redacted.entry.values[label] != now:
                wrong.append(label)
        return wrong


def read_removals(tx: Transaction) -> Removals:
    removals = Removals()
    for _, kind, subject, opening, payload in tx.run("evidence_removals"):
        if kind == "purge":
            removals.purged.add(subject)
        elif opening is not None:
            entry = msgspec.json.decode(payload, type=RedactionEntry)
            removals.add_redaction(subject, entry, Opening.of(opening))
    return removals
