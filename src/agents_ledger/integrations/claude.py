"""A SessionStore of the Claude Agent SDK: transcripts kept as source records, and read as turns.

What the SDK mirrors is kept word for word, as an imported file is, and derived by the reader of
Claude Code: the session is in the ledger while it runs. Nothing is deleted: a deleted transcript is
one whose latest generation is empty.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

from agents_ledger.importers.claude_code import ClaudeCode
from agents_ledger.importers.importing import Importer
from agents_ledger.integrations.threads import in_thread
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.sources import TAIL_BYTES, Sources, tail_hash
from agents_ledger.model.errors import Conflict, NotFound
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sources import SourceFile

ROOT = "claude-agent-sdk:"
READER = ClaudeCode()
TRIES = 20
SUFFIX = ".jsonl"


class _Seen(NamedTuple):
    """The ids of a transcript's entries, as far as it was read."""

    file_id: int
    upto: int
    uuids: frozenset[str]


class LedgerSessionStore(SessionStore):
    """`ClaudeAgentOptions(session_store=LedgerSessionStore(ledger))`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._guard = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    @property
    def _sources(self) -> Sources:
        """What is kept, looked at anew: other processes keep more."""
        return Sources(self._ledger._core)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Keep entries that are not there yet, and derive the session's turns."""
        if entries:
            await in_thread(self._append, key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries in their order; None if there are none."""
        return await in_thread(self._load, key)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The transcripts of a project."""
        files = await in_thread(self._transcripts, project_key)
        return [{"session_id": name, "mtime": _mtime(file)} for name, file in files.items()]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What the SDK folded of each transcript."""
        files = await in_thread(self._transcripts, project_key)
        return [
            {"session_id": name, "mtime": _mtime(file), "data": _summary(file)}
            for name, file in files.items()
        ]

    async def delete(self, key: SessionKey) -> None:
        """Hide a transcript, and with a session's its subagents'. Its records and turns stay."""
        await in_thread(self._delete, key)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The transcripts of a session's subagents."""
        prefix = _folder(key["project_key"], key["session_id"])
        files = await in_thread(self._latest, prefix)
        return [_decoded(file.path.removeprefix(prefix)) for file in files]

    # -- in a thread --------------------------------------------------------------------------

    def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        path = _path(key)
        with self._guard:
            for _ in range(TRIES):
                try:
                    kept = self._keep(key, path, entries)
                    break
                except Conflict:  # another process was quicker: go on from what it kept
                    continue
            else:
                raise Conflict(f"{path} is written by too many others", "Append again.")
            if kept:
                Importer(self._ledger).derive_safely(READER, READER.family(Path(path)))
                self._set_status(path, "deleted", "active")

    def _keep(self, key: SessionKey, path: str, entries: list[SessionStoreEntry]) -> bool:
        file = self._sources.file(path) or self._begin(path, None)
        seen = self._seen_of(file)
        fresh: dict[str, SessionStoreEntry] = {}
        for number, entry in enumerate(entries):
            uuid = entry.get("uuid")
            if not isinstance(uuid, str):
                fresh[f"\0{number}"] = entry
            elif uuid not in seen.uuids:
                fresh.setdefault(uuid, entry)
        if not fresh:
            return False
        data = b"".join(json.dumps(entry).encode() + b"\n" for entry in fresh.values())
        first = self._sources.read(file.id, 0, TAIL_BYTES) if file.kept_bytes else b""
        last = self._sources.read(file.id, max(0, file.kept_bytes - TAIL_BYTES), TAIL_BYTES)
        grown = self._sources.append(
            file,
            data,
            size=file.kept_bytes + len(data),
            mtime_ns=now_ms() * 1_000_000,
            tail=tail_hash((first + data)[:TAIL_BYTES], (last + data)[-TAIL_BYTES:]),
            cursor=self._folded(key, file, list(fresh.values())),
        )
        known = seen.uuids | {uuid for uuid in fresh if not uuid.startswith("\0")}
        self._seen[path] = _Seen(grown.id, grown.kept_bytes, known)
        return True

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
        """The SDK's summary of a session, kept where the source goes on."""
        if key.get("subpath"):
            return None
        before: SessionSummaryEntry | None = None
        if file.cursor_json:
            data = _summary(file)
            before = {"session_id": key["session_id"], "mtime": _mtime(file), "data": data}
        return json.dumps(fold_session_summary(before, key, entries)["data"])

    def _seen_of(self, file: SourceFile) -> _Seen:
        """The ids of a transcript's entries; only what came since the last look is read."""
        seen = self._seen.get(file.path)
        if seen is None or seen.file_id != file.id or seen.upto > file.kept_bytes:
            seen = _Seen(file.id, 0, frozenset())
        if seen.upto < file.kept_bytes:
            entries = self._entries(file, seen.upto)
            uuids = {e["uuid"] for e in entries if isinstance(e.get("uuid"), str)}
            seen = _Seen(file.id, file.kept_bytes, seen.uuids | uuids)
            self._seen[file.path] = seen
        return seen

    def _entries(self, file: SourceFile, start: int = 0) -> list[SessionStoreEntry]:
        data = self._sources.read(file.id, start, file.kept_bytes - start)
        return [json.loads(line) for line in data.splitlines()]

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        file = self._sources.file(_path(key))
        return self._entries(file) if file and file.kept_bytes else None

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
            except NotFound:  # merged away
                continue


def _encoded(part: str) -> str:
    return quote(part, safe="", errors="surrogatepass")


def _decoded(path: str) -> str:
    return unquote(path.removesuffix(SUFFIX), errors="surrogatepass")


def _folder(*parts: str) -> str:
    return "/".join((ROOT, *map(_encoded, parts), ""))


def _path(key: SessionKey) -> str:
    """Where a transcript stands among the sources. A subpath's folders stay folders."""
    parts = [key["project_key"], key["session_id"], *(key.get("subpath") or "").split("/")]
    return "/".join((ROOT, *(_encoded(part) for part in parts if part))) + SUFFIX


def _mtime(file: SourceFile) -> int:
    return file.mtime_ns // 1_000_000


def _summary(file: SourceFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.cursor_json or "{}")
    return found
