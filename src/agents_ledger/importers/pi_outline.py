"""pi and OpenClaw: the tree of entries over all files, and the sessions in it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from functools import partial
from typing import Any

from agents_ledger.importers.building import milliseconds
from agents_ledger.importers.outlines import (
    NONE,
    UUID,
    answered_above,
    as_number,
    as_text,
    in_turns,
    made,
    parents_first,
    project_name,
)
from agents_ledger.importers.pi_store import Store, StoreEntry, source_of
from agents_ledger.importers.pi_transcript import Node, Transcript
from agents_ledger.importers.pi_turns import Framing, Setting, build_turn
from agents_ledger.importers.reader import Material, fingerprint
from agents_ledger.model.sources import Derivation, DerivedSession, DerivedTurn, Fate
from agents_ledger.model.turns import MessageSource

OPENERS = {"prompt", "branch", "compaction"}
ASKING = {"prompt", "branch"}
AGENT = re.compile(r"agent:([^:]+):")


class Outline:
    """All files of a family together."""

    def __init__(self, material: Material, source: str, version: int) -> None:
        self.material = material
        self.source = source
        self.version = version
        self.store = Store(material)
        transcripts = []
        for file in material.files:
            if file.kind == "document":
                self.store.read(file)
            else:
                transcripts.append(Transcript(material, file, source))
        self.transcripts = sorted((t for t in transcripts if t.nodes), key=Transcript.rank)
        self.nodes: dict[str, Node] = {}
        self.folders = {
            t.file.id: (number, as_text(t.header.cwd)) for number, t in enumerate(self.transcripts)
        }
        for transcript in self.transcripts:
            for node in transcript.nodes:
                self._merge(node)
        for node in self.nodes.values():
            if node.kind == "compaction" and self._parent(node.key) is None:
                node.kind = (
                    "branch"  # all that it summarised is lost: it is where the session begins
                )
        held = {transcript.session_id for transcript in self.transcripts}
        for session_id, number in self.store.counted.items():
            fate: Fate = "derived" if session_id in held else "unmapped"
            material.count("sessions.json", fate, number)

    def _merge(self, node: Node) -> None:
        """The first copy stays; of several parents the one that is surest."""
        known = self.nodes.get(node.key)
        if known is None:
            self.nodes[node.key] = node
            return
        known.file_ids |= node.file_ids
        if (node.rank, node.parent or "") < (known.rank, known.parent or ""):
            known.parent, known.rank = node.parent, node.rank

    def _label(self, session_id: str | None) -> str | None:
        return f"{self.source}:{session_id}" if session_id else None

    # -- the tree -----------------------------------------------------------------------------

    def _parent(self, key: str) -> str | None:
        node = self.nodes[key]
        return node.parent if node.parent in self.nodes and node.parent != key else None

    def _opens(self, key: str) -> bool:
        """A prompt opens a turn, a compaction does, and what goes on after a compaction."""
        if self.nodes[key].kind in OPENERS:
            return True
        parent = self._parent(key)
        return parent is not None and self.nodes[parent].kind == "compaction"

    def _joins(self, opener: str, above: str, *, waits: bool) -> bool:
        """Prompts that follow each other without an answer are one query."""
        asks = self.nodes[opener].kind in ASKING
        return asks and waits and self.nodes[above].kind != "compaction"

    def _follow_calls(self, turn_of: dict[str, str]) -> None:
        """A result belongs to the turn of its call, even if another prompt came between."""
        for transcript in self.transcripts:
            callers: dict[str, str] = {}
            for node in transcript.nodes:
                callers |= dict.fromkeys(node.calls, node.key)
                if node.call_id in callers and turn_of[node.key] != node.key:
                    turn_of[node.key] = turn_of[callers[node.call_id]]

    # -- what comes of it ---------------------------------------------------------------------

    def _in_turns(self) -> tuple[dict[str, str], dict[str, str | None]]:
        """The turn of every entry, and the parent of every turn."""
        keys = list(self.nodes)
        numbers = {key: number for number, key in enumerate(keys)}
        ups = (self._parent(key) for key in keys)
        found = in_turns(
            range(len(keys)),
            array("i", (NONE if up is None else numbers[up] for up in ups)),
            [numbers[key] for key, node in self.nodes.items() if node.kind == "assistant"],
            opens=lambda number: self._opens(keys[number]),
            joins=lambda opener, above, *, waits: self._joins(
                keys[opener], keys[above], waits=waits
            ),
        )
        above = {turn: found.above[turn] for turn in found.turns}
        return (
            {key: keys[turn] for key, turn in zip(keys, found.turn_of, strict=True)},
            {keys[turn]: None if up < 0 else keys[up] for turn, up in above.items()},
        )

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        turn_of, parents = self._in_turns()
        self._follow_calls(turn_of)
        members: dict[str, list[Node]] = {turn: [] for turn in parents}
        for key, node in self.nodes.items():
            members.setdefault(turn_of[key], []).append(node)
        order = list(parents_first(parents))
        followed = {up for up in parents.values() if up is not None}
        sources = self._sources()

        def derived(turn: str) -> DerivedTurn:
            framing = self._framing(turn, parents, turn_of, turn in followed)
            return self._derived(framing, members[turn], sources)

        answered = {
            turn
            for turn, nodes in members.items()
            if any(node.kind == "assistant" for node in nodes)
            or (self.nodes[turn].kind == "compaction" and parents[turn] is not None)
        }
        return Derivation(
            turns=made(order, derived),
            sessions=tuple(self._sessions(turn_of, parents, answered)),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _framing(
        self, turn: str, parents: dict[str, str | None], turn_of: dict[str, str], sealed: bool
    ) -> Framing:
        """Where a turn stands; for a compaction, what it summarised and what it kept."""
        parent = parents[turn]
        kept = turn_of.get(self.nodes[turn].kept or "")
        through, at = parent, parent
        while kept is not None and at is not None and at != kept:
            at = parents.get(at)
        if kept is None or at is None or parents.get(kept) is None:
            kept = None  # it is not above, or there is nothing before it to summarise
        else:
            through = parents[kept]
        return Framing(turn, parent, sealed, through, kept)

    def _derived(
        self, framing: Framing, nodes: list[Node], sources: dict[int, MessageSource]
    ) -> DerivedTurn:
        files = frozenset(file_id for node in nodes for file_id in node.file_ids)
        said = [sources[file_id] for file_id in sorted(files) if file_id in sources]
        asked_by: MessageSource = min(said, default="human")
        spawned = {
            node.call_id: label
            for node in nodes
            if node.call_id and (label := self._label(self.store.holder(node.spawned_key)))
        }
        config = next((node.config for node in nodes if node.kind == "assistant"), nodes[0].config)
        _, cwd = min(self.folders[file_id] for file_id in files)
        told = [f"{node.key};{node.entry_id};{node.kind}" for node in nodes]
        prints = [each.encode(errors="replace") for each in told]
        frame = repr((framing[2:], asked_by, sorted(spawned.items()), cwd, sorted(config.items())))
        return DerivedTurn(
            framing.turn_id,
            framing.parent_id,
            fingerprint(self.version, (*prints, frame.encode(errors="replace"))),
            files,
            tuple(node.key for node in nodes),
            partial(
                build_turn, self.material, framing, nodes, Setting(asked_by, cwd, spawned, config)
            ),
        )

    # -- sessions -----------------------------------------------------------------------------

    def _sources(self) -> dict[int, MessageSource]:
        """Who speaks in the sessions that no human opened, by file."""
        found: dict[int, MessageSource] = {}
        for transcript in self.transcripts:
            for standing in self.store.of(transcript.session_id):
                source = source_of(standing.key)
                if source is not None:
                    found[transcript.file.id] = source
        return found

    def _sessions(
        self, turn_of: dict[str, str], parents: dict[str, str | None], answered: set[str]
    ) -> Iterator[DerivedSession]:
        files: dict[str, list[Transcript]] = {}
        for transcript in self.transcripts:
            files.setdefault(transcript.session_id, []).append(transcript)
        for session_id, mine in files.items():
            mine.sort(key=lambda t: (t.last_at, len(t.nodes), t.rank()))
            leaf = mine[-1].leaf
            head = answered_above(turn_of[leaf] if leaf else None, parents, answered.__contains__)
            yield self._session(session_id, mine, head)

    def _session(
        self, session_id: str, files: list[Transcript], head: str | None
    ) -> DerivedSession:
        last, standings = files[-1], self.store.of(session_id)
        metadata = _described(last)
        key = parent = None
        entry = StoreEntry()
        if standings:
            key, entry = standings[-1].key, standings[-1].entry
            metadata |= entry.described()
            metadata["session_key"] = key
            metadata["observed_at"] = [
                min(standing.first_at for standing in standings),
                max(standing.last_at for standing in standings),
            ]
            parent = standings[0].spawner or self.store.holder(as_text(entry.spawned_by))
        agent = AGENT.match(key or "")
        keys = {s.key for s in standings if self.store.holder(s.key) == session_id}
        return DerivedSession(
            session_id=session_id,
            label=f"{self.source}:{session_id}",
            head=head,
            file_ids=frozenset(t.file.id for t in files).union(*(s.file_ids for s in standings)),
            title=_title(files, entry),
            agent_id=agent[1] if agent else None,
            created_at=milliseconds(files[0].header.timestamp) or files[0].nodes[0].at,
            updated_at=last.last_at,
            is_subagent=bool(entry.spawned_by) or source_of(key or "") == "agent",
            parent_label=self._label(parent) if parent != session_id else None,
            routing_key=key or metadata.get("cwd"),
            keys=tuple(sorted(keys)),
            metadata=metadata,
        )


def _title(files: list[Transcript], entry: StoreEntry) -> str | None:
    titles = [transcript.title for transcript in files if transcript.title]
    names = (entry.label, entry.display_name, entry.subject)
    return titles[-1] if titles else next((name for name in names if as_text(name)), None)


def _described(transcript: Transcript) -> dict[str, Any]:
    header = transcript.header
    said: dict[str, Any] = {}
    if as_text(header.cwd):
        said |= {"cwd": header.cwd, "project": project_name(header.cwd)}
    if as_number(header.version) is not None:
        said["format_version"] = header.version
    origin = as_text(header.parent_session) or as_text(header.branched_from)
    if origin:
        found = UUID.search(origin)
        said["forked_from"] = found[0] if found else origin
    return said
