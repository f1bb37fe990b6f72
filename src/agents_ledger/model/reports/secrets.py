"""Secrets in a ledger: how many of which kind, and what is done about them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SecretHandling = Literal["report", "mask", "redact"]


class SecretCount(Struct, frozen=True):
    """The secrets of one kind in one session, or in none."""

    kind: str
    session_label: str | None
    count: int  # of places; a secret that appears twice counts twice
    turns: int  # that have one
    latest_turn_id: str | None = None


class SecretReport(Struct, frozen=True):
    """The secrets that were recognised, by kind and session, most frequent first."""

    handling: SecretHandling
    counts: tuple[SecretCount, ...]

    @property
    def total(self) -> int:
        """How many there are in all."""
        return sum(line.count for line in self.counts)

    @property
    def by_kind(self) -> dict[str, int]:
        """How many there are of each kind, most frequent first."""
        kinds: dict[str, int] = {}
        for line in self.counts:
            kinds[line.kind] = kinds.get(line.kind, 0) + line.count
        return dict(sorted(kinds.items(), key=lambda pair: -pair[1]))
