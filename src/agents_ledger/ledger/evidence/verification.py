"""Verifies the log of evidence: recomputes every leaf from what it covers, and the tree from the
leaves; what has no leaf was inserted, what a leaf covers and is not there was removed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from agents_ledger.ledger.evidence import canonical, leaves, stored_content
from agents_ledger.ledger.evidence.canonical import IMPORTED
from agents_ledger.ledger.evidence.openings import Opening
from agents_ledger.ledger.evidence.removals import Removals, read_removals
from agents_ledger.ledger.evidence.stored_blocks import block_hash, read_block, values_of_block
from agents_ledger.ledger.evidence.stored_content import StoredLeaf, StoredMove, StoredTurn
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.evidence.merkle import Peaks, leaf_hash
from agents_ledger.model.evidence.signed_note import Checkpoint
from agents_ledger.model.evidence.verification import (
    Discrepancy,
    EvidenceFinding,
    Verification,
)
from agents_ledger.store.database import Transaction

AT_ONCE = 200
LAST = 1 << 62
BEHIND = "behind"  # value of the setting: rows of before are not all sealed yet
SETTING = "evidence"
# What a damaged row raises where it is decoded.
_NONSENSE = (LookupError, TypeError, ValueError, AttributeError, msgspec.DecodeError)


class _Verifier:
    def __init__(self, tx: Transaction, sources: Sources) -> None:
        self._tx = tx
        self._sources = sources
        self.findings: list[EvidenceFinding] = []
        self.counts: dict[str, int] = defaultdict(int)
        self.removals: Removals = read_removals(tx)
        self._former: dict[str, list[str]] = defaultdict(list)
        for rename in tx.run("evidence_renames"):
            label, former = canonical.stored(rename)
            self._former[label].append(former)
        # Moves of before are sealed while others are made: only behind them the order counts. What
        # waits to be sequenced has no order yet.
        coverage = tx.run("evidence_coverage")
        self.covered_since = msgspec.json.decode(coverage[0][1])["at"] if coverage else None
        self.is_behind = not coverage and tx.run("setting", name=SETTING) == [(BEHIND,)]
        self._ordered_from = coverage[0][0] if coverage else LAST if self.is_behind else 0
        self._seen: set[tuple[str, str]] = set()
        self._moves: set[int] = set()
        self._last_move: dict[str, int] = {}

    def report(self, what: Discrepancy, kind: str, subject: object, detail: str = "") -> None:
        self.findings.append(EvidenceFinding(what, kind, str(subject), detail))

    # -- leaves -------------------------------------------------------------------------------

    def check(self, batch: Sequence[StoredLeaf]) -> None:
        by_kind: dict[str, list[StoredLeaf]] = defaultdict(list)
        for leaf in batch:
            by_kind[leaf.kind].append(leaf)
        moves = stored_content.read_moves(
            self._tx, [leaf.move_id for leaf in batch if leaf.move_id is not None]
        )
        for leaf in batch:
            if leaf.move_id in moves and leaf.position > self._ordered_from:
                self._check_order(moves[leaf.move_id])
        self._check_turns(by_kind.pop("turn", []), moves)
        for leaf in by_kind.pop("move", []):
            self._checked(leaf, lambda leaf: self._check_move(leaf, moves))
        for leaf in by_kind.pop("source", []):
            self._checked(leaf, self._check_block)
        for entries in by_kind.values():
            for leaf in entries:
                self._checked(leaf, self._check_entry)

    def _checked(self, leaf: StoredLeaf, check: Callable[[StoredLeaf], None]) -> None:
        try:
            check(leaf)
        except (LedgerError, *_NONSENSE) as error:
            self.report("unreadable", leaf.kind, leaf.subject, f"{error}"[:200])

    def _is_first(self, leaf: StoredLeaf) -> bool:
        key = (leaf.kind, leaf.subject)
        if key in self._seen:
            self.report("inserted", "leaf", leaf.position, f"a second one of {leaf.subject}")
            return False
        self._seen.add(key)
        return True

    def _check_turns(self, batch: Sequence[StoredLeaf], moves: dict[int, StoredMove]) -> None:
        try:
            turns = self._tx.attempt(
                lambda: (
                    stored_content.read_turns(self._tx, [leaf.subject for leaf in batch])
                    if batch
                    else {}
                )
            )
        except LedgerError as error:
            if len(batch) == 1:
                self.report("unreadable", "turn", batch[0].subject, f"{error}"[:200])
                return
            middle = len(batch) // 2
            self._check_turns(batch[:middle], moves)
            self._check_turns(batch[middle:], moves)
            return
        for leaf in batch:
            self._checked(leaf, lambda leaf: self._check_turn(leaf, turns, moves))

    def _check_turn(
        self, leaf: StoredLeaf, turns: dict[str, StoredTurn], moves: dict[int, StoredMove]
    ) -> None:
        if leaf.move_id is not None:
            self._moves.add(leaf.move_id)
        if not self._is_first(leaf):
            return
        turn = turns.get(leaf.subject)
        if leaf.subject in self.removals.purged:
            self.counts["purged"] += 1
            if turn is not None:
                self.report("inserted", "turn", leaf.subject, "it was purged")
        elif turn is None:
            self.report("removed", "turn", leaf.subject)
        else:
            self.counts["turns"] += 1
            opening = Opening.of(leaf.opening or b"")
            content = canonical.content_hash(turn.content, opening.commit, opening.removed)
            self._check_removed(leaf, opening, stored_content.values_of(turn.content))
            if leaf.move_id is not None:
                self._check_turn_and_move(leaf, turn, content, moves.get(leaf.move_id))
            elif canonical.leaf_of_turn(content, turn.place) != leaf.hash:
                self.report("changed", "turn", leaf.subject)

    def _check_turn_and_move(
        self, leaf: StoredLeaf, turn: StoredTurn, content: str, move: StoredMove | None
    ) -> None:
        if move is None:
            self.report("removed", "move", leaf.move_id, f"to turn {leaf.subject}")
            return
        self.counts["moves"] += 1
        if (move.thread_id, move.reason) != (leaf.subject, "record"):
            self.report("changed", "move", leaf.move_id, f"it led to turn {leaf.subject}")
        for label in self._labels(move):
            place = turn.place._replace(session_label=label, moved_at=move.changed_at)
            if canonical.leaf_of_turn(content, place) == leaf.hash:
                return
        self.report("changed", "turn", leaf.subject, f"or the move {leaf.move_id} to it")

    def _labels(self, move: StoredMove) -> tuple[str, ...]:
        """The labels that the session of a move has or had, in stored form."""
        return (move.label, *self._former[move.label])

    def _check_order(self, move: StoredMove) -> None:
        if move.id <= self._last_move.get(move.label, 0):
            self.report("reordered", "move", move.id, f"of session {move.label}")
        self._last_move[move.label] = max(move.id, self._last_move.get(move.label, 0))

    def _check_move(self, leaf: StoredLeaf, moves: dict[int, StoredMove]) -> None:
        if leaf.move_id is None or leaf.move_id in self._moves:
            self.report("inserted", "leaf", leaf.position, f"of session {leaf.subject}")
            return
        self._moves.add(leaf.move_id)
        move = moves.get(leaf.move_id)
        if leaf.subject in self.removals.purged:
            return
        if move is None:
            self.report("removed", "move", leaf.move_id, f"of session {leaf.subject}")
            return
        self.counts["moves"] += 1
        target = IMPORTED if move.is_projected else move.thread_id
        for label in self._labels(move):
            data = canonical.move_data(label, target, move.changed_at, move.reason, leaf.payload)
            if leaf_hash(data) == leaf.hash:
                break
        else:
            self.report("changed", "move", leaf.move_id, f"of session {move.label}")

    def _check_block(self, leaf: StoredLeaf) -> None:
        if not self._is_first(leaf):
            return
        if leaf.subject in self.removals.purged:
            self.counts["purged"] += 1
            return
        block = read_block(self._tx, self._sources, leaf.subject)
        if block is None:
            self.report("removed", "source", leaf.subject)
            return
        self.counts["sources"] += 1
        opening = Opening.of(leaf.opening or b"")
        if block_hash(block, opening) != leaf.hash:
            self.report("changed", "source", leaf.subject, block.file.path)
        self._check_removed(leaf, opening, values_of_block(block, opening))

    def _check_entry(self, leaf: StoredLeaf) -> None:
        data = canonical.entry_data(leaf.kind, leaf.subject, leaf.payload or "")
        if leaf_hash(data) != leaf.hash:
            self.report("changed", leaf.kind, leaf.subject)

    def _check_removed(self, leaf: StoredLeaf, opening: Opening, values: dict[str, bytes]) -> None:
        """What stands where values were removed is what the redaction put there."""
        if not opening.removed:
            return
        self.counts["redacted"] += len(opening.removed)
        wrong = self.removals.wrong(leaf.subject, opening.removed, values)
        if wrong:
            self.report("changed", leaf.kind, leaf.subject, f"{', '.join(wrong)}, once redacted")

    # -- what has no leaf ---------------------------------------------------------------------

    def uncovered(self) -> Iterator[tuple[str, str, str]]:
        after = ""
        while rows := self._tx.run("uncovered_turns", after=after, limit=AT_ONCE):
            after = rows[-1][0]
            yield from (("turn", row[0], "") for row in rows)
        for move_id, label in self._tx.run("all_moves"):
            if move_id not in self._moves:
                yield "move", str(move_id), f"of session {label}"
        for file_id, path, _, start, _ in self._tx.run("uncovered_blocks", after=-1, limit=1 << 40):
            yield "source", leaves.block_subject(file_id, start), path


def verify(tx: Transaction, sources: Sources, checkpoints: Sequence[Checkpoint]) -> Verification:
    verifier = _Verifier(tx, sources)
    peaks = Peaks()
    wanted = sorted({checkpoint.size for checkpoint in checkpoints})
    roots: dict[int, bytes] = {0: peaks.root}
    waiting, after = 0, -LAST
    while rows := tx.run("evidence_from", after=after, limit=AT_ONCE):
        batch = [StoredLeaf(*row) for row in rows]
        after = batch[-1].position
        verifier.check(batch)
        for leaf in batch:
            if leaf.position < 0:
                waiting += 1
                continue
            missing = leaf.position - peaks.size - 1
            if missing:
                verifier.report("removed", "leaf", f"{peaks.size + 1} to {leaf.position - 1}")
                # So that the positions of those that are left are right.
                peaks.add(bytes(32) for _ in range(missing))
            peaks.add([bytes(leaf.hash)])
            if peaks.size in wanted:
                roots[peaks.size] = peaks.root
    uncovered = 0
    for kind, subject, detail in verifier.uncovered():
        uncovered += 1
        if not verifier.is_behind:
            verifier.report("inserted", kind, subject, detail)
    unverified = _check_checkpoints(verifier, checkpoints, peaks.size, roots)
    counts = verifier.counts
    return Verification(
        size=peaks.size,
        root=peaks.root.hex(),
        waiting=waiting,
        turns=counts["turns"],
        moves=counts["moves"],
        sources=counts["sources"],
        redacted=counts["redacted"],
        purged=counts["purged"],
        uncovered=uncovered if verifier.is_behind else 0,
        covered_since=verifier.covered_since,
        checkpoints=counts["checkpoints"],
        unverified=unverified,
        findings=tuple(verifier.findings),
    )


def _check_checkpoints(
    verifier: _Verifier, checkpoints: Sequence[Checkpoint], size: int, roots: dict[int, bytes]
) -> int:
    """Compare the log with its checkpoints; returns how many have an unknown signer."""
    unverified, good = 0, 0
    for checkpoint in sorted(checkpoints, key=lambda checkpoint: checkpoint.size):
        name = f"{checkpoint.origin} {checkpoint.size}"
        if checkpoint.is_signed is False:
            verifier.report("forged", "checkpoint", name, "its signature is wrong")
            continue
        unverified += checkpoint.is_signed is None
        if checkpoint.size > size:
            detail = f"the log has {size} leaves, the checkpoint {checkpoint.size}"
            verifier.report("rolled back", "checkpoint", name, detail)
        elif roots.get(checkpoint.size) != checkpoint.root:
            detail = f"a leaf from {good + 1} to {checkpoint.size} is another"
            verifier.report("changed", "checkpoint", name, detail)
        else:
            good = checkpoint.size
            verifier.counts["checkpoints"] += 1
    return unverified
