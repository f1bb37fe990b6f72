"""A SessionStore of the Claude Agent SDK: transcripts kept as source records, and read as turns.

What the SDK mirrors is kept word for word, as an imported file is, and derived by the reader of
Claude Code: the session is in the ledger while it runs. To derive reads a whole session, so that of
a long one waits until it has grown enough, or until nothing was appended for a while: appending to
it costs the same however long it is. Nothing is deleted: a deleted transcript is one whose latest
generation is empty.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct

from agents_ledger.importers.pipeline import Importer
from agents_ledger.importers.sources.claude_code.source import ClaudeCode
from agents_ledger.integrations.threads import checked, in_thread
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.archive_reader import TAIL_BYTES, tail_hash
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.errors import Conflict, LedgerError, NotFound
from agents_ledger.model.ids import now_ms
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.installation.extras import needed

with needed("claude", "agents_ledger.integrations.claude"):
    from claude_agent_sdk import fold_session_summary
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

ROOT = "claude-agent-sdk:"
READER = ClaudeCode()
TRIES = 20
SUFFIX = ".jsonl"


class DerivationTiming(Struct, frozen=True, kw_only=True):
    """When a session is derived: a derivation reads all of it."""

    small_bytes: int = 256 << 10  # sessions up to this size with every append,
    grown_part: int = 8  # larger ones when they have grown by an eighth,
    quiet_seconds: float = 1.0  # or after a pause of this length,
    pause: int = 20  # and of at least 20 times what the last derivation took


class _TranscriptState:
    """The entries of a transcript that were read so far, to detect duplicates."""

    def __init__(self, file_id: int) -> None:
        self.file_id = file_id
        self.upto = 0
        self.uuids: set[str] = set()
        self.first = self.last = b""

    def more(self, data: bytes, uuids: set[str]) -> None:
        self.first = (self.first + data[:TAIL_BYTES])[:TAIL_BYTES]
        self.last = (self.last + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self.upto += len(data)
        self.uuids |= uuids


class _DerivationState:
    """How much of a session with its subagents is derived, and how long that took."""

    def __init__(self, size: int, timing: DerivationTiming) -> None:
        self.size = size
        self._timing = timing
        self.waiting = 0  # archived bytes that are not derived yet
        self.seconds = 0.0
        self.appended_at = 0.0

    def is_due(self) -> bool:
        timing = self._timing
        return self.size <= timing.small_bytes or self.waiting * timing.grown_part >= self.size

    def quiet_in(self) -> float:
        """Seconds until the pause is long enough."""
        pause = max(self._timing.quiet_seconds, self.seconds * self._timing.pause)
        return self.appended_at + pause - time.monotonic()


class LedgerSessionStore(SessionStore):
    """`ClaudeAgentOptions(session_store=LedgerSessionStore(ledger))`."""

    def __init__(self, ledger: Ledger, *, timing: DerivationTiming | None = None) -> None:
        self._ledger = checked(ledger)
        self._timing = timing or DerivationTiming()
        self._guard = threading.Lock()
        self._seen: dict[str, _TranscriptState] = {}
        self._families: dict[str, _DerivationState] = {}
        self._timers: dict[str, threading.Timer] = {}

    @property
    def _sources(self) -> Sources:
        """A fresh view of the archive: other processes append too."""
        return self._ledger.sources

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store new entries, and derive the session's turns."""
        if entries:
            await in_thread(self._append, key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries in order; None if there are none."""
        return await in_thread(self._load, key)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The transcripts of a project."""
        files = await in_thread(self._transcripts, project_key)
        return [{"session_id": name, "mtime": _mtime(file)} for name, file in files.items()]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The SDK's summary of each transcript."""
        files = await in_thread(self._transcripts, project_key)
        return [
            {"session_id": name, "mtime": _mtime(file), "data": _summary(file)}
            for name, file in files.items()
        ]

    async def delete(self, key: SessionKey) -> None:
        """Hide a transcript, and a session's subagents with it. Records and turns stay."""
        await in_thread(self._delete, key)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The transcripts of a session's subagents."""
        prefix = _folder(key["project_key"], key["session_id"])
        files = await in_thread(self._latest, prefix)
        return [_decoded(file.path.removeprefix(prefix)) for file in files]

    def flush(self) -> None:
        """Derive pending entries now; the next import derives those that a program leaves."""
        with self._guard:
            for family, state in self._families.items():
                if state.waiting:
                    self._derive(family)

    # -- in a thread --------------------------------------------------------------------------

    def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        path = _path(key)
        with self._guard:
            for _ in range(TRIES):
                try:
                    new_bytes = self._keep(key, path, entries)
                    break
                except Conflict:
                    # Another process appended first: read its entries, which may be the same ones,
                    # and retry.
                    continue
            else:
                raise Conflict(f"too many other processes are writing {path}", "Retry the call.")
            if new_bytes:
                self._derive_in_time(READER.family(Path(path)), new_bytes)
                self._set_status(path, "deleted", "active")

    def _derive_in_time(self, family: str, new_bytes: int) -> None:
        state = self._families.get(family)
        if state is None:
            files = self._sources.files_of_family(family)
            size = sum(file.kept_bytes for file in files) - new_bytes
            state = self._families[family] = _DerivationState(size, self._timing)
        state.size += new_bytes
        state.waiting += new_bytes
        state.appended_at = time.monotonic()
        if state.is_due():
            self._derive(family)
        elif family not in self._timers:
            self._derive_later(family)

    def _derive(self, family: str) -> None:
        state = self._families[family]
        begun = time.monotonic()
        Importer(self._ledger).derive_safely(READER, family)
        state.waiting, state.seconds = 0, time.monotonic() - begun

    def _derive_later(self, family: str) -> None:
        timer = threading.Timer(self._families[family].quiet_in(), self._quiet, (family,))
        timer.daemon = True
        self._timers[family] = timer
        timer.start()

    def _quiet(self, family: str) -> None:
        with self._guard:
            del self._timers[family]
            state = self._families[family]
            if state.waiting and state.quiet_in() > 0:
                self._derive_later(family)
            elif state.waiting:
                # The ledger is closed or unreachable: the next import derives what is archived.
                with suppress(LedgerError):
                    self._derive(family)

    def _keep(self, key: SessionKey, path: str, entries: list[SessionStoreEntry]) -> int:
        """Store new entries; returns their size in bytes."""
        file = self._sources.file(path) or self._begin(path, None)
        seen = self._seen_of(file)
        fresh: dict[str, SessionStoreEntry] = {}
        for number, entry in enumerate(entries):
            uuid = entry.get("uuid")
            if not isinstance(uuid, str):
                fresh[f"\0{number}"] = entry
            elif uuid not in seen.uuids:
                # The SDK retries failed appends, and asks to ignore entries whose uuid is known.
                # Entries without one cannot be compared.
                fresh.setdefault(uuid, entry)
        if not fresh:
            return 0
        lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in fresh.values())
        data, overwritten = self._sources.cleaned(file, lines)
        grown = self._sources.append(
            file,
            data,
            size=file.kept_bytes + len(data),
            mtime_ns=now_ms() * 1_000_000,
            tail=tail_hash(seen.first + data[:TAIL_BYTES], seen.last + data[-TAIL_BYTES:]),
            cursor=self._folded(key, file, _entries(data)),
            overwritten=overwritten,
        )
        seen.file_id = grown.id
        seen.more(data, {uuid for uuid in fresh if not uuid.startswith("\0")})
        self._seen[path] = seen
        return len(data)

    def _begin(self, path: str, previous: SourceFile | None) -> SourceFile:
        return self._sources.begin(
            source=READER.name,
            path=path,
            family=READER.family(Path(path)),
            kind="lines",
            previous=previous,
        )

    def _folded(
        self, key: SessionKey, file: SourceFile, entries: list[SessionStoreEntry]
    ) -> str | None:
        """The SDK's summary of a session, stored as the cursor of its file."""
        if key.get("subpath"):
            return None
        before: SessionSummaryEntry | None = None
        if file.cursor_json:
            data = _summary(file)
            before = {"session_id": key["session_id"], "mtime": _mtime(file), "data": data}
        return json.dumps(fold_session_summary(before, key, entries)["data"])

    def _seen_of(self, file: SourceFile) -> _TranscriptState:
        """The state of a transcript; only entries added since the last call are read."""
        seen = self._seen.get(file.path)
        if seen is None or seen.file_id != file.id or seen.upto > file.kept_bytes:
            seen = _TranscriptState(file.id)
        if seen.upto < file.kept_bytes:
            data = self._bytes(file, seen.upto)
            uuids = {e["uuid"] for e in _entries(data) if isinstance(e.get("uuid"), str)}
            seen.more(data, uuids)
            self._seen[file.path] = seen
        return seen

    def _bytes(self, file: SourceFile, start: int) -> bytes:
        if start:
            return self._sources.read(file.id, start, file.kept_bytes - start)
        return b"".join(self._sources.stream(file.id))[: file.kept_bytes]

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        file = self._sources.file(_path(key))
        return _entries(self._bytes(file, 0)) if file and file.kept_bytes else None

    def _latest(self, prefix: str) -> list[SourceFile]:
        """The transcripts below a folder that are not deleted, each in its latest generation."""
        latest = {file.path: file for file in self._sources.files_under(prefix)}
        return [file for file in latest.values() if file.kept_bytes]

    def _transcripts(self, project_key: str) -> dict[str, SourceFile]:
        prefix = _folder(project_key)
        files = {file.path.removeprefix(prefix): file for file in self._latest(prefix)}
        return {_decoded(name): file for name, file in files.items() if "/" not in name}

    def _delete(self, key: SessionKey) -> None:
        path = _path(key)
        with self._guard:
            files = [self._sources.file(path)]
            if not key.get("subpath"):
                files += self._latest(_folder(key["project_key"], key["session_id"]))
            for file in files:
                if file is not None and file.kept_bytes:
                    self._sources.append(
                        self._begin(file.path, file), b"", size=0, mtime_ns=now_ms() * 1_000_000
                    )
                    self._set_status(file.path, "active", "deleted")

    def _set_status(self, path: str, before: Any, after: Any) -> None:
        for label in self._sources.labels_of_paths([path]):
            try:
                if self._ledger.session(label, exact=True).status == before:
                    self._ledger.archive(label, after)
            except NotFound:  # merged into another session
                continue


def _entries(data: bytes) -> list[SessionStoreEntry]:
    return [json.loads(line) for line in data.splitlines()]


def _encoded(part: str) -> str:
    return quote(part, safe="", errors="surrogatepass")


def _decoded(path: str) -> str:
    return unquote(path.removesuffix(SUFFIX), errors="surrogatepass")


def _folder(*parts: str) -> str:
    return "/".join((ROOT, *map(_encoded, parts), ""))


def _path(key: SessionKey) -> str:
    """The path of a transcript in the archive. The folders of a subpath are kept."""
    parts = [key["project_key"], key["session_id"], *(key.get("subpath") or "").split("/")]
    return "/".join((ROOT, *(_encoded(part) for part in parts if part))) + SUFFIX


def _mtime(file: SourceFile) -> int:
    return file.mtime_ns // 1_000_000


def _summary(file: SourceFile) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(file.cursor_json or "{}")
    return summary
