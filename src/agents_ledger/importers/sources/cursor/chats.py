"""Cursor: turns and sessions out of the chats that were found."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct

from agents_ledger.importers.parsing.json_values import exchanges, path_of, pruned
from agents_ledger.importers.port.source import Material, Row, fingerprint
from agents_ledger.importers.sources.cursor.agent import AgentSession, transcript, turns_of
from agents_ledger.importers.sources.cursor.outline import Composer, Outline
from agents_ledger.importers.sources.cursor.projects import chosen_folder, sent_folder
from agents_ledger.importers.sources.cursor.scope import TASK, Scope, scope_of
from agents_ledger.importers.sources.cursor.times import filled
from agents_ledger.importers.sources.cursor.turns import (
    NAME,
    Bubble,
    Spec,
    build_turn,
    summary_turn,
)
from agents_ledger.importers.transcript.packed_store import Named
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.importers.transcript.turn_tree import NONE, as_dict, as_text, project_name
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.records import digest
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    Part,
    SourceFile,
)
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import MessageSource

VERSION = 16
TEXT = ".txt"  # a transcript of the oldest form tells least
LABEL_MAX = 400
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
    times = [entry.at for entry in agent.entries if entry.at]
    return DerivedSession(
        session_id=agent.id,
        label=label_of(agent.id),
        head=heads[-1] if heads else None,
        file_ids=frozenset(agent.file_ids),
        title=agent.title,
        created_at=agent.created_at or min(times, default=0),
        updated_at=max(times, default=agent.created_at),
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
    number: int  # among the bubbles of its chat
    bubble: Bubble


class _Path:
    """Bubbles of a chat in order, each with its time."""

    def __init__(self, composer: Composer, numbers: Sequence[int], times: Iterable[int]) -> None:
        self._bubbles = composer.bubbles.values
        self._numbers = numbers
        self.times = array("q", times)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[_Timed]:
        for at, number in zip(self.times, self._numbers, strict=True):
            yield _Timed(at, number, self._bubbles.read(number))


class _Place(Struct, array_like=True):
    """A turn and what it comes from."""

    chat: str
    parent: str | None
    bubbles: list[int]  # of the chat
    times: list[int]
    file_ids: frozenset[int]
    renamed: dict[str, str] = {}  # messages whose bubbles are another turn's too, by bubble
    words: str | None = None  # of a summary
    is_answered: bool = False
    fingerprint: bytes = b""


class _Frame(NamedTuple):
    """What all turns of a chat have in common."""

    model: str | None
    workspace: str | None
    spawned: Mapping[str, str]
    asked_by: MessageSource


class _Chats:
    """Chats in the order of their ids. Copies of a chat share the turns they have in common."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.places = Named(_Place)
        self.claimed = Numbering(forgets=True)  # messages
        self.claims = array("I")  # by message, the number of its turn
        self.frames: dict[str, _Frame] = {}
        self.sessions: list[DerivedSession] = []
        for composer_id in sorted(outline.composers):
            self._chat(outline.composers[composer_id])

    def turns(self) -> Iterator[DerivedTurn]:
        """All turns, parents first."""
        for turn_id, place in self.places.items():
            spec = self._spec(turn_id, place)
            if place.words is None:
                build = partial(build_turn, self.outline.bubbles, spec)
                records = tuple(message_id for message_id, _, _ in spec.messages())
            else:
                parent = str(place.parent)
                build = partial(summary_turn, turn_id, parent, place.words, place.times[0])
                records = (f"{turn_id}:text",)
            yield DerivedTurn(
                turn_id,
                place.parent,
                place.fingerprint,
                place.file_ids,
                records,
                build,
                owner=label_of(place.chat),
            )

    # -- one chat -----------------------------------------------------------------------------

    def _chat(self, composer: Composer) -> None:
        path, loose_ends = self._ordered(composer)
        if not path and not composer.parent and not composer.id.startswith(TASK):
            return  # a draft that was never sent
        parent: str | None = None
        began, heads = array("q"), array("I")  # when each turn of the path did, and its number
        for group in exchanges(path, _asks):
            parent = self._turn(composer, group, parent)
            began.append(group[0].at)
            heads.append(self.places.number(parent))
            for each in group:
                if each.bubble.id in composer.summaries:
                    parent = self._summary(composer, each, parent)
        if loose_ends:
            self._abandoned(composer, loose_ends, began, heads)
        self._session(composer, path, parent)
        for said in composer.said:
            said.order = None

    def _ordered(self, composer: Composer) -> tuple[_Path, _Path]:
        """The bubbles of a chat as it shows them, and those it shows no more.

        A bubble may be written before the chat lists it: what is later than all that is listed
        belongs at the end.
        """
        bubbles = composer.bubbles.values
        found, missing = self._found(composer, self._listed(composer))
        if missing:
            what = f"missing: {humanize.count(missing, 'message')} that chat {composer.id} lists"
            self.outline.material.fault(composer.rows[0], what)
        shown = bytearray(len(bubbles))
        for number in found:
            shown[number] = True
        rest = self._by_time(
            composer, (each for each, is_shown in enumerate(shown) if not is_shown)
        )
        if not found or (rest and composer.id.startswith(TASK)):
            found, rest = self._by_time(composer, range(len(bubbles))), array("I")
        last = max((bubbles.read(number).at for number in found), default=0)
        late = [number for number in rest if bubbles.read(number).at > last > 0]
        found.extend(late)
        at_end = frozenset(late)
        others = array("i", (number for number in rest if number not in at_end))
        return (
            _Path(composer, found, self._times(composer, found)),
            _Path(composer, others, self._times(composer, others)),
        )

    @staticmethod
    def _found(composer: Composer, listed: Numbering) -> tuple[array[int], int]:
        """The bubbles that a chat lists, and how many it lists that there are none of."""
        numbers = array("i", (composer.bubbles.number(listed.name(n)) for n in range(len(listed))))
        if NONE not in numbers:
            return numbers, 0
        own = {  # some may be listed under their own ids
            bubble.id: number
            for number, (key, bubble) in enumerate(composer.bubbles.items())
            if bubble.id != key
        }
        keys = (own.get(listed.name(at), NONE) if n == NONE else n for at, n in enumerate(numbers))
        found = array("i", dict.fromkeys(number for number in keys if number != NONE))
        return found, len(numbers) - len(found)

    @staticmethod
    def _by_time(composer: Composer, numbers: Iterable[int]) -> array[int]:
        bubbles = composer.bubbles

        def standing(number: int) -> tuple[int, str]:
            return bubbles.values.read(number).at, bubbles.name(number)

        return array("i", sorted(numbers, key=standing))

    def _listed(self, composer: Composer) -> Numbering:
        """In the order of the newest record that has one."""
        for said in sorted(composer.said, key=lambda s: s.standing(), reverse=True):
            if said.order:
                return said.order
        return Numbering()

    @staticmethod
    def _times(composer: Composer, path: Sequence[int]) -> array[int]:
        """Old bubbles have no times: they lie between those of others, or the chat's."""
        first = milliseconds(composer.get("created_at"))
        last = milliseconds(composer.get("last_updated_at"))
        bubbles = map(composer.bubbles.values.read, path)
        return filled(((each.at, each.role == "user") for each in bubbles), first, last)

    # -- turns --------------------------------------------------------------------------------

    def _turn(self, composer: Composer, group: list[_Timed], parent: str | None) -> str:
        """The turn of a group; a copy of one that is known already is the same turn."""
        turn_id = group[0].bubble.id
        known = self.places.get(turn_id)
        if known is not None and not self._same(known, group, parent):
            turn_id = f"{composer.id}:{turn_id}"
            known = self.places.get(turn_id)
        renamed = self._claim(composer, turn_id, group)
        files = frozenset(each.bubble.row.file_id for each in group)
        if known is not None:
            known.file_ids |= files
            return turn_id
        numbers, times = [each.number for each in group], [each.at for each in group]
        place = _Place(composer.id, parent, numbers, times, files, renamed)
        place.is_answered = any(each.bubble.role == "assistant" for each in group)
        place.fingerprint = fingerprint(VERSION, _prints(self._spec(turn_id, place)))
        self.places[turn_id] = place
        return turn_id

    def _claim(self, composer: Composer, turn_id: str, group: list[_Timed]) -> dict[str, str]:
        """The names of messages whose bubbles are another turn's already."""
        known = self.places.number(turn_id)
        turn = len(self.places) if known == NONE else known
        renamed = {}
        for each in group:
            message = self.claimed.add(each.bubble.id)
            if message == len(self.claims):
                self.claims.append(turn)
            if self.claims[message] != turn:
                renamed[each.bubble.id] = f"{composer.id}:{each.bubble.id}"
        return renamed

    def _same(self, known: _Place, group: Sequence[_Timed], parent: str | None) -> bool:
        """Whether a turn stands at the same place and says the same."""
        if known.words is not None or known.parent != parent:
            return False
        there = [(bubble.id, bubble.print) for bubble in self._bubbles(known)]
        return there == [(each.bubble.id, each.bubble.print) for each in group]

    def _bubbles(self, place: _Place) -> list[Bubble]:
        bubbles = self.outline.composers[place.chat].bubbles.values
        return [bubbles.read(number) for number in place.bubbles]

    def _spec(self, turn_id: str, place: _Place) -> Spec:
        composer = self.outline.composers[place.chat]
        frame = self._frame(composer)
        bubbles = self._bubbles(place)
        timed = zip(bubbles, place.times, strict=True)
        return Spec(
            turn_id,
            place.parent,
            bubbles,
            frame.model,
            frame.workspace,
            frame.spawned,
            composer.contexts,
            composer.checkpoints,
            frame.asked_by,
            place.renamed,
            {bubble.id: at for bubble, at in timed if at != bubble.at},
        )

    def _frame(self, composer: Composer) -> _Frame:
        if composer.id not in self.frames:
            spawned = self.outline.spawned.get(composer.id, {})
            self.frames[composer.id] = _Frame(
                composer.model,
                self._folder(composer),
                {call: label_of(child) for call, child in spawned.items() if child != composer.id},
                "agent" if _is_subagent(composer) else "human",
            )
        return self.frames[composer.id]

    def _summary(self, composer: Composer, last: _Timed, parent: str) -> str:
        words, row = composer.summaries[last.bubble.id]
        turn_id = f"{composer.id}:summary:{last.bubble.id}"
        print_ = fingerprint(VERSION, [digest(words.encode(errors="replace"))])
        self.places[turn_id] = _Place(
            composer.id,
            parent,
            [last.number],
            [last.at],
            frozenset({row.file_id}),
            words=words,
            is_answered=True,
            fingerprint=print_,
        )
        return turn_id

    def _abandoned(
        self, composer: Composer, rest: _Path, began: Sequence[int], heads: Sequence[int]
    ) -> None:
        """Branches of what the chat shows no more, each below the turn it came after."""
        before: tuple[str | None, str | None] = (None, None)  # the turn below which, the last of it
        begun = sorted((at, number) for number, at in enumerate(began) if at > 0)
        earlier, last = 0, -1  # so many of them began before; the last of these on the path
        for group in exchanges(rest, _asks):  # by time
            while earlier < len(begun) and begun[earlier][0] < group[0].bubble.at:
                last, earlier = max(last, begun[earlier][1]), earlier + 1
            below = self.places.name(heads[last]) if last >= 0 else None
            parent = before[1] if before[1] and before[0] == below else below
            before = below, self._turn(composer, group, parent)

    # -- sessions -----------------------------------------------------------------------------

    def _session(self, composer: Composer, path: _Path, last: str | None) -> None:
        while last is not None and not (place := self.places.read(last)).is_answered:
            last = place.parent
        first = min(filter(None, path.times), default=0)
        created = milliseconds(composer.get("created_at")) or first
        rows = chain(composer.rows, (bubble.row for bubble in composer.bubbles.values))
        self.sessions.append(
            DerivedSession(
                session_id=composer.id,
                label=label_of(composer.id),
                head=last,
                file_ids=frozenset(row.file_id for row in rows),
                title=as_text(composer.get("name")),
                created_at=created,
                updated_at=max(
                    milliseconds(composer.get("last_updated_at")), max(path.times, default=0)
                ),
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
