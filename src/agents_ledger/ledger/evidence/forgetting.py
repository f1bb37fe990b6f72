"""Removes what opens the commitments of redacted values, so that nobody can find out by trying what
they were. Their leaves stay, and what replaces them gets a leaf of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.evidence import canonical, leaves, stored_content
from agents_ledger.ledger.evidence.openings import Opening
from agents_ledger.ledger.evidence.removals import PurgeEntry, RedactionEntry
from agents_ledger.ledger.evidence.stored_blocks import read_block, values_of_block
from agents_ledger.ledger.evidence.stored_content import StoredLeaf
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.errors import NotFound
from agents_ledger.model.ids import new_seed
from agents_ledger.store.database import Transaction


class Forgetting:
    """Begun before values of a turn or of a block of source records are overwritten, and finished
    after it, in one transaction.

    `kind` is `turn` or `source`, `subject` the id of the turn, or FILE_ID/START of the block.
    """

    def __init__(
        self, tx: Transaction, kind: str, subject: str, *, core: Core | None = None
    ) -> None:
        self._tx = tx
        self._kind = kind
        self._subject = subject
        self._core = core
        self._leaf = self._find_leaf()
        self._opening = (
            Opening(None) if self._leaf is None else Opening.of(self._leaf.opening or b"")
        )
        self._before = self._values()

    def _find_leaf(self) -> StoredLeaf | None:
        rows = self._tx.run("evidence_of", subject=self._subject)
        return next((StoredLeaf(*row) for row in rows if row[1] == self._kind), None)

    def _values(self) -> dict[str, bytes]:
        """The values as they are stored now."""
        if self._kind == "turn":
            turn = stored_content.read_turn(self._tx, self._subject)
            return stored_content.values_of(turn.content)
        if self._core is None:
            raise TypeError("source records are read through a core")
        block = read_block(self._tx, Sources(self._core), self._subject)
        if block is None:
            raise NotFound(f"there is no block of source records {self._subject}")
        return values_of_block(block, self._opening)

    def finish(
        self, *, reason: str, at: int, records: Sequence[bytes] | None = None
    ) -> tuple[str, ...]:
        """The labels of the values that are others now. What was not sealed yet has nothing to
        forget.

        `records`: those of a block now, as many as before and in their order; needed if one of
        them is not one line any more.
        """
        after = self._values() if records is None else self._block(records)
        labels = [label for label, value in self._before.items() if after.get(label) != value]
        if self._leaf is not None and labels:
            lengths = [len(value) for label, value in after.items() if label != "path"]
            self._take_away(labels, lengths if self._kind == "source" else ())
            self._cover(after, reason, at)
        return tuple(labels)

    def _block(self, records: Sequence[bytes]) -> dict[str, bytes]:
        labelled = {leaves.record_label(number): record for number, record in enumerate(records)}
        return {"path": self._before["path"], **labelled}

    def _take_away(self, labels: Sequence[str], lengths: Sequence[int]) -> None:
        opening = self._opening.without(self._before, labels, lengths)
        for row in self._tx.run("evidence_of", subject=self._subject):
            leaf = StoredLeaf(*row)
            if leaf.kind == self._kind:
                self._tx.run("set_opening", position=leaf.position, opening=opening)
                self._opening = Opening.of(opening)
            # The seed of an earlier redaction opens what this one may have removed.
            elif leaf.kind == "redaction":
                self._tx.run("set_opening", position=leaf.position, opening=None)

    def _cover(self, after: dict[str, bytes], reason: str, at: int) -> None:
        seed = new_seed()
        commit = canonical.seeded(seed)
        entry = RedactionEntry(
            at,
            reason,
            {
                label: commit(label, after[label]) if label in after else None
                for label in self._opening.removed
            },
        )
        payload = msgspec.json.encode(entry).decode()
        leaves.add_entry(self._tx, "redaction", self._subject, payload, opening=seed)


def purged(tx: Transaction, subjects: Sequence[tuple[str, str]], *, reason: str, at: int) -> None:
    """Note that rows are gone altogether: pairs of `turn`, `source` or `session` with a turn's id,
    FILE_ID/START of a block, or the label of a session whose moves are gone."""
    for kind, subject in subjects:
        for row in tx.run("evidence_of", subject=subject):
            tx.run("set_opening", position=row[0], opening=None)
        payload = msgspec.json.encode(PurgeEntry(at, reason, kind)).decode()
        leaves.add_entry(tx, "purge", subject, payload)
