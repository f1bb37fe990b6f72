"""pi: the turns of a tree, each made when it is asked for: memory need not hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from agents_ledger.importers.port.source import fingerprint
from agents_ledger.importers.sources.pi.nodes import ASSISTANT, KINDS
from agents_ledger.importers.sources.pi.rows import unpacked
from agents_ledger.importers.sources.pi.tree import Tree
from agents_ledger.importers.sources.pi.turns import Framing, Setting, build_turn
from agents_ledger.importers.transcript.turn_tree import NONE, NamedLater, made
from agents_ledger.model.imports.sources import DerivedTurn
from agents_ledger.model.imports.sources import Turns as Derived
from agents_ledger.model.turns import MessageSource, Turn


class Extras(NamedTuple):
    """What belongs to turns and does not stand in their entries."""

    files: Sequence[int]  # by transcript
    folders: Sequence[str | None]  # by transcript: where it says that it was written
    speakers: Mapping[int, MessageSource]  # by transcript, where it is no human
    spawned: Mapping[int, tuple[str, str]]  # by entry: a call, and the session that it started


class Turns:
    """The turns by number."""

    def __init__(self, tree: Tree, version: int, extras: Extras) -> None:
        self._tree = tree
        self._nodes = tree.nodes
        self._version = version
        self._extras = extras

    def derived(self) -> Derived:
        """All, each after its parent."""
        return made(range(len(self._tree)), self._made)

    def _made(self, turn: int) -> DerivedTurn:
        nodes, members = self._nodes, self._tree.members[turn]
        transcripts = nodes.holders[nodes.holders.joined(map(nodes.held_by.__getitem__, members))]
        framing, setting = self._framing(turn), self._setting(turn, transcripts)
        return DerivedTurn(
            framing.turn_id,
            framing.parent_id,
            fingerprint(self._version, self._told(turn, framing, setting)),
            frozenset(map(self._extras.files.__getitem__, transcripts)),
            NamedLater(self._names, turn),
            partial(self._built, turn, framing, setting),
        )

    def _names(self, turn: int) -> list[str]:
        return list(map(self._nodes.name, self._tree.members[turn]))

    def _built(self, turn: int, framing: Framing, setting: Setting) -> Turn:
        nodes, members = self._nodes, self._tree.members[turn]
        kinds = (KINDS[nodes.kinds[entry]] for entry in members)
        records = map(unpacked, map(nodes.places.bytes_of, members))
        return build_turn(framing, setting, zip(self._names(turn), kinds, records, strict=True))

    def _told(self, turn: int, framing: Framing, setting: Setting) -> list[bytes]:
        """All that the content of a turn comes from."""
        nodes = self._nodes
        members = self._tree.members[turn]
        told = [f"{nodes.print(entry)};{KINDS[nodes.kinds[entry]]}" for entry in members]
        asked_by, cwd, spawned, config = setting
        said = (framing[2:], asked_by, sorted(spawned.items()), cwd, sorted(config.items()))
        return [each.encode(errors="replace") for each in (*told, repr(said))]

    def _framing(self, turn: int) -> Framing:
        """Where a turn stands; for a compaction, what it summarised and what it kept."""
        tree, kept = self._tree, self._tree.kept(turn)
        parent = through = tree.name(tree.parents[turn])
        if kept != NONE:
            through = tree.name(tree.parents[kept])
        sealed = bool(tree.followed[turn])
        return Framing(str(tree.name(turn)), parent, sealed, through, tree.name(kept))

    def _setting(self, turn: int, transcripts: frozenset[int]) -> Setting:
        """What the session says of a turn."""
        nodes, members = self._nodes, self._tree.members[turn]
        _, folders, speakers, spawned = self._extras
        answers = (entry for entry in members if nodes.kinds[entry] == ASSISTANT)
        return Setting(
            min((speakers[each] for each in transcripts if each in speakers), default="human"),
            folders[min(transcripts)],
            dict(spawned[entry] for entry in members if entry in spawned) if spawned else {},
            nodes.configs[nodes.config_of[next(answers, members[0])]],
        )
