"""What a ledger holds, read with plain SQL, and whether it holds what was acknowledged.

A fact is a tuple, its kind first, that must be true of the ledger for ever once the call it stands
for has returned. Facts can be told before the call, so that they can be noted at any moment of it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

from agents_ledger import Ledger
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.text import unescape_rows

BRIEF = 64

Fact = tuple[Any, ...]
Step = tuple[Any, ...]
"""A message as ("message", role, content), a tool call as ("call", id, tool, params, status,
result, error); both as they stand in the ledger, but for long texts, which are brief."""


def brief(text: str | None) -> str | None:
    """A text, or the hash of a long one: facts travel through pipes."""
    if text is None or len(text) <= BRIEF:
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest(
    steps: Iterable[Step], status: str, error: str | None, tokens: int | None, summary: str | None
) -> str:
    """A sealed turn's content, in short."""
    whole = (tuple(steps), status, error, tokens, summary)
    return hashlib.sha256(repr(whole).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Picture:
    """All that facts can ask about, at one moment."""

    def __init__(self, ledger: Ledger) -> None:
        self.turns: dict[str, tuple[Any, ...]] = {}
        self.parents: dict[str, str | None] = {}
        self.steps: dict[str, list[Step]] = {}
        self.history: dict[str, list[tuple[str | None, str]]] = defaultdict(list)
        self.partial: dict[str, str] = defaultdict(str)
        self.last_words: dict[str, str] = {}
        ledger._core.db.read(self._read)

    def _read(self, tx: Transaction) -> None:
        self._read_turns(tx)
        self._read_sessions(tx)

    def _read_turns(self, tx: Transaction) -> None:
        for id, parent, *rest in _rows(
            tx,
            "SELECT t.id, t.parent_turn_id, t.status, t.error, t.total_tokens, c.summary"
            " FROM turns t LEFT JOIN compactions c ON c.turn_id = t.id",
        ):
            self.turns[id] = tuple(rest)
            self.parents[id] = parent
        found: dict[str, list[tuple[int, Step]]] = defaultdict(list)
        for turn, at, role, content in _rows(
            tx, "SELECT turn_id, sequence, role, content FROM messages ORDER BY sequence"
        ):
            found[turn].append((at, ("message", role, brief(content))))
            self.last_words[turn] = content or ""
        for turn, at, *call in _rows(
            tx,
            "SELECT turn_id, sequence, id, tool_name, params_json, status, result_json, error"
            " FROM tool_calls",
        ):
            found[turn].append((at, ("call", *(brief(part) for part in call))))
        self.steps = {
            turn: [step for _, step in sorted(steps, key=itemgetter(0))]
            for turn, steps in found.items()
        }
        for turn, text in _rows(
            tx, "SELECT turn_id, content FROM partial_texts ORDER BY turn_id, piece"
        ):
            self.partial[turn] += text

    def _read_sessions(self, tx: Transaction) -> None:
        self.live = {turn for (turn,) in _rows(tx, "SELECT turn_id FROM live_turns")}
        for label, head, reason in _rows(
            tx, "SELECT session_label, thread_id, reason FROM session_history ORDER BY id"
        ):
            self.history[label].append((head, reason))
        self.names: dict[str, str] = dict(_rows(tx, "SELECT name, session_label FROM names"))
        self.sessions = {
            label: (head, status, parent, title)
            for label, head, status, parent, title in _rows(
                tx,
                "SELECT s.label, s.thread_id, s.status, s.parent_turn_id, a.title"
                " FROM sessions s LEFT JOIN annotations a ON a.session_label = s.label",
            )
        }

    def holds(self, fact: Fact) -> bool:
        """Whether a fact is true."""
        return _HOLDS[fact[0]](self, *fact[1:])

    def missing(self, facts: Iterable[Fact]) -> Fact | None:
        """The first fact that is not true."""
        return next((fact for fact in facts if not self.holds(fact)), None)

    def ancestry(self, turn: str | None) -> list[str]:
        """A turn and its ancestors, root last."""
        found = []
        while turn is not None:
            found.append(turn)
            turn = self.parents[turn]
        return found


def as_fact(value: Any) -> Any:
    """A fact as it was before it became JSON."""
    return tuple(as_fact(part) for part in value) if isinstance(value, list) else value


def _rows(tx: Transaction, sql: str) -> list[Row]:
    return unescape_rows(tx.execute(sql))


def _turn(picture: Picture, id: str, content: str) -> bool:
    """A turn was sealed with this content."""
    found = picture.turns.get(id)
    return found is not None and digest(picture.steps.get(id, ()), *found) == content


def _begun(picture: Picture, id: str, *query: Step) -> bool:
    """A live turn was begun; it may have been sealed since."""
    return id in picture.turns and tuple(picture.steps.get(id, ())[: len(query)]) == query


def _said(picture: Picture, id: str, *message: Any) -> bool:
    """A message was added to a live turn."""
    return ("message", *message) in picture.steps.get(id, ())


def _called(picture: Picture, id: str, *call: Any) -> bool:
    """A tool was called; what came of it is another fact."""
    wanted = ("call", *call)
    return any(step[: len(wanted)] == wanted for step in picture.steps.get(id, ()))


def _finished(picture: Picture, id: str, *call: Any) -> bool:
    """A tool call came to an end."""
    return ("call", *call) in picture.steps.get(id, ())


def _streamed(picture: Picture, id: str, text: str) -> bool:
    """So much was streamed: still there, or given way to the turn's last message."""
    if id in picture.live:
        return picture.partial[id].startswith(text)
    status = picture.turns[id][0] if id in picture.turns else ""
    if status == "completed":
        return True
    return status == "failed" and picture.last_words.get(id, "").startswith(text)


def _moved(picture: Picture, label: str, move: int, head: str | None, reason: str) -> bool:
    """A session's n-th move led there."""
    history = picture.history[label]
    return len(history) > move and history[move] == (head, reason)


def _same(picture: Picture, *keys: str) -> bool:
    """Keys lead to one session."""
    found = {picture.names.get(key) for key in keys}
    return len(found) == 1 and None not in found


def _session(picture: Picture, label: str, parent: str | None) -> bool:
    """There is such a session, spawned by that turn."""
    return label in picture.sessions and picture.sessions[label][2] == parent


def _archived(picture: Picture, label: str) -> bool:
    return label in picture.sessions and picture.sessions[label][1] == "archived"


def _titled(picture: Picture, label: str, number: int) -> bool:
    """A session's title was set to this number, or to a later one."""
    return label in picture.sessions and int(picture.sessions[label][3] or -1) >= number


_HOLDS: dict[str, Callable[..., bool]] = {
    "turn": _turn,  # recorded at once: the same call again is safe
    "sealed": _turn,  # a live turn
    "begun": _begun,
    "said": _said,
    "called": _called,
    "finished": _finished,
    "streamed": _streamed,
    "moved": _moved,
    "same": _same,
    "session": _session,
    "archived": _archived,
    "titled": _titled,
}


def look(ledger: Ledger, picture: Picture, facts: list[Fact]) -> str | None:
    """What is wrong with a ledger whose writers are gone, if anything."""
    return next(_wrongs(ledger, picture, facts), None)


def _wrongs(ledger: Ledger, picture: Picture, facts: list[Fact]) -> Iterator[str]:
    """Facts, audit with the engine's own check, recovery, and whether it can still be written."""
    if missing := picture.missing(facts):
        yield f"lost: {missing}"
    yield from (f"audit: {broken}" for broken in ledger.audit())
    failed = set(ledger.recover())
    if failed != picture.live:
        yield f"recover failed {sorted(failed)}, live were {sorted(picture.live)}"
    turn = ledger.record("afterwards", "Still there?", "Yes.")
    if ledger.get_turn(turn.id) != turn or ledger.head("afterwards") != turn.id:
        yield "a turn recorded afterwards cannot be read back"
    if missing := Picture(ledger).missing(facts):
        yield f"lost in recovery: {missing}"
    yield from (f"audit afterwards: {broken}" for broken in ledger.audit())
