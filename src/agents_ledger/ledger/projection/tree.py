"""The turns of a derivation as a tree, packed: one session may have a million of them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agents_ledger.model.ids import as_id
from agents_ledger.model.imports.interning import Numbering, Sets
from agents_ledger.model.imports.sources import Derivation, DerivedSession, DerivedTurn
from agents_ledger.model.turns import to_json

PRINT = 16  # bytes of a hash
NONE = -1
SAID = (
    "title",
    "updated_at",
    "is_subagent",
    "parent_label",
    "task_description",
    "task_status",
    "metadata",
)


class Repeated(NamedTuple):
    """A record that repeats others, and the turn that has those."""

    id: str
    turn_id: str


class Tree:
    """What is known of turns without their content, in some 70 bytes each. They have numbers, each
    a larger one than its parent."""

    def __init__(self, derivation: Derivation) -> None:
        self.ids = Numbering()
        self.files = Sets()
        self.file_sets = array("I")
        self._parents = array("i")
        self._outside: dict[int, str] = {}  # parents that are not derived here
        self._roots = array("i")
        self._prints = bytearray()  # of each turn with all above it
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
        """The ids of all turns."""
        return map(self.ids.name, range(len(self.ids)))

    def parent(self, turn_id: str) -> str | None:
        """The id of the turn above one."""
        number = self.ids.get(turn_id)
        above = self._parents[number] if number >= 0 else NONE
        return self.ids.name(above) if above >= 0 else self._outside.get(number)

    def owner(self, turn_id: str) -> str | None:
        """The first session whose thread holds a turn: the subagents it spawns answer to it."""
        number = self.ids.get(turn_id)
        return self._owner_labels[self._owners[number]] if number >= 0 else None

    def _add(self, turn: DerivedTurn) -> None:
        above = self.ids.get(turn.parent_id) if turn.parent_id is not None else NONE
        number = self.ids.add(turn.id)
        if number < len(self._parents):  # it is told twice
            return
        if above < 0 and turn.parent_id is not None:
            self._outside[number] = turn.parent_id
        both = self._print(above) + turn.fingerprint
        self._prints += hashlib.blake2b(both, digest_size=PRINT).digest()
        self._parents.append(above)
        self._roots.append(self._roots[above] if above >= 0 else number)
        self.file_sets.append(self.files.of(turn.file_ids))
        self._owners.append(self._label(turn.owner) if turn.owner is not None else NONE)
        self._repeats = self._repeats or any(True for _ in turn.repeated_ids)

    def by_file(self) -> dict[int, array[int]]:
        """The numbers of the turns that each file is part of."""
        found: dict[int, array[int]] = {}
        for number, files in enumerate(self.file_sets):
            for file_id in self.files[files]:
                found.setdefault(file_id, array("i")).append(number)
        return found

    def repeated(self) -> Iterator[Repeated]:
        """The records that repeat others, made anew whenever they are gone through."""
        for turn in self._turns if self._repeats else ():
            yield from (Repeated(as_id(each), turn.id) for each in turn.repeated_ids)

    def _print(self, number: int) -> bytes:
        return bytes(self._prints[PRINT * number : PRINT * number + PRINT]) if number >= 0 else b""

    # -- owners -------------------------------------------------------------------------------

    def _label(self, label: str) -> int:
        return self._labels.setdefault(label, len(self._labels))

    def _own(self) -> None:
        """What stands on no thread belongs to the session it says, else to one of its files."""
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
        for number, known in enumerate(self._owners):
            if known == NONE:
                files = self.file_sets[number]
                if files not in holders:
                    holders[files] = self._holder(self.files[files])
                self._owners[number] = holders[files]

    def _is_copied(self, number: int, spawner: DerivedSession, child: DerivedSession) -> bool:
        """Whether a subagent has this from the session that spawned it, which may have taken it
        back: it is not the subagent's doing."""
        files, theirs, own = self.files[self.file_sets[number]], spawner.file_ids, child.file_ids
        return bool(files & (theirs - own)) and bool(files & (own - theirs))

    def _holder(self, file_ids: frozenset[int]) -> int:
        holders = (each.label for each in self._sessions if each.file_ids & file_ids)
        return self._label(next(holders, self._sessions[0].label if self._sessions else ""))

    # -- fingerprints -------------------------------------------------------------------------

    def fingerprints(self) -> dict[str, str]:
        """Of everything a session shows: its thread's turns and what is said of it."""
        ordered: dict[int, bytearray] = {}  # a database holds many trees
        trees = self._by_root()
        prints = {}
        for session in self._sessions:
            if session.fingerprint is not None:
                prints[session.label] = session.fingerprint
                continue
            shown = {name: getattr(session, name) for name in SAID} | {"head": session.head}
            head = self.ids.get(session.head) if session.head is not None else NONE
            if head < 0:
                tips = _in_order(self._of_files(session))
            else:
                root = self._roots[head]
                tips = ordered.get(root) or _in_order(map(self._print, trees[root]))
                ordered[root] = tips
            print_ = hashlib.sha256(self._print(head))
            print_.update(tips)
            print_.update(to_json(shown).encode())
            prints[session.label] = print_.hexdigest()
        return prints

    def _by_root(self) -> dict[int, array[int]]:
        found: dict[int, array[int]] = {}
        for number, root in enumerate(self._roots):
            found.setdefault(root, array("i")).append(number)
        return found

    def _of_files(self, session: DerivedSession) -> Iterator[bytes]:
        for number, files in enumerate(self.file_sets):
            if self.files[files] & session.file_ids:
                yield self._print(number)


def _in_order(prints: Iterable[bytes]) -> bytearray:
    """Hashes side by side, in their order: sorted by their first byte, then each lot."""
    lots: dict[int, bytearray] = {}
    for each in prints:
        lots.setdefault(each[0], bytearray()).extend(each)
    found = bytearray()
    for first in sorted(lots):
        lot = lots.pop(first)
        found += b"".join(sorted(bytes(lot[at : at + PRINT]) for at in range(0, len(lot), PRINT)))
    return found
