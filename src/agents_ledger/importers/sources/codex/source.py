"""Codex: rollouts of JSON lines in the order they happened, without ids of records.

A turn is known by its turn id, which a fork that replays its parent keeps: so both share it. Files
older than turn ids are told by the thread they began with and by what they say up to a prompt.
docs/sources/codex.md tells where each rule was learned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.source import Home, Look, Material, Project, Source
from agents_ledger.importers.sources.codex.history import ROLLOUT, join, stem
from agents_ledger.importers.sources.codex.lazy_turns import Turns
from agents_ledger.importers.sources.codex.parts import VERSION, Part, Parts
from agents_ledger.importers.sources.codex.rollout import (
    ONLY_HERE,
    Payload,
    Rollout,
    decode_envelope,
    decode_payload,
    is_old,
    is_subagent,
    names_thread,
    parent_thread,
)
from agents_ledger.importers.sources.codex.turns import NAME
from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    UUID7,
    as_dict,
    as_text,
    project_name,
    uuid7_ms,
)
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    SourceKind,
    SourceTitle,
)

ROLLOUTS = ("sessions", "archived_sessions")
INDEX = "session_index.jsonl"
META_FIELDS = {
    "originator": "originator",
    "cli_version": "version",
    "model_provider": "model_provider",
    "forked_from_id": "forked_from",
    "agent_nickname": "agent_nickname",
    "agent_role": "agent_role",
    "agent_path": "agent_path",
    "cwd": "cwd",
}
GIT_FIELDS = {"branch": "git_branch", "commit_hash": "git_commit", "repository_url": "repository"}


class Codex(Source):
    """Reader of Codex's rollouts."""

    name = NAME
    version = VERSION
    kind: SourceKind = "lines"

    def roots(self, home: Home) -> Sequence[Path]:
        """The sessions in use, those archived, and what they are called."""
        chosen = home.environment.get("CODEX_HOME")
        folder = Path(chosen) if chosen else home.home / ".codex"
        return [folder / name for name in (*ROLLOUTS, INDEX)]

    def wants(self, path: Path) -> bool:
        """Rollouts, compressed or not, and the index of names."""
        return path.name.endswith((".jsonl", ".jsonl.zst"))

    def recognises(self, path: Path, head: bytes) -> bool:
        """An envelope of this source, the first line of its old format, or a line of the index."""
        for line in head.split(b"\n")[:50]:
            try:
                record = decode_envelope(line)
                known = isinstance(record.type, str) and record.type in ONLY_HERE
                if known and bytes(record.payload).startswith(b"{"):
                    return True
                payload = decode_payload(line)
                if record.type is None and (is_old(payload) or names_thread(payload)):
                    return True
            except BROKEN:
                continue
        return False

    def is_named(self, path: Path, head: bytes) -> bool:
        """The whole name of a rollout. Of the records that can be read, if any, one has a type."""
        types = [said for line in head.split(b"\n")[:50] if (said := _type_of(line)) is not None]
        return self.wants(path) and bool(ROLLOUT.match(stem(path))) and (not types or any(types))

    def family(self, path: Path) -> str:
        """All files of a thread; forks are found by the turns they share."""
        found = ROLLOUT.match(stem(path))
        return f"{NAME}:{found[1] if found else path}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As its first record says; the index is of all the rollouts beside it."""
        paths = [path]
        if path.name == INDEX:
            paths = [each for name in ROLLOUTS for each in _below(path.parent / name, look)]
        return [said for each in paths if (said := look.working_folder(each))] or None

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        parts = Parts(material)
        rollouts = [Rollout(material, file, parts) for file in material.files]
        parts.group()
        named = [said for rollout in rollouts for said in rollout.others.values()]
        turns = Turns(parts, join(rollouts, parts))
        rollouts = [rollout for rollout in rollouts if rollout.own]
        sessions = list(_sessions(rollouts, parts, turns))
        called = _latest(material.titles(session.label for session in sessions))
        for at, session in enumerate(sessions):
            if session.label in called:  # as the program itself shows it
                sessions[at] = structs.replace(session, title=called[session.label].title)
        return Derivation(
            turns=turns,
            sessions=tuple(sorted(sessions, key=lambda session: session.session_id)),
            faults=tuple(material.faults),
            counts=material.counts,
            titles=tuple(_latest(named).values()),
        )


def _below(folder: Path, look: Look) -> Iterator[Path]:
    """The rollouts in a folder, or in those of its days."""
    for name in look.names(folder):
        if ROLLOUT.match(stem(folder / name)):
            yield folder / name
        elif name.isdigit():  # a year, a month or a day
            yield from _below(folder / name, look)


def _latest(said: Iterable[SourceTitle]) -> dict[str, SourceTitle]:
    """What each is called, by the title that counts."""
    return {each.record_id: each for each in sorted(said, key=SourceTitle.rank)}


# -- what comes of it -------------------------------------------------------------------------


def _sessions(rollouts: list[Rollout], parts: Parts, turns: Turns) -> Iterator[DerivedSession]:
    """One for each thread with a file, and for those that only forks tell of."""
    own: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        own.setdefault(rollout.thread, []).append(rollout)
    for thread, files in own.items():
        files.sort(key=lambda r: (r.last_at, len(r.own), r.first_line))
        latest = files[-1]
        within = {
            part.id: f"{part.id}:{part.items - 1}"
            for part in map(parts.read, latest.own)
            if part.replayed and part.items > 0 and part.weight < turns.best(part.id).weight
        }
        head = turns.head(parts.read(latest.path[-1]).id) if latest.path else None
        yield _own_session(thread, files, head, within)
    for thread, copies in _told(rollouts, parts).items():
        if thread in own:
            continue
        longest = max(copies, key=lambda copy: (copy.length, parts.rank(copy.number)))
        yield _session(
            thread,
            longest.meta,
            {"only_in_forks": True},
            head=turns.head(longest.last.id),
            file_ids=frozenset(copy.file_id for copy in copies),
            created_at=milliseconds(longest.meta.timestamp) or uuid7_ms(thread),
            updated_at=uuid7_ms(longest.last.task),
        )


class _Replay(NamedTuple):
    """What a fork's file tells of the thread it was forked from."""

    meta: Payload
    length: int  # in turns
    number: int  # of the last
    last: Part
    file_id: int


def _told(rollouts: list[Rollout], parts: Parts) -> dict[str, list[_Replay]]:
    told: dict[str, list[_Replay]] = {}
    for rollout in rollouts:
        for younger, meta in zip(rollout.metas, rollout.metas[1:], strict=False):
            before = [n for n in rollout.own if _before(parts.read(n).task, younger.id)]
            if before:
                last = parts.read(before[-1])
                replay = _Replay(meta, len(before), before[-1], last, rollout.file.id)
                told.setdefault(meta.id, []).append(replay)
    return told


def _before(task: str, thread: Any) -> bool:
    return bool(UUID7.fullmatch(task) and isinstance(thread, str) and UUID7.fullmatch(thread)) and (
        task < thread
    )


def _own_session(
    thread: str, files: list[Rollout], head: str | None, within: dict[str, str]
) -> DerivedSession:
    """`within`: the turns it left half way, each with the last record it has of it."""
    last = files[-1]
    titles = [rollout.title for rollout in files if rollout.title]
    meta = last.metas[0] if last.metas else Payload()
    extra: dict[str, Any] = {"cwd": last.cwd} if last.cwd and not as_text(meta.cwd) else {}
    extra |= {"forked_within": within} if within else {}
    return _session(
        thread,
        meta,
        extra,
        head=head,
        title=titles[-1] if titles else None,
        file_ids=frozenset(rollout.file.id for rollout in files),
        created_at=milliseconds(meta.timestamp) or uuid7_ms(thread) or last.first_at,
        updated_at=last.last_at or milliseconds(meta.timestamp),
    )


def _type_of(line: bytes) -> str | None:
    """The type of a record, empty if it has none; None: it is no record."""
    try:
        return as_text(decode_envelope(line).type) or ""
    except BROKEN:
        return None


def _session(thread: str, meta: Payload, extra: dict[str, Any], **fields: Any) -> DerivedSession:
    metadata = {
        name: said
        for field, name in META_FIELDS.items()
        if (said := as_text(getattr(meta, field))) is not None
    } | extra
    git = as_dict(meta.git)
    for said, name in GIT_FIELDS.items():
        if as_text(git.get(said)):
            metadata[name] = git[said]
    if as_text(meta.source):
        metadata["source"] = meta.source
    if meta.history_base is not None:
        metadata["history_base"] = meta.history_base
    if "cwd" in metadata:
        metadata["project"] = project_name(metadata["cwd"])
    parent = parent_thread(meta)
    return DerivedSession(
        session_id=thread,
        label=f"{NAME}:{thread}",
        is_subagent=is_subagent(meta),
        agent_id=thread if is_subagent(meta) else None,
        parent_label=f"{NAME}:{parent}" if parent and parent != thread else None,
        routing_key=metadata.get("cwd"),
        metadata=metadata,
        **fields,
    )
