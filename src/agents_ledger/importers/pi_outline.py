"""pi and OpenClaw: the tree of entries over all files, and the sessions in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from agents_ledger.importers.building import milliseconds
from agents_ledger.importers.outlines import (
    UUID,
    answered_above,
    as_dict,
    as_number,
    as_text,
    parents_first,
    parsed,
    project_name,
)
from agents_ledger.importers.pi_transcript import Node, Transcript
from agents_ledger.importers.pi_turns import Framing, build_turn
from agents_ledger.importers.reader import Material, fingerprint
from agents_ledger.model.sources import Derivation, DerivedSession, DerivedTurn, Fault, SourceFile
from agents_ledger.model.turns import MessageSource

OPENERS = {"prompt", "branch", "compaction"}
ASKING = {"prompt", "branch"}
AGENT = re.compile(r"agent:([^:]+):")
ENTRY_FIELDS = {
    "channel": "channel",
    "chatType": "chat_type",
    "groupId": "group_id",
    "subject": "subject",
    "displayName": "display_name",
    "label": "label",
    "spawnedBy": "spawned_by",
    "spawnDepth": "spawn_depth",
    "subagentRole": "subagent_role",
    "spawnedWorkspaceDir": "spawned_workspace",
    "cliSessionIds": "cli_session_ids",
    "claudeCliSessionId": "claude_cli_session_id",
    "origin": "channel_origin",
    "deliveryContext": "delivery_context",
}


class Observation(NamedTuple):
    """That a key stood for a session, once."""

    updated_at: int
    session_id: str
    key: str
    file_id: int
    entry: dict[str, Any]


class Outline:
    """All files of a family together."""

    def __init__(self, material: Material, source: str, version: int) -> None:
        self.material = material
        self.source = source
        self.version = version
        self.seen: list[Observation] = []
        transcripts = []
        for file in material.files:
            if file.kind == "document":
                self._read_store(file)
            else:
                transcripts.append(Transcript(material, file, source))
        self.transcripts = sorted((t for t in transcripts if t.nodes), key=Transcript.rank)
        self.nodes: dict[str, Node] = {}
        for transcript in self.transcripts:
            for node in transcript.nodes:
                self._merge(node)
        held = {transcript.session_id for transcript in self.transcripts}
        for observed in self.seen:
            fate = "derived" if observed.session_id in held else "unmapped"
            material.count("sessions.json", "derived" if fate == "derived" else "unmapped")

    def _merge(self, node: Node) -> None:
        """The first copy stays; of several parents the one that is surest."""
        known = self.nodes.get(node.key)
        if known is None:
            self.nodes[node.key] = node
            return
        known.file_ids |= node.file_ids
        if (node.rank, node.parent or "") < (known.rank, known.parent or ""):
            known.parent, known.rank = node.parent, node.rank

    # -- which key stood for which session ----------------------------------------------------

    def _read_store(self, file: SourceFile) -> None:
        found = parsed(self.material.document(file))
        if not isinstance(found, dict):
            self.material.faults.append(Fault(file.path, "not a map of sessions"))
            self.material.count("(malformed)", "malformed")
            return
        for key, said in found.items():
            entry = as_dict(said)
            session_id = as_text(entry.get("sessionId"))
            if session_id is None:
                self.material.count("sessions.json", "unmapped")
                continue
            at = as_number(entry.get("updatedAt")) or 0
            self.seen.append(Observation(at, session_id, key, file.id, entry))

    def _holder(self, key: str | None, file_id: int | None = None) -> str | None:
        """The session a key stood for, in one observation of all keys or at last."""
        stood = [o for o in self.seen if o.key == key and file_id in (None, o.file_id)]
        return max(stood, key=lambda o: o[:2]).session_id if stood else None

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

    def _owners(self) -> dict[str, str]:
        """For every entry the one that opens its turn: itself, or the nearest opener above."""
        owners: dict[str, str] = {}
        for key in self.nodes:
            path: dict[str, None] = {}
            at: str | None = key
            top = key
            while at is not None and at not in owners and at not in path:
                path[at] = None
                top = at
                if self._opens(at):
                    break
                at = self._parent(at)
            if at is not None and at in owners:
                top = owners[at]
            for each in path:
                owners[each] = top
        return owners

    def _turns(self) -> tuple[dict[str, str], dict[str, str | None]]:
        """The turn of every entry, and the parent of every turn.

        Prompts that follow each other without an answer are one query.
        """
        owners = self._owners()
        answered = {owners[k] for k, node in self.nodes.items() if node.kind == "assistant"}
        above: dict[str, str | None] = {}
        for top in dict.fromkeys(owners.values()):
            parent = self._parent(top)
            above[top] = owners[parent] if parent is not None else None
        heirs = Counter(up for up in above.values() if up is not None)
        joined: dict[str, str] = {}
        for top, up in above.items():
            if up is None or up == top or self.nodes[top].kind not in ASKING:
                continue
            if self.nodes[up].kind != "compaction" and up not in answered and heirs[up] == 1:
                joined[top] = up
        turn_of = {key: _follow(owner, joined) for key, owner in owners.items()}
        self._follow_calls(turn_of)
        parents = {
            top: None if up is None else _follow(up, joined)
            for top, up in above.items()
            if top not in joined
        }
        return turn_of, {turn: None if up == turn else up for turn, up in parents.items()}

    def _follow_calls(self, turn_of: dict[str, str]) -> None:
        """A result belongs to the turn of its call, even if another prompt came between."""
        for transcript in self.transcripts:
            callers: dict[str, str] = {}
            for node in transcript.nodes:
                callers |= dict.fromkeys(node.calls, node.key)
                if node.call_id in callers and turn_of[node.key] != node.key:
                    turn_of[node.key] = turn_of[callers[node.call_id]]

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        turn_of, parents = self._turns()
        members: dict[str, list[Node]] = {turn: [] for turn in parents}
        for key, node in self.nodes.items():
            members.setdefault(turn_of[key], []).append(node)
        order = list(parents_first(parents))
        followed = {up for up in parents.values() if up is not None}
        sources = self._sources()
        turns = []
        for turn in order:
            framing = self._framing(turn, parents, turn_of, turn in followed)
            turns.append(self._derived(framing, members[turn], sources))
        answered = {
            turn
            for turn, nodes in members.items()
            if any(node.kind in ("assistant", "compaction") for node in nodes)
        }
        return Derivation(
            turns=tuple(turns),
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
            if node.call_id and (label := self._label(self._holder(node.spawned_key)))
        }
        prints = [f"{node.key};{node.entry_id};{node.kind}".encode() for node in nodes]
        frame = repr((framing[2:], asked_by, sorted(spawned.items())))
        return DerivedTurn(
            framing.turn_id,
            framing.parent_id,
            fingerprint(self.version, (*prints, frame.encode(errors="replace"))),
            files,
            tuple(node.key for node in nodes),
            partial(build_turn, self.material, framing, nodes, asked_by, spawned),
        )

    # -- sessions -----------------------------------------------------------------------------

    def _observed(self, session_id: str) -> list[Observation]:
        """What was said of a session, oldest first."""
        mine = [o for o in self.seen if o.session_id == session_id]
        return sorted(mine, key=lambda o: (o.updated_at, o.key))

    def _sources(self) -> dict[int, MessageSource]:
        """Who speaks in the sessions that no human opened, by file."""
        found: dict[int, MessageSource] = {}
        for transcript in self.transcripts:
            for observed in self._observed(transcript.session_id):
                source = _source_of(observed.key)
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
        last, observed = files[-1], self._observed(session_id)
        entry = observed[-1].entry if observed else {}
        titles = [t.title for t in files if t.title]
        metadata = _described(last) | {
            name: entry[said] for said, name in ENTRY_FIELDS.items() if entry.get(said)
        }
        key = observed[-1].key if observed else None
        if key is not None:
            metadata["session_key"] = key
            metadata["observed_at"] = [observed[0].updated_at, observed[-1].updated_at]
        parent = None
        if observed:
            spawner = as_text(observed[0].entry.get("spawnedBy"))
            parent = self._holder(spawner, observed[0].file_id) or self._holder(spawner)
        agent = AGENT.match(key or "")
        return DerivedSession(
            session_id=session_id,
            label=f"{self.source}:{session_id}",
            head=head,
            file_ids=frozenset(t.file.id for t in files) | {o.file_id for o in observed},
            title=_title(titles, entry),
            agent_id=agent[1] if agent else None,
            created_at=milliseconds(files[0].header.timestamp) or files[0].nodes[0].at,
            updated_at=last.last_at,
            is_subagent=bool(entry.get("spawnedBy")) or _source_of(key or "") == "agent",
            parent_label=self._label(parent) if parent != session_id else None,
            routing_key=key or metadata.get("cwd"),
            aliases=tuple(sorted({o.key for o in observed if self._holder(o.key) == session_id})),
            metadata=metadata,
        )


def _title(titles: list[str], entry: dict[str, Any]) -> str | None:
    if titles:
        return titles[-1]
    names = (as_text(entry.get(name)) for name in ("label", "displayName", "subject"))
    return next((name for name in names if name), None)


def _described(transcript: Transcript) -> dict[str, Any]:
    header = transcript.header
    said: dict[str, Any] = {}
    if as_text(header.cwd):
        said |= {"cwd": header.cwd, "project": project_name(header.cwd)}
    if as_number(header.version) is not None:
        said["version"] = str(header.version)
    origin = as_text(header.parent_session) or as_text(header.branched_from)
    if origin:
        found = UUID.search(origin)
        said["forked_from"] = found[0] if found else origin
    return said


def _source_of(key: str) -> MessageSource | None:
    """Who speaks in a session of this key, if it is no human."""
    if ":subagent:" in key:
        return "agent"
    if key.startswith("cron:") or ":cron:" in key:
        return "cron"
    return "webhook" if key.startswith("hook:") or ":hook:" in key else None


def _follow(top: str, joined: dict[str, str]) -> str:
    seen = {top}
    while top in joined and joined[top] not in seen:
        top = joined[top]
        seen.add(top)
    return top
