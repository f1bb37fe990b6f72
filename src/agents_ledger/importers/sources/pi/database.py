"""OpenClaw's database, since 2026.7.2: an event of it is what a line of a transcript was.

Known from OpenClaw's sources (`src/state/openclaw-agent-schema.sql`) alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from agents_ledger.importers.parsing.encodings import is_text
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, parse_json
from agents_ledger.importers.parsing.row_filter import BySession, excluded_sessions
from agents_ledger.importers.port.limits import LIMITS
from agents_ledger.importers.port.material import (
    NOT_UTF8,
    Material,
    SourceLine,
    oversized_value,
)
from agents_ledger.importers.port.source import Project, SelectRows, Table
from agents_ledger.importers.transcript.record_offsets import RecordOffsets
from agents_ledger.model.imports.records import Framed, Peeked, digest, raw, unframe
from agents_ledger.model.imports.sources import Fault, SourceFile

DATABASE = "openclaw-agent.sqlite"
EVENTS = Table("transcript_events", ("session_id", "seq"))
CURRENT_SESSIONS = {"session_nodes": "current_session_id", "session_entries": "session_id"}
# The second name is that of the schema before it had `session_windows`.
EARLIER_SESSIONS = ("session_windows", "sessions")
# Not auth_profile_store and auth_profile_state: they hold secrets.
TABLES = (
    EVENTS,
    *(Table(name, ("session_key",)) for name in CURRENT_SESSIONS),
    *(Table(name, ("session_id",)) for name in EARLIER_SESSIONS),
)
SESSION_COLUMNS = {
    EVENTS.name: "session_id",
    **CURRENT_SESSIONS,
    **dict.fromkeys(EARLIER_SESSIONS, "session_id"),
}
ZSTANDARD = b"\x28\xb5\x2f\xfd"  # no JSON begins so
LINE_NUMBER_MAX = (1 << 32) - 1
HEADER_MAX = 64 << 10  # characters


def unpacked(data: bytes) -> bytes:
    """The JSON of an event. Since 2026.9.6 long ones are compressed. A damaged one is returned as
    it is, and is no JSON."""
    if not data.startswith(ZSTANDARD):
        return data
    import zstandard

    try:
        text = zstandard.ZstdDecompressor().stream_reader(data).read(LIMITS.record_bytes + 1)
    except zstandard.ZstdError:
        return data
    return text if len(text) <= LIMITS.record_bytes else data


class DatabaseTranscript(NamedTuple):
    session_id: str
    lines: Iterable[SourceLine]
    # Then its last entry is the latest, not the last in order.
    was_rewritten: bool


class DatabaseEvents:
    """The events of a database by session. Their text is in the kept rows as it would be in a file,
    so each is a line."""

    def __init__(self, material: Material, file: SourceFile) -> None:
        self._material = material
        self._file = file
        self._offsets = RecordOffsets(material)
        self._sequence = array("q")
        self._sessions: dict[str, array[int]] = {}  # events in the order they were kept
        for row in material.peek(file):
            if row.table == EVENTS.name:
                self._add(row)

    def _add(self, peeked: Peeked) -> None:
        row = unframe(peeked.data)
        values = dict(zip(row.columns, row.values, strict=False)) if row else {}
        framed = Framed(peeked.offset, len(peeked.data), peeked.data, row)
        size = oversized_value(framed, self._material.limits.text_bytes)
        if row is not None and size:
            self._material.report_long_value(self._file, peeked.offset, row, size)
            return
        data = raw(values.get("event_json")) or raw(values.get("event_zstd"))
        session_id, seq = as_text(values.get("session_id")), values.get("seq")
        if (
            not data
            or session_id is None
            or not isinstance(seq, int)
            or len(data) > LIMITS.record_bytes
        ):
            self._material.faults.append(Fault(self._file.path, "not an event", peeked.offset))
            self._material.count("(malformed)", "malformed")
            return
        # The text is in the archived row as it is: it can be read again like a line of a file.
        start = peeked.offset + peeked.data.index(data)
        # A line number has 32 bits in the index of offsets.
        number = min(max(seq, 0) + 1, LINE_NUMBER_MAX)
        self._sessions.setdefault(session_id, array("I")).append(len(self._sequence))
        self._sequence.append(seq)
        self._offsets.add_line(SourceLine(self._file, start, len(data), number, data))

    def transcripts(self) -> Iterator[DatabaseTranscript]:
        """The transcript of each session, with all versions of its events."""
        for batch in self._batches():
            held = self._read_batch(batch)
            for session_id in batch:
                events = self._sessions[session_id]
                numbers = map(self._sequence.__getitem__, events)
                was_rewritten = any(seq >= following for seq, following in pairwise(numbers))
                lines = self._lines(events, was_rewritten, held)
                yield DatabaseTranscript(session_id, lines, was_rewritten)

    def _batches(self) -> Iterator[list[str]]:
        """Sessions, as many together as may be held."""
        batch: list[str] = []
        size = 0
        for session_id, events in self._sessions.items():
            own = sum(map(self._offsets.length, events))
            if batch and size + own > self._material.limits.read_bytes:
                yield batch
                batch, size = [], 0
            batch.append(session_id)
            size += own
        yield batch

    def _read_batch(self, batch: list[str]) -> dict[int, bytes]:
        """The events of some sessions, read in the order they were kept: sessions may be mixed, and
        reading the file once for each would take long."""
        if self._material.holds or len(batch) == 1:
            return {}
        events = sorted(chain.from_iterable(map(self._sessions.__getitem__, batch)))
        return {event: self._offsets.data(event) for event in events}

    def _lines(
        self, events: Sequence[int], was_rewritten: bool, held: dict[int, bytes]
    ) -> Iterator[SourceLine]:
        seen: set[bytes] = set()
        for event in sorted(events, key=self._sequence.__getitem__) if was_rewritten else events:
            data = held.pop(event, None) or self._offsets.data(event)
            # An event that was moved or compressed is the same.
            if was_rewritten:
                content = digest(unpacked(data))
                if content in seen:
                    self._material.count(f"{EVENTS.name} (again)", "derived")
                    continue
                seen.add(content)
            at = self._offsets.line(event)
            line = SourceLine(at.file, at.offset, at.length, at.number, data)
            if not (data.isascii() or data.startswith(ZSTANDARD) or is_text(data)):
                self._material.fault(line, NOT_UTF8)
            yield line


def session_filter(rows: SelectRows, is_excluded: Callable[[Project], bool]) -> BySession:
    """All but the sessions of excluded projects, by the headers of their transcripts."""
    folders: dict[str, Project] = {}
    names: dict[str, None] = {}
    for session_id, event in rows(EVENTS, ("session_id", "event_json")):
        names.setdefault(str(session_id))
        is_header = isinstance(event, str) and len(event) < HEADER_MAX and '"session"' in event
        header = as_dict(parse_json(event)) if is_header and str(session_id) not in folders else {}
        cwd = as_text(header.get("cwd"))
        if cwd and header.get("type") == "session":
            folders[str(session_id)] = cwd
    return BySession(*excluded_sessions(folders, {}, names, is_excluded), SESSION_COLUMNS)
