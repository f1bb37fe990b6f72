"""OpenClaw's database: an event of it says what a line of a transcript would."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from agents_ledger.importers.parsing.row_filter import BySession, told
from agents_ledger.importers.port.material import oversized_value
from agents_ledger.importers.port.source import (
    NO_TEXT,
    RECORD_MAX,
    Line,
    Material,
    Project,
    Select,
    Table,
    is_text,
)
from agents_ledger.importers.transcript.record_offsets import Places
from agents_ledger.importers.transcript.turn_tree import as_dict, as_text, parsed
from agents_ledger.model.imports.records import Framed, Peeked, digest, raw, unframe
from agents_ledger.model.imports.sources import Fault, SourceFile

DATABASE = "openclaw-agent.sqlite"
EVENTS = Table("transcript_events", ("session_id", "seq"))
STANDINGS = {"session_nodes": "current_session_id", "session_entries": "session_id"}
WINDOWS = ("session_windows", "sessions")
# Not auth_profile_store and auth_profile_state: they hold secrets.
TABLES = (
    EVENTS,
    *(Table(name, ("session_key",)) for name in STANDINGS),
    *(Table(name, ("session_id",)) for name in WINDOWS),
)
OF = {EVENTS.name: "session_id", **STANDINGS, **dict.fromkeys(WINDOWS, "session_id")}
PACKED = b"\x28\xb5\x2f\xfd"  # so Zstandard begins, and no JSON
LAST_NUMBER = (1 << 32) - 1
HEADER_MAX = 64 << 10  # letters
LOT_MAX = 4 << 20  # bytes


def unpacked(data: bytes) -> bytes:
    """What an event says; since September 2026 long ones are packed. No JSON if it is damaged."""
    if not data.startswith(PACKED):
        return data
    import zstandard

    try:
        said = zstandard.ZstdDecompressor().stream_reader(data).read(RECORD_MAX + 1)
    except zstandard.ZstdError:
        return data
    return said if len(said) <= RECORD_MAX else data


class Told(NamedTuple):
    """One transcript of several."""

    session_id: str
    lines: Iterable[Line]
    was_rewritten: bool  # some of it: then its last entry is the latest one, not the last in order


class Events:
    """The events of a database, by session. What they say stands in the kept rows as it would in a
    file, so each is a line."""

    def __init__(self, material: Material, file: SourceFile) -> None:
        self._material = material
        self._file = file
        self._places = Places(material)
        self._seqs = array("q")
        self._sessions: dict[str, array[int]] = {}  # events in the order they were kept
        for row in material.peek(file):
            if row.table == EVENTS.name:
                self._add(row)

    def _add(self, peeked: Peeked) -> None:
        row = unframe(peeked.data)
        values = dict(zip(row.columns, row.values, strict=False)) if row else {}
        long = oversized_value(
            Framed(peeked.offset, len(peeked.data), peeked.data, row),
            self._material.limits.text_bytes,
        )
        if row is not None and long:
            self._material.too_long(self._file, peeked.offset, row, long)
            return
        said = raw(values.get("event_json")) or raw(values.get("event_zstd"))
        session_id, seq = as_text(values.get("session_id")), values.get("seq")
        if not said or session_id is None or not isinstance(seq, int) or len(said) > RECORD_MAX:
            self._material.faults.append(Fault(self._file.path, "not an event", peeked.offset))
            self._material.count("(malformed)", "malformed")
            return
        start = peeked.offset + peeked.data.index(said)
        number = min(max(seq, 0) + 1, LAST_NUMBER)
        self._sessions.setdefault(session_id, array("I")).append(len(self._seqs))
        self._seqs.append(seq)
        self._places.add(Line(self._file, start, len(said), number, said))

    def transcripts(self) -> Iterator[Told]:
        """That of each session, with all that it ever said."""
        for lot in self._lots():
            held = self._held(lot)
            for session_id in lot:
                events = self._sessions[session_id]
                seqs = map(self._seqs.__getitem__, events)
                was_rewritten = any(seq >= following for seq, following in pairwise(seqs))
                yield Told(session_id, self._lines(events, was_rewritten, held), was_rewritten)

    def _lots(self) -> Iterator[list[str]]:
        """Sessions, as many together as may be held."""
        lot: list[str] = []
        size = 0
        for session_id, events in self._sessions.items():
            own = sum(map(self._places.length, events))
            if lot and size + own > LOT_MAX:
                yield lot
                lot, size = [], 0
            lot.append(session_id)
            size += own
        yield lot

    def _held(self, lot: list[str]) -> dict[int, bytes]:
        """What the events of some sessions say, read in the order they were kept: sessions may be
        mixed, and to go through all of the file for each would take long."""
        if self._material.holds or len(lot) == 1:
            return {}
        events = sorted(chain.from_iterable(map(self._sessions.__getitem__, lot)))
        return {event: self._places.bytes_of(event) for event in events}

    def _lines(
        self, events: Sequence[int], was_rewritten: bool, held: dict[int, bytes]
    ) -> Iterator[Line]:
        seen: set[bytes] = set()
        for event in sorted(events, key=self._seqs.__getitem__) if was_rewritten else events:
            data = held.pop(event, None) or self._places.bytes_of(event)
            if was_rewritten:  # what was moved, or packed, is the same
                said = digest(unpacked(data))
                if said in seen:
                    self._material.count(f"{EVENTS.name} (again)", "derived")
                    continue
                seen.add(said)
            at = self._places.line(event)
            line = Line(at.file, at.offset, at.length, at.number, data)
            if not (data.isascii() or data.startswith(PACKED) or is_text(data)):
                self._material.fault(line, NO_TEXT)
            yield line


def sieve(own: Select, is_left: Callable[[Project], bool]) -> BySession:
    """All but the sessions of projects that are left out, by the headers of their transcripts."""
    folders: dict[str, Project] = {}
    names: dict[str, None] = {}
    for session_id, said in own(EVENTS, ("session_id", "event_json")):
        names.setdefault(str(session_id))
        is_header = isinstance(said, str) and len(said) < HEADER_MAX and '"session"' in said
        header = as_dict(parsed(said)) if is_header and str(session_id) not in folders else {}
        cwd = as_text(header.get("cwd"))
        if cwd and header.get("type") == "session":
            folders[str(session_id)] = cwd
    return BySession(*told(folders, {}, names, is_left), OF)
