"""The turns of a derivation as a tree, packed into arrays: one session may have a million."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agents_ledger.model.ids import as_id
from agents_ledger.model.imports.interning import Numbering, Sets
from agents_ledger.model.imports.sources import Derivation, DerivedSession, DerivedTurn
from agents_ledger.model.turns import to_json

HASH_BYTES = 16
NONE = -1
FINGERPRINTED = (
    "title",
    "updated_at",
    "is_subagent",
    "parent_label",
    "task_description",
    "task_status",
    "metadata",
)


class RepeatedRecord(NamedTuple):
    """A record that repeats another, and the turn that has that one."""

    id: str
    turn_id: str


class DerivedTree:
    """Turns without their content, in about 70 bytes each. They are numbered, each number larger
    than the parent's."""

    def __init__(self, derivation: Derivation, held_names: int) -> None:
        self.ids = Numbering(held=held_names)
        self.files = Sets()
        self.file_sets = array("I")
        self._parents = array("i")
        self._outside: dict[int, str] = {}  # ids of parents that are not in this derivation
        self._roots = array("i")
        self._hashes = bytearray()  # of each turn and its ancestors
        self._sessions = sorted(derivation.sessions, key=lambda s: (s.created_at, s.label))
        self._labels: dict[str, int] = {}
        self._owners = array("i")
        self._turns = derivation.turns
        self._repeats = False
        for turn in derivation.turns:
            self._add(turn)
        self._own()
        self._owner_labels = list(self._labels)

    def __len__(self) -> int:
        return len(self.ids)

    def names(self) -> Iterator[str]:
        return map(self.ids.name, range(len(self.ids)))

    def parent(self, turn_id: str) -> str | None:
        number = self.ids.get(turn_id)
        above = self._parents[number] if number >= 0 else NONE
        return self.ids.name(above) if above >= 0 else self._outside.get(number)

    def owner(self, turn_id: str) -> str | None:
        """The first session whose thread holds a turn: the parent of the subagents it spawns."""
        number = self.ids.get(turn_id)
        return self._owner_labels[self._owners[number]] if number >= 0 else None

    def _add(self, turn: DerivedTurn) -> None:
        above = self.ids.get(turn.parent_id) if turn.parent_id is not None else NONE
        number = self.ids.add(turn.id)
        if number < len(self._parents):  # a duplicate
            return
        if above < 0 and turn.parent_id is not None:
            self._outside[number] = turn.parent_id
        both = self._hash(above) + turn.fingerprint
        self._hashes += hashlib.blake2b(both, digest_size=HASH_BYTES).digest()
        self._parents.append(above)
        self._roots.append(self._roots[above] if above >= 0 else number)
        self.file_sets.append(self.files.of(turn.file_ids))
        self._owners.append(self._label(turn.owner) if turn.owner is not None else NONE)
        self._repeats = self._repeats or any(True for _ in turn.repeated_ids)

    def by_file(self) -> dict[int, array[int]]:
        """The numbers of the turns that each file is part of."""
        numbers: dict[int, array[int]] = {}
        for number, files in enumerate(self.file_sets):
            for file_id in self.files[files]:
                numbers.setdefault(file_id, array("i")).append(number)
        return numbers

    def repeated(self) -> Iterator[RepeatedRecord]:
        """The records that repeat others, derived anew for each iteration."""
        for turn in self._turns if self._repeats else ():
            yield from (
                RepeatedRecord(as_id(record_id), turn.id) for record_id in turn.repeated_ids
            )

    def _hash(self, number: int) -> bytes:
        return (
            bytes(self._hashes[HASH_BYTES * number : HASH_BYTES * number + HASH_BYTES])
            if number >= 0
            else b""
        )

    # -- owners -------------------------------------------------------------------------------

    def _label(self, label: str) -> int:
        return self._labels.setdefault(label, len(self._labels))

    def _own(self) -> None:
        """A turn on no thread belongs to the session it names, or else to one of its files."""
        held = bytearray(len(self))
        by_label = {session.label: session for session in self._sessions}
        for session in self._sessions:
            owner = self._label(session.label)
            spawner = by_label.get(session.parent_label or "")
            number = self.ids.get(session.head) if session.head is not None else NONE
            while number >= 0 and not held[number]:
                held[number] = 1
                if spawner is None or not self._is_copied(number, spawner, session):
                    self._owners[number] = owner
                number = self._parents[number]
        holders: dict[int, int] = {}  # by the set of files
        for number, owner in enumerate(self._owners):
            if owner == NONE:
                files = self.file_sets[number]
                if files not in holders:
                    holders[files] = self._holder(self.files[files])
                self._owners[number] = holders[files]

    def _is_copied(self, number: int, spawner: DerivedSession, child: DerivedSession) -> bool:
        """Whether a subagent's file copied a turn from the session that spawned it."""
        files = self.files[self.file_sets[number]]
        is_spawners = bool(files & (spawner.file_ids - child.file_ids))
        return is_spawners and bool(files & (child.file_ids - spawner.file_ids))

    def _holder(self, file_ids: frozenset[int]) -> int:
        holders = (session.label for session in self._sessions if session.file_ids & file_ids)
        return self._label(next(holders, self._sessions[0].label if self._sessions else ""))

    # -- fingerprints -------------------------------------------------------------------------

    def fingerprints(self) -> dict[str, str]:
        """By label, a hash of all that a session shows: its tree's turns and its own fields."""
        ordered: dict[int, bytearray] = {}  # by root: a database holds many trees
        trees = self._by_root()
        fingerprints = {}
        for session in self._sessions:
            if session.fingerprint is not None:
                fingerprints[session.label] = session.fingerprint
                continue
            fields = {name: getattr(session, name) for name in (*FINGERPRINTED, "head")}
            head = self.ids.get(session.head) if session.head is not None else NONE
            if head < 0:
                tips = _in_order(self._of_files(session))
            else:
                root = self._roots[head]
                tips = ordered.get(root) or _in_order(map(self._hash, trees[root]))
                ordered[root] = tips
            digest = hashlib.sha256(self._hash(head))
            digest.update(tips)
            digest.update(to_json(fields).encode())
            fingerprints[session.label] = digest.hexdigest()
        return fingerprints

    def _by_root(self) -> dict[int, array[int]]:
        numbers: dict[int, array[int]] = {}
        for number, root in enumerate(self._roots):
            numbers.setdefault(root, array("i")).append(number)
        return numbers

    def _of_files(self, session: DerivedSession) -> Iterator[bytes]:
        for number, files in enumerate(self.file_sets):
            if self.files[files] & session.file_ids:
                yield self._hash(number)


def _in_order(hashes: Iterable[bytes]) -> bytearray:
    """Sorted hashes, concatenated. They are sorted in buckets by first byte, to save memory."""
    buckets: dict[int, bytearray] = {}
    for hash_ in hashes:
        buckets.setdefault(hash_[0], bytearray()).extend(hash_)
    ordered = bytearray()
    for first in sorted(buckets):
        bucket = buckets.pop(first)
        ordered += b"".join(
            sorted(bytes(bucket[at : at + HASH_BYTES]) for at in range(0, len(bucket), HASH_BYTES))
        )
    return ordered
