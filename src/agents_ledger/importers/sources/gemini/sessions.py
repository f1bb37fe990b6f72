"""The sessions of Gemini CLI: which chats are one, and which is a subagent's.

Until its subagents got ids of their own (2026-03), each wrote its chat beside that of the session
it worked for, under the same id. A chat is known by its id and by when it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct, field

from agents_ledger.importers.transcript.message_tree import Live, Nodes
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    NONE,
    UUID,
    as_dict,
    as_list,
    as_text,
    parsed,
)

ASKED_LETTERS = 8  # fewer could stand in any prompt


class Session(Struct):
    """A chat, and what its files say of it."""

    name: str  # the id that it gives itself
    began: str
    number: int
    file_ids: set[int] = field(default_factory=set)
    live: Live = field(default_factory=Live)  # as the program would show it
    said: dict[str, Any] = field(default_factory=dict)
    parent: str | None = None
    folder: str | None = None
    first_at: int = 0
    last_at: int = 0
    apart: bool = False  # another chat has the same id

    @property
    def session_id(self) -> str:
        """Its id, and when it began if another has the same."""
        return f"{self.name}:{self.began or 'undated'}" if self.apart else self.name

    @property
    def is_subagent(self) -> bool:
        """Whether an agent asked for it."""
        return self.said.get("kind") == "subagent" or self.parent is not None

    def describe(self, said: dict[str, Any]) -> None:
        """What a record says of it; what it leaves out stays."""
        self.said |= {name: value for name, value in said.items() if value is not None}


def name_of(path: Path, said: dict[str, Raw]) -> tuple[str, str]:
    """What a session is called, and when it began. An id that is no UUID is not its own, unless it
    is a subagent's: all chats of the program's server have one, and differ in when they began."""
    names = ("sessionId", "kind", "startTime")
    session_id, kind, began = (as_text(parsed(said.get(name, b"null"))) for name in names)
    began = began if began and milliseconds(began) else ""
    if not session_id:
        return path.stem, began
    is_subagent = kind == "subagent" or path.parent.parent.name == "chats"
    if is_subagent or UUID.fullmatch(session_id):
        return session_id, began
    return f"{session_id}:{began or path.stem}", began


def united(sessions: Sequence[Session], shared: Iterable[tuple[int, int]]) -> list[Session]:
    """The sessions by number; those that share a message are one, which stands as the later file
    says."""
    found = list(sessions)
    for pair in shared:
        one, other = (found[number] for number in pair)
        if one is other:
            continue
        one.file_ids |= other.file_ids
        starts = filter(milliseconds, [each.said.get("startTime") for each in (one, other)])
        one.said |= other.said | {"startTime": min(starts, key=milliseconds, default=None)}
        one.live = other.live
        one.first_at = min(filter(None, (one.first_at, other.first_at)), default=0)
        one.last_at = max(one.last_at, other.last_at)
        found = [one if each is other else each for each in found]
    return found


def set_apart(sessions: Iterable[Session], nodes: Nodes) -> Iterator[tuple[Session, Session]]:
    """Of chats with one id the first keeps it. Those that began while it went on, or while it
    waited for an answer, are subagents', since the program holds one at a time: these, each with
    its parent."""
    by_name: dict[str, list[Session]] = {}
    for session in sessions:
        by_name.setdefault(session.name, []).append(session)
    for first, *others in (sorted(each, key=_age) for each in by_name.values()):
        waits = first.live.last != NONE and nodes.values.read(first.live.last).kind == "prompt"
        for each in others:
            each.apart = True
            within = first.first_at <= each.first_at <= first.last_at
            if each.is_subagent or within or waits:
                each.parent = each.parent or first.name
                yield each, first


def _age(session: Session) -> tuple[bool, bool, str]:
    return session.is_subagent, not session.began, session.began


def in_folders(sessions: Sequence[Session]) -> Iterator[tuple[Session, Session]]:
    """Subagents that lie in the folder of their session, each with its parent."""
    by_id = {session.session_id: session for session in sessions}
    for session in sessions:
        parent = by_id.get(session.parent or "")
        if parent is not None and not session.apart:
            yield session, parent


def spawning(answers: Iterable[dict[str, Any]], prompts: dict[str, str]) -> dict[str, str]:
    """Which of the sessions that these prompts open the calls of answers started, by call: of those
    that give something which stands in one the first that gives most, as a file that was read
    before may stand there too. None, if another call names the session."""
    named = set[str]()
    found: dict[str, tuple[int, str]] = {}  # by session: how many letters its call gives
    for call in (as_dict(call) for said in answers for call in as_list(said.get("toolCalls"))):
        call_id, agent = as_text(call.get("id")), as_text(call.get("agentId"))
        if agent or not call_id:
            named.add(agent or "")
            continue
        texts = filter(None, map(as_text, as_dict(call.get("args")).values()))
        given = sorted(map(str.strip, texts), key=len)
        for child, prompt in prompts.items() if given else ():
            least, _ = found.get(child, (ASKED_LETTERS - 1, ""))
            if len(given[-1]) > least and (letters := _asked(given, prompt)) > least:
                found[child] = letters, call_id
                break
    return {call_id: child for child, (_, call_id) in found.items() if child not in named}


def _asked(given: Iterable[str], prompt: str) -> int:
    return max((len(each) for each in given if each in prompt), default=0)
