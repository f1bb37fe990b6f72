"""Cursor: turns and sessions out of the chats that were found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct

from agents_ledger.importers.building import milliseconds
from agents_ledger.importers.cells import exchanges, path_of, pruned, spread
from agents_ledger.importers.cursor_agent import AgentSession, transcript, turns_of
from agents_ledger.importers.cursor_outline import Composer, Outline
from agents_ledger.importers.cursor_projects import chosen_folder, sent_folder
from agents_ledger.importers.cursor_scope import TASK, Scope, scope_of
from agents_ledger.importers.cursor_turns import (
    NAME,
    Bubble,
    Spec,
    Summary,
    build_turn,
    summary_turn,
)
from agents_ledger.importers.outlines import as_dict, as_text, project_name
from agents_ledger.importers.reader import Material, Row, fingerprint
from agents_ledger.model.records import digest
from agents_ledger.model.sources import Derivation, DerivedSession, DerivedTurn, Part, SourceFile

VERSION = 11
TEXT = ".txt"  # a transcript of the oldest form tells least
LABEL_MAX = 400
NOTHING: dict[str, Any] = {}  # one for all turns that have none
SAID = (
    "branches",
    "context_token_limit",
    "context_tokens_used",
    "context_usage_percent",
    "created_on_branch",
    "files_changed_count",
    "force_mode",
    "forked_from",
    "git_worktree",
    "is_agentic",
    "is_archived",
    "is_best_of_n_subcomposer",
    "newly_created_files",
    "status",
    "subtitle",
    "todos",
    "total_lines_added",
    "total_lines_removed",
    "tracked_git_repos",
    "unified_mode",
    "usage_data",
)


def derivation(material: Material) -> Derivation:
    """What the records of a user's chats say."""
    scope = scope_of(material)
    outline = Outline(material, scope)
    chats = _Chats(outline)
    turns, sessions = _Turns(chats), chats.sessions
    for agent in _agents(outline, {session.session_id for session in sessions if session.head}):
        own = list(turns_of(material, agent, VERSION))
        if own:
            turns.of_agents += own
            sessions.append(_agent_session(agent, own))
    return Derivation(
        turns=turns,
        sessions=tuple(sessions),
        faults=tuple(material.faults),
        counts=material.counts,
        part=_part(outline, scope) if scope is not None else None,
    )


def _part(outline: Outline, scope: Scope) -> Part:
    """What was read. A store is read to its end, or else its turns stay as they are."""
    stores = {store.file.id for store in outline.stores}
    rows = {file_id: read for file_id, read in outline.read.items() if file_id not in stores}
    return Part(scope.files, rows, scope.is_rest)


def _agents(outline: Outline, known: set[str]) -> Iterator[AgentSession]:
    """Sessions of the agent that no chat tells of: from its stores, then from transcripts."""
    for store in outline.stores:
        if not outline.is_read(store.session_id):
            continue
        session = store.session(store.session_id not in known)
        place = str(PurePath(store.file.path).parent)
        session.workspace = outline.folders.get(place)
        session.file_ids |= {outline.metas[place]} if place in outline.metas else set()
        yield session
        known.add(store.session_id)
    for file in sorted(outline.transcripts, key=_best_first):
        if not outline.is_read(PurePath(file.path).stem):
            continue
        wanted = PurePath(file.path).stem not in known
        yield transcript(outline.material, file, wanted)
        known.add(PurePath(file.path).stem)


def _best_first(transcript: SourceFile) -> tuple[bool, int]:
    """Of a session's transcripts the first is shown: one with records, as it was written last."""
    return transcript.path.endswith(TEXT), -transcript.generation


def _agent_session(agent: AgentSession, turns: Sequence[DerivedTurn]) -> DerivedSession:
    asked = {entry.id for entry in agent.entries if entry.asks}
    heads = [turn.id for turn in turns if not set(turn.record_ids) <= asked]
    return DerivedSession(
        session_id=agent.id,
        label=label_of(agent.id),
        head=heads[-1] if heads else None,
        file_ids=frozenset(agent.file_ids),
        title=agent.title,
        created_at=agent.created_at,
        updated_at=agent.created_at,
        is_subagent=agent.parent is not None,
        parent_label=label_of(agent.parent) if agent.parent else None,
        routing_key=agent.workspace,
        metadata=agent.described(),
    )


def label_of(session_id: str) -> str:
    """The label of a chat's session. Ids of calls may hold line ends, and be long."""
    plain = re.sub(r"\s+", "_", session_id)
    if len(plain) > LABEL_MAX:
        told = digest(session_id.encode(errors="surrogatepass")).hex()
        plain = f"{plain[:LABEL_MAX]}-{told}"
    return f"{NAME}:{plain}"


class _Turns:
    """All turns; those of chats are made whenever they are gone through."""

    def __init__(self, chats: _Chats) -> None:
        self._chats = chats
        self.of_agents: list[DerivedTurn] = []

    def __len__(self) -> int:
        return len(self._chats.places) + len(self.of_agents)

    def __iter__(self) -> Iterator[DerivedTurn]:
        return chain(self._chats.turns(), self.of_agents)


class _Timed(NamedTuple):
    at: int
    bubble: Bubble


class _Place(Struct):
    """A turn and what it comes from."""

    spec: Spec
    file_ids: frozenset[int]
    fingerprint: bytes
    owner: str
    summary: Summary | None = None


class _Chats:
    """Chats in the order of their ids. Copies of a chat share the turns they have in common."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.places: dict[str, _Place] = {}
        self.claimed: dict[str, str] = {}  # message -> turn
        self.file_sets: dict[frozenset[int], frozenset[int]] = {}  # each once
        self.sessions: list[DerivedSession] = []
        self.answered: set[str] = set()
        for composer_id in sorted(outline.composers):
            self._chat(outline.composers[composer_id])

    def turns(self) -> Iterator[DerivedTurn]:
        """All turns, parents first."""
        for turn_id, place in self.places.items():
            if place.summary is None:
                build = partial(build_turn, self.outline.bubbles, place.spec)
                records = tuple(message_id for message_id, _, _ in place.spec.messages())
            else:
                parent, words = str(place.spec.parent_id), place.summary.words
                build = partial(summary_turn, turn_id, parent, words, place.spec.started)
                records = (f"{turn_id}:text",)
            yield DerivedTurn(
                turn_id,
                place.spec.parent_id,
                place.fingerprint,
                place.file_ids,
                records,
                build,
                owner=place.owner,
            )

    # -- one chat -----------------------------------------------------------------------------

    def _chat(self, composer: Composer) -> None:
        path, loose_ends = self._ordered(composer)
        if not path and not composer.parent and not composer.id.startswith(TASK):
            return  # a draft that was never sent
        parent: str | None = None
        heads: list[tuple[int, str]] = []  # when each turn of the path began
        for group in exchanges(path, _asks):
            parent = self._turn(composer, group, parent)
            heads.append((group[0].at, parent))
            for each in group:
                if each.bubble.id in composer.summaries:
                    parent = self._summary(composer, each, parent)
        self._abandoned(composer, loose_ends, heads)
        self._session(composer, path, parent)
        composer.bubbles.clear()  # turns have them, in their order
        for said in composer.said:
            said.order.clear()

    def _ordered(self, composer: Composer) -> tuple[list[_Timed], list[_Timed]]:
        """The bubbles of a chat as it shows them, and those it shows no more.

        A bubble may be written before the chat lists it: what is later than all that is listed
        belongs at the end.
        """
        listed = dict.fromkeys(self._listed(composer))
        found = [name for name in listed if name in composer.bubbles]
        if len(found) < len(listed):  # some may be listed under their own ids
            own = {bubble.id: key for key, bubble in composer.bubbles.items()}
            keys = (name if name in composer.bubbles else own.get(name) for name in listed)
            found = list(dict.fromkeys(key for key in keys if key is not None))
        if len(found) < len(listed):
            missing = len(listed) - len(found)
            what = f"{missing} messages that chat {composer.id} lists are missing"
            self.outline.material.fault(composer.rows[0], what)
        rest = self._by_time(composer, composer.bubbles.keys() - set(found))
        if not found or (rest and composer.id.startswith(TASK)):
            found, rest = self._by_time(composer, composer.bubbles), []
        last = max((composer.bubbles[key].at for key in found), default=0)
        found += [key for key in rest if composer.bubbles[key].at > last > 0]
        shown = set(found) if rest else ()
        others = (composer.bubbles[key] for key in rest if key not in shown)
        path = [composer.bubbles[key] for key in found]
        return self._timed(composer, path), [_Timed(bubble.at, bubble) for bubble in others]

    @staticmethod
    def _by_time(composer: Composer, keys: Iterable[str]) -> list[str]:
        return sorted(keys, key=lambda key: (composer.bubbles[key].at, key))

    def _listed(self, composer: Composer) -> list[str]:
        """In the order of the newest record that has one."""
        for said in sorted(composer.said, key=lambda s: s.standing(), reverse=True):
            if said.order:
                return said.order
        return []

    @staticmethod
    def _timed(composer: Composer, path: Sequence[Bubble]) -> list[_Timed]:
        """Old bubbles have no times: they are spread over the chat's."""
        first = milliseconds(composer.get("created_at"))
        last = milliseconds(composer.get("last_updated_at"))
        guesses = spread(len(path), first or last, last)
        timed: list[_Timed] = []
        for guess, bubble in zip(guesses, path, strict=True):
            before = timed[-1].at if timed else 0
            timed.append(_Timed(bubble.at or max(guess, before), bubble))
        return timed

    # -- turns --------------------------------------------------------------------------------

    def _turn(self, composer: Composer, group: list[_Timed], parent: str | None) -> str:
        """The turn of a group; a copy of one that is known already is the same turn."""
        turn_id = group[0].bubble.id
        known = self.places.get(turn_id)
        if known is not None and not _same(known, group, parent):
            turn_id = f"{composer.id}:{turn_id}"
            known = self.places.get(turn_id)
        spec = self._spec(composer, turn_id, parent, group)
        files = frozenset(bubble.row.file.id for _, bubble in group)
        if known is not None:
            known.file_ids |= files
            return turn_id
        print_ = fingerprint(VERSION, _prints(spec))
        files = self.file_sets.setdefault(files, files)
        self.places[turn_id] = _Place(spec, files, print_, label_of(composer.id))
        if any(each.bubble.role == "assistant" for each in group):
            self.answered.add(turn_id)
        return turn_id

    def _spec(
        self, composer: Composer, turn_id: str, parent: str | None, group: list[_Timed]
    ) -> Spec:
        bubbles = tuple(bubble for _, bubble in group)
        renamed = {
            bubble.id: f"{composer.id}:{bubble.id}"
            for bubble in bubbles
            if self.claimed.setdefault(bubble.id, turn_id) != turn_id
        }
        guessed = {bubble.id: at for at, bubble in group if at != bubble.at}
        spawned = self.outline.spawned.get(composer.id, {})
        return Spec(
            turn_id,
            parent,
            bubbles,
            composer.model,
            self._folder(composer),
            {call: label_of(child) for call, child in spawned.items() if child != composer.id}
            or NOTHING,
            composer.contexts,
            composer.checkpoints,
            "agent" if _is_subagent(composer) else "human",
            renamed or NOTHING,
            guessed or NOTHING,
        )

    def _summary(self, composer: Composer, last: _Timed, parent: str) -> str:
        summary = composer.summaries[last.bubble.id]
        turn_id = f"{composer.id}:summary:{last.bubble.id}"
        guessed = {last.bubble.id: last.at}
        spec = Spec(turn_id, parent, (last.bubble,), None, None, {}, {}, {}, guessed=guessed)
        self.places[turn_id] = _Place(
            spec,
            frozenset({summary.row.file.id}),
            fingerprint(VERSION, [digest(summary.words.encode(errors="replace"))]),
            label_of(composer.id),
            summary,
        )
        self.answered.add(turn_id)
        return turn_id

    def _abandoned(
        self, composer: Composer, rest: list[_Timed], heads: list[tuple[int, str]]
    ) -> None:
        """Branches of what the chat shows no more, each below the turn it came after."""
        before: tuple[str | None, str | None] = (None, None)  # the turn below which, the last of it
        begun = sorted((began, number) for number, (began, _) in enumerate(heads) if began > 0)
        earlier, last = 0, -1  # so many of them began before; the last of these on the path
        for group in exchanges(rest, _asks):  # by time
            while earlier < len(begun) and begun[earlier][0] < group[0].at:
                last, earlier = max(last, begun[earlier][1]), earlier + 1
            below = heads[last][1] if last >= 0 else None
            parent = before[1] if before[1] and before[0] == below else below
            before = below, self._turn(composer, group, parent)

    # -- sessions -----------------------------------------------------------------------------

    def _session(self, composer: Composer, path: list[_Timed], last: str | None) -> None:
        while last is not None and last not in self.answered:
            last = self.places[last].spec.parent_id
        times = [each.at for each in path if each.at]
        created = milliseconds(composer.get("created_at")) or min(times, default=0)
        rows = [*composer.rows, *(bubble.row for bubble in composer.bubbles.values())]
        self.sessions.append(
            DerivedSession(
                session_id=composer.id,
                label=label_of(composer.id),
                head=last,
                file_ids=frozenset(row.file.id for row in rows),
                title=as_text(composer.get("name")),
                created_at=created,
                updated_at=max([milliseconds(composer.get("last_updated_at")), *times]),
                is_subagent=_is_subagent(composer),
                parent_label=label_of(composer.parent) if composer.parent else None,
                task_description=as_text(composer.task.get("description")),
                task_status=composer.task_status,
                routing_key=self._folder(composer),
                metadata=self._metadata(composer),
            )
        )

    def _metadata(self, composer: Composer) -> dict[str, Any]:
        said = {name: pruned(composer.get(name)) for name in SAID}
        folder = self._folder(composer)
        if said["is_agentic"] is None and said["unified_mode"]:
            said["is_agentic"] = said["unified_mode"] == "agent"
        said |= {
            "workspace_path": folder,
            "project": project_name(folder) if folder else None,
            "model": composer.model,
            "prompt": as_text(composer.task.get("prompt")),
            "composer": composer.more,
        }
        return {name: each for name, each in said.items() if each not in (None, "", [], {})}

    def _folder(self, composer: Composer) -> str | None:
        """The folder a chat was held in, or else the nearest above it that says one."""
        way: list[Composer] = []
        above: Composer | None = composer
        while above is not None and above.folder is None:
            above.folder = self._find_folder(above) or ""  # parents in a circle end there
            way.append(above)
            if not above.folder:
                above = self.outline.composers.get(above.parent or "")
        for each in way:
            each.folder = above.folder if above is not None else ""
        return composer.folder or None

    def _find_folder(self, composer: Composer) -> str | None:
        """As it says itself, as its workspace says, as was sent."""
        said = as_dict(composer.get("workspace_identifier"))
        place = self.outline.listed.get(composer.id, "")
        return (
            path_of(said.get("uri"))
            or self.outline.folders.get(place)
            or chosen_folder(composer.get("context"))
            or self._sent_folder(composer)
        )

    def _sent_folder(self, composer: Composer) -> str | None:
        rows = (composer.contexts[name] for name in sorted(composer.contexts))
        found = (sent_folder(self.outline.bubbles.value(row)) for row in rows)
        return next(filter(None, found), None)


def _is_subagent(composer: Composer) -> bool:
    return composer.parent is not None or composer.id.startswith(TASK)


def _asks(each: _Timed) -> bool:
    return each.bubble.role == "user"


def _same(known: _Place, group: Sequence[_Timed], parent: str | None) -> bool:
    """Whether a turn stands at the same place and says the same."""
    if known.summary is not None or known.spec.parent_id != parent:
        return False
    there = [(bubble.id, bubble.print) for bubble in known.spec.bubbles]
    return there == [(bubble.id, bubble.print) for _, bubble in group]


def _prints(spec: Spec) -> Iterator[bytes]:
    """Of all that goes into a turn."""
    said = f"{spec.model};{spec.workspace};{spec.asked_by};{sorted(spec.spawned.items())};"
    yield said.encode(errors="replace")
    for message_id, at, bubble in spec.messages():
        if message_id != bubble.id:  # that one is another turn's
            yield message_id.encode(errors="replace")
        rows: tuple[Row | None, ...] = (bubble.row, spec.context(bubble), spec.checkpoint(bubble))
        yield b"%d;" % at + bubble.print if bubble.inner else bubble.row.print + b"%d;" % at
        yield b"".join(row.print for row in rows[1:] if row is not None)
