"""pi and OpenClaw: reads all files of a family, and derives its sessions and turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from agents_ledger.importers.parsing.lenient_json import UUID, as_number, as_text, project_name
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.pi.database import DatabaseEvents
from agents_ledger.importers.sources.pi.entries import PiEntries
from agents_ledger.importers.sources.pi.rules import AGENT_KEY, source_of_key
from agents_ledger.importers.sources.pi.session_map import KeyPeriod, MapEntry, SessionMap
from agents_ledger.importers.sources.pi.transcript import Transcript
from agents_ledger.importers.sources.pi.tree import PiTree
from agents_ledger.importers.sources.pi.turns import PiTurns, TurnContext
from agents_ledger.model.imports.sources import Derivation, DerivedSession, Fate
from agents_ledger.model.turns import MessageSource


class PiFamily:
    def __init__(self, material: Material, source: str) -> None:
        self.material = material
        self.source = source
        self.map = SessionMap(material)
        self.entries = PiEntries(material, source)
        self.transcripts = sorted(
            (transcript for transcript in self._read() if transcript.entries), key=Transcript.rank
        )
        # By key; of several transcripts the first, which others copied.
        self._starters = {
            key: t.session_id for t in reversed(self.transcripts) for key in t.started
        }
        self._ended = {key: name for t in self.transcripts for key, name in t.ended.items()}
        self._ended_keys: dict[str, list[str]] = {}  # by session
        for key, session_id in self._ended.items():
            self._ended_keys.setdefault(session_id, []).append(key)
        present = {transcript.session_id for transcript in self.transcripts}
        for (name, session_id), number in self.map.observations.items():
            fate: Fate = "derived" if session_id in present else "unmapped"
            material.count(name, fate, number)

    def _read(self) -> list[Transcript]:
        material, entries = self.material, self.entries
        transcripts = []
        for file in material.files:
            if file.kind == "document":
                self.map.read(file)
            elif file.kind == "rows":
                self.map.read_rows(file)
                parts = DatabaseEvents(material, file).transcripts()
                transcripts += [Transcript(material, entries, file, part) for part in parts]
            else:
                transcripts.append(Transcript(material, entries, file))
        return transcripts

    def derivation(self, version: int) -> Derivation:
        tree = PiTree(self.entries, self.entries.merge([t.entries for t in self.transcripts]))
        context = TurnContext(
            [transcript.file.id for transcript in self.transcripts],
            [as_text(transcript.header.cwd) for transcript in self.transcripts],
            self._speakers(),
            self._spawned(),
        )
        return Derivation(
            turns=PiTurns(tree, version, context),
            sessions=tuple(self._sessions(tree)),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _spawned(self) -> dict[int, tuple[str, str]]:
        """By entry, the call and the label of the session that it started. The map forgets a
        subagent an hour after its end; then the report of its end names it."""
        labels: dict[int, tuple[str, str]] = {}
        for entry, (call_id, key) in self.entries.spawned.items():
            child = self.map.session_of(key) or self._ended.get(key)
            if child:
                labels[entry] = call_id, f"{self.source}:{child}"
        return labels

    def _speakers(self) -> dict[int, MessageSource]:
        """By transcript, who writes the prompts, where that is no person."""
        speakers: dict[int, MessageSource] = {}
        for number, transcript in enumerate(self.transcripts):
            if transcript.is_subagent:
                speakers[number] = "agent"
            for period in self.map.periods(transcript.session_id):
                source = source_of_key(period.key)
                if source is not None:
                    speakers[number] = source
        return speakers

    # -- sessions -----------------------------------------------------------------------------

    def _sessions(self, tree: PiTree) -> Iterator[DerivedSession]:
        by_session: dict[str, list[Transcript]] = {}
        for transcript in self.transcripts:
            by_session.setdefault(transcript.session_id, []).append(transcript)
        for session_id, transcripts in by_session.items():
            # A session may have several: the file, its .reset or .deleted copy, and the database.
            transcripts.sort(key=lambda t: (t.last_at, len(t.entries), t.rank()))
            yield self._session(session_id, transcripts, tree.head(transcripts[-1].leaf))

    def _parent(self, keys: Iterable[str], periods: list[KeyPeriod]) -> str | None:
        """The session whose transcript reports the start, else what the map says."""
        starters = map(self._starters.get, keys)
        return next(filter(None, chain(starters, map(self.map.parent_of, periods))), None)

    def _session(
        self, session_id: str, transcripts: list[Transcript], head: str | None
    ) -> DerivedSession:
        last, periods = transcripts[-1], self.map.periods(session_id)
        metadata = _header_metadata(last)
        entry = MapEntry()
        keys = [*self._ended_keys.get(session_id, ()), *(period.key for period in periods)]
        key = keys[-1] if keys else None
        if key is not None:
            metadata["session_key"] = key
        if periods:
            entry = periods[-1].entry
            metadata |= entry.metadata()
            metadata["observed_at"] = [
                min(period.first_at for period in periods),
                max(period.last_at for period in periods),
            ]
        parent = self._parent(keys, periods)
        agent = AGENT_KEY.match(key or "")
        current = {p.key for p in periods if self.map.session_of(p.key) == session_id}
        file_ids = frozenset(transcript.file.id for transcript in transcripts)
        return DerivedSession(
            session_id=session_id,
            label=f"{self.source}:{session_id}",
            head=head,
            file_ids=file_ids.union(*(period.file_ids for period in periods)),
            title=_title(transcripts, entry),
            agent_id=agent[1] if agent else None,
            created_at=milliseconds(transcripts[0].header.timestamp) or transcripts[0].first_at,
            updated_at=last.last_at,
            is_subagent=bool(entry.spawned_by or last.is_subagent)
            or source_of_key(key or "") == "agent",
            parent_label=f"{self.source}:{parent}" if parent and parent != session_id else None,
            routing_key=key or metadata.get("cwd"),
            keys=tuple(sorted(current)),
            metadata=metadata,
        )


def _title(transcripts: list[Transcript], entry: MapEntry) -> str | None:
    titles = [transcript.title for transcript in transcripts if transcript.title]
    names = (entry.label, entry.display_name, entry.subject)
    return titles[-1] if titles else next((name for name in names if as_text(name)), None)


def _header_metadata(transcript: Transcript) -> dict[str, Any]:
    header = transcript.header
    metadata: dict[str, Any] = {}
    if as_text(header.cwd):
        metadata |= {"cwd": header.cwd, "project": project_name(header.cwd)}
    if as_number(header.version) is not None:
        metadata["format_version"] = header.version
    origin = as_text(header.parent_session) or as_text(header.branched_from)  # a path; version 1
    if origin:
        session_id = UUID.search(origin)
        metadata["forked_from"] = session_id[0] if session_id else origin
    return metadata
