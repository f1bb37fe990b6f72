"""Cursor: how the bubbles of chats and the messages of agents become turns and sessions."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct

from agents_ledger.importers.parsing.json_values import EMPTY, exchanges, path_of, pruned
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, project_name
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import Material, SourceRow
from agents_ledger.importers.sources.cursor import rules
from agents_ledger.importers.sources.cursor.agent_sessions import (
    AgentMessage,
    AgentSession,
    read_transcript,
    record_of_message,
)
from agents_ledger.importers.sources.cursor.changes import ChatScope, changed_scope
from agents_ledger.importers.sources.cursor.chats import CursorChat, CursorChats
from agents_ledger.importers.sources.cursor.projects import chosen_folder, sent_folder
from agents_ledger.importers.sources.cursor.turns import (
    AgentTurn,
    Bubble,
    ChatFacts,
    ChatTurn,
    CursorMessage,
    build_summary,
    message_of,
)
from agents_ledger.importers.transcript.columns import NONE
from agents_ledger.importers.transcript.lazy_turns import LazyTurns
from agents_ledger.importers.transcript.packed_store import PackedDict
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.importers.transcript.turn_tree import TurnTree
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.records import digest
from agents_ledger.model.imports.sources import Derivation, DerivedSession, Part, SourceFile
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import Turn

LABEL_MAX = 400  # characters of an id in a label


def derive(material: Material, version: int) -> Derivation:
    """The turns and sessions of a user's chats and agents."""
    scope = changed_scope(material)
    chats = CursorChats(material, scope)
    tree = CursorTree(chats)
    return Derivation(
        turns=CursorTurns(tree, version),
        sessions=tuple(tree.sessions),
        faults=tuple(material.faults),
        counts=material.counts,
        part=_part(chats, scope) if scope is not None else None,
    )


def _part(chats: CursorChats, scope: ChatScope) -> Part:
    """What was read. A store is read whole, or its turns stay as they are."""
    stores = {store.file.id for store in chats.stores}
    rows = {id_: offsets for id_, offsets in chats.offsets_read.items() if id_ not in stores}
    return Part(scope.files, rows, scope.is_unread)


def label_of(session_id: str) -> str:
    """The label of a session. The id of a call may contain line breaks, and be long."""
    plain = re.sub(r"\s+", "_", session_id)
    if len(plain) > LABEL_MAX:
        suffix = digest(session_id.encode(errors="surrogatepass")).hex()
        plain = f"{plain[:LABEL_MAX]}-{suffix}"
    return f"{rules.NAME}:{plain}"


def _agent_sessions(chats: CursorChats, recorded: set[str]) -> Iterator[AgentSession]:
    """Sessions of the agent that no chat has: from its stores, then from transcripts."""
    for store in chats.stores:
        if not chats.is_read(store.session_id):
            continue
        session = store.session(store.session_id not in recorded)
        directory = str(PurePath(store.file.path).parent)
        session.workspace = chats.folders.get(directory)
        if directory in chats.meta_files:
            session.file_ids.add(chats.meta_files[directory])
        yield session
        recorded.add(store.session_id)
    for file in sorted(chats.transcripts, key=_transcript_rank):
        session_id = PurePath(file.path).stem
        if chats.is_read(session_id):
            yield read_transcript(chats.material, file, session_id not in recorded)
            recorded.add(session_id)


def _transcript_rank(transcript: SourceFile) -> tuple[bool, int]:
    """The first transcript of a session is shown: JSON before text, then the latest state."""
    return transcript.path.endswith(".txt"), -transcript.generation


class _TimedBubble(NamedTuple):
    at: int
    number: int  # among the bubbles of its chat
    bubble: Bubble


class _BubblePath:
    """Bubbles of a chat in order, each with its time."""

    def __init__(self, chat: CursorChat, numbers: Sequence[int]) -> None:
        self._bubbles = chat.bubbles.values
        self._numbers = numbers
        first = milliseconds(chat.get("createdAt"))
        last = milliseconds(chat.get("lastUpdatedAt"))
        bubbles = map(self._bubbles.read, numbers)
        self.times = filled_times(((b.at, b.role == "user") for b in bubbles), first, last)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[_TimedBubble]:
        for at, number in zip(self.times, self._numbers, strict=True):
            yield _TimedBubble(at, number, self._bubbles.read(number))


class _ChatTurnPlan(Struct, array_like=True):
    """A turn of a chat, and what it is made of."""

    chat: str
    bubbles: list[int]  # numbers in the chat
    times: list[int]
    file_ids: frozenset[int]
    # Messages whose bubbles are in another turn too, by bubble.
    renamed: dict[str, str] = {}
    summary: str | None = None


class _AgentTurnPlan(NamedTuple):
    session: AgentSession
    messages: Sequence[AgentMessage]


class CursorTree(TurnTree):
    """The turns of chats, in the order of the chats' ids, then those of agents.

    Copies of a chat share the turns that they have in common.
    """

    def __init__(self, chats: CursorChats) -> None:
        super().__init__()
        self.chats = chats
        self.chat_turns = PackedDict(_ChatTurnPlan, chats.material.limits)
        self.agent_turns: list[_AgentTurnPlan] = []
        self.sessions: list[DerivedSession] = []
        self._messages = Numbering(forgets=True, held=chats.material.limits.held_names)
        self._turn_of_message = array("I")
        self._facts: dict[str, ChatFacts] = {}
        # By id, so that the same one of several copies keeps the plain ids in every import.
        for chat_id in sorted(chats.chats):
            self._add_chat(chats.chats[chat_id])
        # Chats first: a transcript has no ids, times or results, and is only used for what is
        # missing.
        in_chats = {session.session_id for session in self.sessions if session.head}
        for agent in _agent_sessions(chats, in_chats):
            self._add_agent(agent)

    def name(self, turn: int) -> str:
        """The id of its first message, or of its summary."""
        if turn < len(self.chat_turns):
            return self.chat_turns.name(turn)
        return self.agent_turns[turn - len(self.chat_turns)].messages[0].id

    def _head(self, turn: int | None) -> str | None:
        settled = self.nearest_settled(turn)
        return None if settled is None else self.name(settled)

    # -- one chat -----------------------------------------------------------------------------

    def _add_chat(self, chat: CursorChat) -> None:
        path, unlisted = self._ordered(chat)
        if not path and not chat.parent and not chat.id.startswith(rules.TASK):
            return  # a draft that was never sent
        parent: int | None = None
        starts, turns = array("q"), array("I")  # of the turns on the path
        for group in exchanges(path, _is_prompt):
            parent = self._add_turn(chat, group, parent)
            starts.append(group[0].at)
            turns.append(parent)
            for member in group:
                if member.bubble.id in chat.summaries:
                    parent = self._add_summary(chat, member, parent)
        if unlisted:
            self._add_branches(chat, unlisted, starts, turns)
        self._add_session(chat, path, parent)
        for version in chat.versions:
            version.order = None

    def _ordered(self, chat: CursorChat) -> tuple[_BubblePath, _BubblePath]:
        """The bubbles of a chat in its order, and those that it no longer lists.

        A bubble may be written before the chat lists it: bubbles later than all listed ones belong
        to the end.
        """
        bubbles = chat.bubbles.values
        listed, missing = _listed_bubbles(chat)
        if missing:
            what = f"missing: {humanize.count(missing, 'message')} that chat {chat.id} lists"
            self.chats.material.fault(chat.rows[0], what)
        is_listed = bytearray(len(bubbles))
        for number in listed:
            is_listed[number] = True
        # Editing an old prompt shortens the list; the rows of the bubbles often remain.
        unlisted = _by_time(chat, (number for number, flag in enumerate(is_listed) if not flag))
        # The chat of a task may list only some of its bubbles: it has no branches.
        if not listed or (unlisted and chat.id.startswith(rules.TASK)):
            listed, unlisted = _by_time(chat, range(len(bubbles))), array("i")
        last = max((bubbles.read(number).at for number in listed), default=0)
        late = [number for number in unlisted if bubbles.read(number).at > last > 0]
        listed.extend(late)
        is_late = frozenset(late)
        branches = array("i", (number for number in unlisted if number not in is_late))
        return _BubblePath(chat, listed), _BubblePath(chat, branches)

    def _add_turn(self, chat: CursorChat, group: list[_TimedBubble], parent: int | None) -> int:
        """Add the turn of a group; an equal turn of a copied chat is the same turn."""
        turn_id = group[0].bubble.id
        number = self.chat_turns.number(turn_id)
        if number != NONE and not self._is_copy(number, group, parent):
            turn_id = f"{chat.id}:{turn_id}"
            number = self.chat_turns.number(turn_id)
        is_new = number == NONE
        number = len(self) if is_new else number
        renamed = self._claim_messages(chat, number, group)
        files = frozenset(member.bubble.row.file_id for member in group)
        if not is_new:
            self.chat_turns.values[number].file_ids |= files
            return number
        numbers, times = [m.number for m in group], [m.at for m in group]
        self.chat_turns[turn_id] = _ChatTurnPlan(chat.id, numbers, times, files, renamed)
        is_answered = any(member.bubble.role == "assistant" for member in group)
        return self.add(parent, settled=is_answered)

    def _claim_messages(
        self, chat: CursorChat, turn: int, group: list[_TimedBubble]
    ) -> dict[str, str]:
        """New ids for messages whose bubbles are in another turn already, by bubble."""
        renamed = {}
        for member in group:
            message = self._messages.add(member.bubble.id)
            if message == len(self._turn_of_message):
                self._turn_of_message.append(turn)
            if self._turn_of_message[message] != turn:
                renamed[member.bubble.id] = f"{chat.id}:{member.bubble.id}"
        return renamed

    def _is_copy(self, turn: int, group: Sequence[_TimedBubble], parent: int | None) -> bool:
        """Whether a turn has the same parent and the same content."""
        plan = self.chat_turns.values.read(turn)
        if plan.summary is not None or self.parent(turn) != parent:
            return False
        content = [(bubble.id, bubble.print) for bubble in self._bubbles(plan)]
        return content == [(member.bubble.id, member.bubble.print) for member in group]

    def _bubbles(self, plan: _ChatTurnPlan) -> list[Bubble]:
        bubbles = self.chats.chats[plan.chat].bubbles.values
        return [bubbles.read(number) for number in plan.bubbles]

    def messages(self, plan: _ChatTurnPlan) -> list[CursorMessage]:
        facts = self.chat_facts(plan.chat)
        return [
            message_of(facts, plan.renamed.get(bubble.id, bubble.id), at, bubble)
            for bubble, at in zip(self._bubbles(plan), plan.times, strict=True)
        ]

    def chat_facts(self, chat_id: str) -> ChatFacts:
        """What all turns of a chat have in common."""
        if chat_id not in self._facts:
            chat = self.chats.chats[chat_id]
            spawned = self.chats.spawned.get(chat_id, {})
            self._facts[chat_id] = ChatFacts(
                chat.model,
                self._folder(chat),
                {call: label_of(child) for call, child in spawned.items() if child != chat_id},
                chat.contexts,
                chat.checkpoints,
                "agent" if chat.is_subagent else "human",
            )
        return self._facts[chat_id]

    def _add_summary(self, chat: CursorChat, last: _TimedBubble, parent: int) -> int:
        """Add a compaction after the last bubble that it covers."""
        text, row = chat.summaries[last.bubble.id]
        # By the last bubble it covers: a later summary is another turn, not a change of this one.
        turn_id = f"{chat.id}:summary:{last.bubble.id}"
        if turn_id in self.chat_turns:
            return self.chat_turns.number(turn_id)
        files = frozenset({row.file_id})
        plan = _ChatTurnPlan(chat.id, [last.number], [last.at], files, summary=text)
        self.chat_turns[turn_id] = plan
        return self.add(parent, settled=True)

    def _add_branches(
        self, chat: CursorChat, unlisted: _BubblePath, starts: Sequence[int], turns: Sequence[int]
    ) -> None:
        """Add what the chat no longer lists as branches, each below the turn it came after."""
        previous: tuple[int | None, int | None] = (None, None)  # base and last turn of a branch
        by_start = sorted((at, number) for number, at in enumerate(starts) if at > 0)
        # How many turns started before; the last of them on the path.
        earlier, last = 0, -1
        for group in exchanges(unlisted, _is_prompt):  # by time
            while earlier < len(by_start) and by_start[earlier][0] < group[0].bubble.at:
                last, earlier = max(last, by_start[earlier][1]), earlier + 1
            base = turns[last] if last >= 0 else None
            parent = previous[1] if previous[1] is not None and previous[0] == base else base
            previous = base, self._add_turn(chat, group, parent)

    # -- sessions -----------------------------------------------------------------------------

    def _add_session(self, chat: CursorChat, path: _BubblePath, last: int | None) -> None:
        first = min(filter(None, path.times), default=0)
        rows = chain(chat.rows, (bubble.row for bubble in chat.bubbles.values))
        last_updated = milliseconds(chat.get("lastUpdatedAt"))
        self.sessions.append(
            DerivedSession(
                session_id=chat.id,
                label=label_of(chat.id),
                head=self._head(last),
                file_ids=frozenset(row.file_id for row in rows),
                title=as_text(chat.get("name")),
                created_at=milliseconds(chat.get("createdAt")) or first,
                updated_at=max(last_updated, max(path.times, default=0)),
                is_subagent=chat.is_subagent,
                parent_label=label_of(chat.parent) if chat.parent else None,
                task_description=as_text(chat.task.get("description")),
                task_status=chat.task_status,
                routing_key=self._folder(chat),
                metadata=self._metadata(chat),
            )
        )

    def _add_agent(self, agent: AgentSession) -> None:
        last: int | None = None
        for group in exchanges(agent.messages, lambda message: message.is_input):
            self.agent_turns.append(_AgentTurnPlan(agent, group))
            is_answered = any(not message.is_input for message in group)
            last = self.add(last, settled=is_answered)
        if last is None:
            return
        times = [message.at for message in agent.messages if message.at]
        self.sessions.append(
            DerivedSession(
                session_id=agent.id,
                label=label_of(agent.id),
                head=self._head(last),
                file_ids=frozenset(agent.file_ids),
                title=agent.title,
                created_at=agent.created_at or min(times, default=0),
                updated_at=max(times, default=agent.created_at),
                is_subagent=agent.parent is not None,
                parent_label=label_of(agent.parent) if agent.parent else None,
                routing_key=agent.workspace,
                metadata=agent.all_metadata(),
            )
        )

    def _metadata(self, chat: CursorChat) -> dict[str, Any]:
        fields = {_in_snake_case(name): pruned(chat.get(name)) for name in rules.CHAT_FIELDS}
        folder = self._folder(chat)
        # unifiedMode is chat, edit, agent, plan or debug.
        if fields["is_agentic"] is None and fields["unified_mode"]:
            fields["is_agentic"] = fields["unified_mode"] == "agent"
        fields |= {
            "workspace_path": folder,
            "project": project_name(folder) if folder else None,
            "model": chat.model,
            "prompt": as_text(chat.task.get("prompt")),
            "composer": chat.extra,
        }
        return {name: value for name, value in fields.items() if value not in EMPTY}

    def _folder(self, chat: CursorChat) -> str | None:
        """The folder of a chat, or else of the nearest parent that has one."""
        path: list[CursorChat] = []
        ancestor: CursorChat | None = chat
        while ancestor is not None and ancestor.folder is None:
            ancestor.folder = self._own_folder(ancestor) or ""  # a cycle of parents ends there
            path.append(ancestor)
            if not ancestor.folder:
                ancestor = self.chats.chats.get(ancestor.parent or "")
        for member in path:
            member.folder = ancestor.folder if ancestor is not None else ""
        return chat.folder or None

    def _own_folder(self, chat: CursorChat) -> str | None:
        """By its record, by its workspace, by what was sent with a prompt."""
        identifier = as_dict(chat.get("workspaceIdentifier"))
        sent = (chat.contexts[name] for name in sorted(chat.contexts))
        return (
            path_of(identifier.get("uri"))
            or self.chats.folders.get(self.chats.listed_in.get(chat.id, ""))
            or chosen_folder(chat.get("context"))
            or next(filter(None, (sent_folder(self.chats.reader.value(row)) for row in sent)), None)
        )


class CursorTurns(LazyTurns):
    def __init__(self, tree: CursorTree, version: int) -> None:
        self.tree = tree
        self.material = tree.chats.material
        super().__init__(tree, version)

    def name(self, turn: int) -> str:
        return self.tree.name(turn)

    def _plan(self, turn: int) -> _ChatTurnPlan | _AgentTurnPlan:
        chat_turns = self.tree.chat_turns
        if turn < len(chat_turns):
            return chat_turns.values.read(turn)
        return self.tree.agent_turns[turn - len(chat_turns)]

    def owner(self, turn: int) -> str | None:
        plan = self._plan(turn)
        return label_of(plan.chat) if isinstance(plan, _ChatTurnPlan) else None

    def record_ids(self, turn: int) -> Iterable[str]:
        plan = self._plan(turn)
        if isinstance(plan, _AgentTurnPlan):
            return [message.id for message in plan.messages]
        if plan.summary is not None:
            return [f"{self.name(turn)}:text"]
        return [message.id for message in self.tree.messages(plan)]

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        plan = self._plan(turn)
        if isinstance(plan, _AgentTurnPlan):
            session, messages = plan
            facts = f"{session.model};{session.created_at};{session.workspace};{messages[0].at};"
            prints = (message.print for message in messages)
            return [facts.encode(errors="replace"), *prints], session.file_ids
        if plan.summary is not None:
            return [digest(plan.summary.encode(errors="replace"))], plan.file_ids
        return self._chat_evidence(plan), plan.file_ids

    def _chat_evidence(self, plan: _ChatTurnPlan) -> Iterator[bytes]:
        facts = self.tree.chat_facts(plan.chat)
        spawned = sorted(facts.spawned.items())
        text = f"{facts.model};{facts.workspace};{facts.asked_by};{spawned};"
        yield text.encode(errors="replace")
        for message in self.tree.messages(plan):
            bubble = message.bubble
            if message.id != bubble.id:
                yield message.id.encode(errors="replace")
            at = b"%d;" % message.at
            # The row of an inline bubble changes with every other bubble of its chat.
            yield at + bubble.print if bubble.inner else bubble.row.digest + at
            rows = (message.context, message.checkpoint)
            yield b"".join(row.digest for row in rows if row is not None)

    def build(self, turn: int) -> Turn:
        plan = self._plan(turn)
        turn_id, parent_id = self.name(turn), self.parent_name(turn)
        builder = TurnBuilder(turn_id, parent_id, self.material.limits)
        if isinstance(plan, _AgentTurnPlan):
            return self._build_agent_turn(builder, plan)
        if plan.summary is not None:
            return build_summary(turn_id, str(parent_id), plan.summary, plan.times[0])
        facts = self.tree.chat_facts(plan.chat)
        return ChatTurn(self.tree.chats.reader, builder, facts).build(self.tree.messages(plan))

    def _build_agent_turn(self, builder: TurnBuilder, plan: _AgentTurnPlan) -> Turn:
        session = plan.session
        builder.model, builder.workspace_path = session.model, session.workspace
        builder.provider = rules.NAME if session.model else None
        turn = AgentTurn(builder, "agent" if session.parent else "human")
        for message in plan.messages:
            turn.add(message.id, record_of_message(self.material, message), message.at)
        # Only transcripts: a store has the results, so that a call without one is still open.
        if not isinstance(plan.messages[-1].record, SourceRow):
            turn.close_calls()
        return builder.build()


def _in_snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def _is_prompt(member: _TimedBubble) -> bool:
    return member.bubble.role == "user"


def _listed_bubbles(chat: CursorChat) -> tuple[array[int], int]:
    """The bubbles that a chat lists, and how many of those are missing."""
    order = chat.order()
    numbers = array("i", (chat.bubbles.number(order.name(at)) for at in range(len(order))))
    if NONE not in numbers:
        return numbers, 0
    own_ids = {  # some may be listed under their own ids
        bubble.id: number
        for number, (key, bubble) in enumerate(chat.bubbles.items())
        if bubble.id != key
    }
    keys = (own_ids.get(order.name(at), NONE) if n == NONE else n for at, n in enumerate(numbers))
    listed = array("i", dict.fromkeys(number for number in keys if number != NONE))
    return listed, len(numbers) - len(listed)


def _by_time(chat: CursorChat, numbers: Iterable[int]) -> array[int]:
    bubbles = chat.bubbles

    def rank(number: int) -> tuple[int, str]:
        return bubbles.values.read(number).at, bubbles.name(number)

    return array("i", sorted(numbers, key=rank))


# -- times ------------------------------------------------------------------------------------


def filled_times(bubbles: Iterable[tuple[int, bool]], first: int, last: int) -> array[int]:
    """The times of bubbles in order; each is given by its own time, or 0, and whether it is a
    prompt. Unknown times lie between the nearest known ones, or the first and last of the chat."""
    times, prompts = array("q"), bytearray()
    for at, is_prompt in bubbles:
        times.append(at)
        prompts.append(is_prompt)
    if not any(times):
        return _spread(len(times), first or last, last)
    start, before = 0, first
    for place, at in enumerate(times):
        if at:
            _fill_before(times, prompts, start, place, before)
            start, before = place + 1, at
    times[start:] = _between(len(times) - start, before, max(before, last))
    return times


def _fill_before(
    times: array[int], prompts: bytearray, start: int, place: int, before: int
) -> None:
    """Fill the unknown times before a known one. The prompt that a bubble answers has its time:
    mostly clientRpcSendTime, when the prompt was sent."""
    at = times[place]
    prompt = NONE if prompts[place] else prompts.rfind(b"\1", start, place)
    end = place if prompt == NONE else prompt
    times[start:end] = _between(end - start, min(before or at, at), at)
    times[end:place] = array("q", [at]) * (place - end)


def _between(count: int, first: int, last: int) -> array[int]:
    return array("q", (first + (last - first) * n // (count + 1) for n in range(1, count + 1)))


def _spread(count: int, first: int, last: int) -> array[int]:
    step = max(0, last - first) / max(1, count)
    return array("q", (int(first + at * step) for at in range(count)))
