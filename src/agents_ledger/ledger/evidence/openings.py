"""What opens the commitments of a leaf: the seed of its salts, or what a redaction left of them.

A redaction removes the seed, because the salt of the removed value could be derived from it. The
salts of the other values stay, and of the removed ones their commitments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from agents_ledger.ledger.evidence import canonical
from agents_ledger.ledger.evidence.canonical import NOTHING_REMOVED, Commit


class _Kept(Struct, omit_defaults=True):
    salts: dict[str, str]  # by label, in hexadecimal digits
    removed: dict[str, str]  # commitments by label
    lengths: tuple[int, ...] = ()  # of the pieces of a block, of which one may not be a line now


class Opening:
    def __init__(
        self,
        seed: bytes | None,
        salts: Mapping[str, str] = NOTHING_REMOVED,
        removed: Mapping[str, str] = NOTHING_REMOVED,
        lengths: Sequence[int] = (),
    ) -> None:
        self._seed = seed
        self._salts = salts
        self.removed = removed
        self._lengths = lengths

    @classmethod
    def of(cls, stored: bytes) -> Opening:
        """ValueError, if these bytes are none."""
        if len(stored) == canonical.SEED_BYTES:
            return cls(bytes(stored))
        kept = msgspec.json.decode(stored, type=_Kept)
        return cls(None, kept.salts, kept.removed, kept.lengths)

    @property
    def commit(self) -> Commit:
        return self._commit_kept if self._seed is None else canonical.seeded(self._seed)

    def _commit_kept(self, label: str, value: bytes) -> str:
        # A value that was not there has no salt: its leaf differs.
        salt = self._salts.get(label)
        return canonical.commitment(bytes.fromhex(salt), value) if salt else ""

    def salt(self, label: str) -> str | None:
        """The salt of a value, in hexadecimal digits; None: it was removed."""
        if self._seed is not None:
            return canonical.salt(self._seed, label).hex()
        return self._salts.get(label)

    def pieces(self, data: bytes) -> list[bytes]:
        """The records of a block."""
        if not self._lengths:
            return canonical.pieces(data)
        parts, at = [], 0
        for length in self._lengths:
            parts.append(data[at : at + length])
            at += length
        return [*parts, data[at:]] if at < len(data) else parts

    def without(
        self, values: Mapping[str, bytes], labels: Sequence[str], lengths: Sequence[int] = ()
    ) -> bytes:
        """What is stored once the values with these labels are removed; `values` are all."""
        # Of what was removed before, the first commitment counts.
        removed = {label: self.commit(label, values[label]) for label in labels} | dict(
            self.removed
        )
        salts = {
            label: salt
            for label in values
            if label not in removed and (salt := self.salt(label)) is not None
        }
        return msgspec.json.encode(_Kept(salts, removed, tuple(lengths)))


def recording(values: dict[str, bytes], commit: Callable[[str, bytes], str]) -> Commit:
    """Notes every value by its label, and commits to it."""

    def commit_and_note(label: str, value: bytes) -> str:
        values[label] = value
        return commit(label, value)

    return commit_and_note
