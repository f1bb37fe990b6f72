"""pi and OpenClaw: the tree of entries over all files, and the sessions in it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from agents_ledger.importers.port.source import Material
from agents_ledger.importers.sources.pi.lazy_turns import Extras, Turns
from agents_ledger.importers.sources.pi.nodes import Nodes
from agents_ledger.importers.sources.pi.rows import Events
from agents_ledger.importers.sources.pi.store import AGENT, Standing, Store, StoreEntry, source_of
from agents_ledger.importers.sources.pi.transcript import Transcript
from agents_ledger.importers.sources.pi.tree import Tree
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.importers.transcript.turn_tree import UUID, as_number, as_text, project_name
from agents_ledger.model.imports.sources import Derivation, DerivedSession, Fate
from agents_ledger.model.turns import MessageSource


class Outline:
    """All files of a family together."""

    def __init__(self, material: Material, source: str, version: int) -> None:
        self.material = material
        self.source = source
        self.version = version
        self.store = Store(material)
        self.nodes = Nodes(material, source)
        transcripts = []
        for file in material.files:
            if file.kind == "document":
                self.store.read(file)
            elif file.kind == "rows":
                self.store.read_rows(file)
                told = Events(material, file).transcripts()
                transcripts += [Transcript(material, self.nodes, file, each) for each in told]
            else:
                transcripts.append(Transcript(material, self.nodes, file))
        self.transcripts = sorted((t for t in transcripts if t.entries), key=Transcript.rank)
        self._starters = {  # of several that tell of a session the first, which others copied
            key: each.session_id for each in reversed(self.transcripts) for key in each.started
        }
        self._ended = {key: id_ for each in self.transcripts for key, id_ in each.ended.items()}
        self._ended_as: dict[str, list[str]] = {}
        for key, session_id in self._ended.items():
            self._ended_as.setdefault(session_id, []).append(key)
        held = {transcript.session_id for transcript in self.transcripts}
        for (name, session_id), number in self.store.counted.items():
            fate: Fate = "derived" if session_id in held else "unmapped"
            material.count(name, fate, number)

    def _label(self, session_id: str | None) -> str | None:
        return f"{self.source}:{session_id}" if session_id else None

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        tree = Tree(self.nodes, self.nodes.merge([t.entries for t in self.transcripts]))
        extras = Extras(
            array("q", (transcript.file.id for transcript in self.transcripts)),
            [as_text(transcript.header.cwd) for transcript in self.transcripts],
            self._speakers(),
            self._spawned(),
        )
        return Derivation(
            turns=Turns(tree, self.version, extras).derived(),
            sessions=tuple(self._sessions(tree)),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _spawned(self) -> dict[int, tuple[str, str]]:
        """The calls that started sessions, with these, by the entries that tell of them."""
        held = ((n, call, self._holder(key)) for n, (call, key) in self.nodes.spawned.items())
        return {entry: (call, f"{self.source}:{child}") for entry, call, child in held if child}

    def _holder(self, key: str) -> str | None:
        """The session of a key. The map forgets subagents; what told of their end names them."""
        return self.store.holder(key) or self._ended.get(key)

    # -- sessions -----------------------------------------------------------------------------

    def _speakers(self) -> dict[int, MessageSource]:
        """Who speaks in the sessions that no human opened, by transcript."""
        found: dict[int, MessageSource] = {}
        for number, transcript in enumerate(self.transcripts):
            if transcript.is_subagent:
                found[number] = "agent"
            for standing in self.store.of(transcript.session_id):
                source = source_of(standing.key)
                if source is not None:
                    found[number] = source
        return found

    def _sessions(self, tree: Tree) -> Iterator[DerivedSession]:
        files: dict[str, list[Transcript]] = {}
        for transcript in self.transcripts:
            files.setdefault(transcript.session_id, []).append(transcript)
        for session_id, mine in files.items():
            mine.sort(key=lambda t: (t.last_at, len(t.entries), t.rank()))
            yield self._session(session_id, mine, tree.head(mine[-1].leaf))

    def _parent(self, keys: Iterable[str], standings: list[Standing]) -> str | None:
        """The session that told of starting one, else what the map says."""
        told = map(self._starters.get, keys)
        return next(filter(None, chain(told, map(self.store.spawner, standings))), None)

    def _session(
        self, session_id: str, files: list[Transcript], head: str | None
    ) -> DerivedSession:
        last, standings = files[-1], self.store.of(session_id)
        metadata = _described(last)
        entry = StoreEntry()
        called = [*self._ended_as.get(session_id, ()), *(each.key for each in standings)]
        key = called[-1] if called else None
        if key is not None:
            metadata["session_key"] = key
        if standings:
            entry = standings[-1].entry
            metadata |= entry.described()
            metadata["observed_at"] = [
                min(standing.first_at for standing in standings),
                max(standing.last_at for standing in standings),
            ]
        parent = self._parent(called, standings)
        agent = AGENT.match(key or "")
        keys = {s.key for s in standings if self.store.holder(s.key) == session_id}
        return DerivedSession(
            session_id=session_id,
            label=f"{self.source}:{session_id}",
            head=head,
            file_ids=frozenset(t.file.id for t in files).union(*(s.file_ids for s in standings)),
            title=_title(files, entry),
            agent_id=agent[1] if agent else None,
            created_at=milliseconds(files[0].header.timestamp) or files[0].first_at,
            updated_at=last.last_at,
            is_subagent=bool(entry.spawned_by or last.is_subagent)
            or source_of(key or "") == "agent",
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
