"""Codex: rollouts of JSON lines in the order they happened, without ids of records.

docs/sources/codex.md describes the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import structs

from agents_ledger.importers.parsing.lenient_json import BROKEN, as_text
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.codex.log import RolloutReader
from agents_ledger.importers.sources.codex.records import (
    decode_envelope,
    decode_payload,
    rollout_name,
)
from agents_ledger.importers.sources.codex.rules import ENVELOPES_ONLY_HERE, NAME
from agents_ledger.importers.sources.codex.tree import CodexTree, latest_titles, sessions_of
from agents_ledger.importers.sources.codex.turn_copies import CodexCopies
from agents_ledger.importers.sources.codex.turns import CodexTurns
from agents_ledger.model.imports.sources import Derivation

FOLDERS = ("sessions", "archived_sessions")
INDEX = "session_index.jsonl"
HEAD_LINES = 50


class Codex(Source):
    name = NAME
    version = 18

    def roots(self, home: Home) -> Sequence[Path]:
        configured = home.environment.get("CODEX_HOME")
        folder = Path(configured) if configured else home.home / ".codex"
        return [folder / name for name in (*FOLDERS, INDEX)]

    def wants(self, path: Path) -> bool:
        # Cold rollouts are compressed since 2026.
        return path.name.endswith((".jsonl", ".jsonl.zst"))

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether there is an envelope of Codex, a line of its old format, or one of its index."""
        for line in head.split(b"\n")[:HEAD_LINES]:
            try:
                envelope = decode_envelope(line)
                is_ours = isinstance(envelope.type, str) and envelope.type in ENVELOPES_ONLY_HERE
                if is_ours and bytes(envelope.payload).startswith(b"{"):
                    return True
                payload = decode_payload(line)
                if envelope.type is None and (payload.is_old or payload.names_thread):
                    return True
            except BROKEN:
                continue
        return False

    def is_named(self, path: Path, head: bytes) -> bool:
        """Whether a damaged file has the name of a rollout, and its readable records, if there are
        any, have types."""
        lines = head.split(b"\n")[:HEAD_LINES]
        types = [kind for line in lines if (kind := _record_type(line)) is not None]
        return self.wants(path) and rollout_name(path) is not None and (not types or any(types))

    def family(self, path: Path) -> str:
        """All files of a thread; forks join it through the turns they share."""
        name = rollout_name(path)
        return f"{NAME}:{name[1] if name else path}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        """The folder in the first record; the index belongs to all projects."""
        paths = [path]
        if path.name == INDEX:
            paths = [rollout for name in FOLDERS for rollout in _below(path.parent / name, probe)]
        return [folder for rollout in paths if (folder := probe.working_folder(rollout))] or None

    def derive(self, material: Material) -> Derivation:
        copies = CodexCopies(material)
        rollouts = [RolloutReader(material, file, copies).read() for file in material.files]
        copies.entries.group(len(copies))
        copies.entries.free_owners()
        titles = [title for rollout in rollouts for title in rollout.index_titles.values()]
        tree = CodexTree(rollouts, copies)
        sessions = list(sessions_of([rollout for rollout in rollouts if rollout.turns], tree))
        # The program itself shows the title of the index before that of the rollout.
        indexed = latest_titles(material.titles(session.label for session in sessions))
        for index, session in enumerate(sessions):
            if session.label in indexed:
                sessions[index] = structs.replace(session, title=indexed[session.label].title)
        return Derivation(
            turns=CodexTurns(tree, self.version),
            sessions=tuple(sorted(sessions, key=lambda session: session.session_id)),
            faults=tuple(material.faults),
            counts=material.counts,
            titles=tuple(latest_titles(titles).values()),
        )


def _below(folder: Path, probe: FileProbe) -> Iterator[Path]:
    """The rollouts in a folder and in its folders of years, months and days."""
    for name in probe.names(folder):
        if rollout_name(folder / name):
            yield folder / name
        elif name.isdigit():
            yield from _below(folder / name, probe)


def _record_type(line: bytes) -> str | None:
    """The type of a record, empty if it has none; None if the line is not a record."""
    try:
        return as_text(decode_envelope(line).type) or ""
    except BROKEN:
        return None
