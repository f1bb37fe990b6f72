"""Codex: one rollout file, read in order: its turns, and what it says of its thread."""

from __future__ import annotations

import hashlib
import re
from array import array
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct

from agents_ledger.importers.port.source import Line, Material
from agents_ledger.importers.sources.codex.history import Base, Places
from agents_ledger.importers.sources.codex.parts import Grown, Part, Parts, Total, go_on
from agents_ledger.importers.sources.codex.prompts import Prompt, asked_prompt, read_prompt
from agents_ledger.importers.sources.codex.scripts import id_of, tool_called
from agents_ledger.importers.sources.codex.turns import (
    AGENT_ITEMS,
    CARRIED_EVENTS,
    CARRIED_ITEMS,
    ENDINGS,
    INJECTED,
    NAME,
    NEWLY_SPAWNED,
)
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    NONE,
    UUID,
    UUID7,
    as_dict,
    as_number,
    as_text,
    decoded,
    parsed,
)
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.sources import Fate, SourceFile, SourceTitle

ENVELOPES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}
ONLY_HERE = ENVELOPES | {"world_state", "inter_agent_communication_metadata"}
CWD = re.compile(r"<cwd>([^<]+)</cwd>")
TOKENS = {
    "input_tokens": "input_tokens",
    "cached_input_tokens": "cached_input_tokens",
    "cache_write_input_tokens": "cache_write_tokens",
    "output_tokens": "output_tokens",
    "reasoning_output_tokens": "reasoning_tokens",
    "total_tokens": "total_tokens",
}
NOTHING = Raw(b"null")


class Payload(Struct, gc=False):
    """What the outline needs of a record. Anything may be missing, or be something else."""

    type: Any = None
    id: Any = None
    turn_id: Any = None
    role: Any = None
    call_id: Any = None
    event_id: Any = None
    record_type: Any = None
    timestamp: Any = None
    info: Any = None
    num_turns: Any = None
    thread_id: Any = None
    thread_name: Any = None
    forked_from_id: Any = None
    parent_thread_id: Any = None
    cwd: Any = None
    originator: Any = None
    cli_version: Any = None
    source: Any = None
    model_provider: Any = None
    agent_nickname: Any = None
    agent_role: Any = None
    agent_path: Any = None
    git: Any = None
    history_base: Any = None
    subagent_history_start_ordinal: Any = None
    instructions: Any = UNSET  # null where there are none
    message: Raw = NOTHING
    content: Raw = NOTHING
    output: Raw = NOTHING
    item: Raw = NOTHING


class Envelope(Struct, gc=False):
    """What stands around a payload."""

    type: Any = None
    timestamp: Any = None
    ordinal: Any = None
    payload: Raw = NOTHING


decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_payload = msgspec.json.Decoder(Payload).decode


class _Decoded(NamedTuple):
    kind: str
    timestamp: Any
    ordinal: Any
    payload: Payload
    inner: bytes | Raw  # the payload's JSON


def _decode(data: bytes) -> _Decoded:
    record = decode_envelope(data)
    kind = record.type if isinstance(record.type, str) else ""
    inner: bytes | Raw = record.payload
    if kind not in ENVELOPES and bytes(record.payload) == b"null":
        kind, inner = "", data  # the old format has no envelope
    return _Decoded(kind, record.timestamp, record.ordinal, decode_payload(inner), inner)


def is_old_head(line: Payload) -> bool:
    """Whether this is a first line as the old format has it."""
    said = isinstance(line.id, str) and isinstance(line.timestamp, str)
    return said and line.type is None and line.instructions is not UNSET


def is_old(line: Payload) -> bool:
    """Whether only the old format has such a line."""
    return line.record_type == "state" or is_old_head(line)


def names_thread(line: Payload) -> bool:
    """Whether a line of the index says what a thread is called."""
    said = isinstance(line.id, str) and isinstance(line.thread_name, str)
    return said and line.type is None and line.timestamp is None


class Rollout:
    """One file, read in order: the turns in it, and what it says of its thread."""

    def __init__(self, material: Material, file: SourceFile, parts: Parts) -> None:
        self.material = material
        self._parts = parts
        self.file = file
        self.metas: list[Payload] = []  # its own, then those of the threads it was forked from
        self.first_line = b""
        self.own = range(len(parts), len(parts))  # the numbers of its turns
        self.path = array("i")  # the turns in use: rolled back ones are off it
        self.places = Places()
        self.title: str | None = None
        self.others: dict[str, SourceTitle] = {}  # what other threads are called, by their ids
        self.cwd: str | None = None
        self.first_at = self.last_at = 0
        self._task: str | None = None
        self._closed = False
        self._at = NONE  # the turn that goes on
        self._part: Part | None = None
        self._waiting: list[tuple[str, Line]] = []  # for the next turn
        self._calls = Numbering(forgets=True)
        self._called = array("i")  # the turn of each call
        self._tasks = Numbering()
        self._last_of = array("i")  # the turn of each task, or NONE
        self._opened = array("I")  # turns of each task
        self._compacted_in = array("I")
        self._early: list[Grown] = []  # tokens before the first turn
        self._total: Total | None = None
        self._context: int | None = None
        self._chain = hashlib.blake2b(digest_size=8)
        for line in material.lines(file):
            self._read(line)
        for part in map(parts.read, self.own):
            fate: Fate = "unmapped" if part.has_words else "derived"
            material.count("event_msg/agent_message", fate, part.said)

    # -- reading ------------------------------------------------------------------------------

    def _read(self, line: Line) -> None:
        found = decoded(self.material, line, _decode)
        if found is None:
            return
        self.first_line = self.first_line or line.data or b""
        if self._is_inherited(found):
            self.material.count("(inherited)", "unmapped")
            return
        at = self.material.moment(found.timestamp, line)
        self.first_at = self.first_at or at
        self.last_at = max(self.last_at, at)
        self._take(line, found.kind, found.payload, found.inner, at)
        if found.ordinal is not None:
            self.places.note(found.ordinal, self.path[-1] if self.path else NONE)

    def _goes_on(self) -> bool:
        """Whether totals may hold what was spent before this file begins."""
        meta = self.metas[0] if self.metas else Payload()
        return meta.history_base is not None or meta.subagent_history_start_ordinal is not None

    def _is_inherited(self, record: _Decoded) -> bool:
        """Whether it only says what a subagent was told of its parent's history."""
        start = self.metas[0].subagent_history_start_ordinal if self.metas else None
        both = isinstance(start, int) and isinstance(record.ordinal, int)
        return both and record.kind != "session_meta" and record.ordinal < start

    def _take(self, line: Line, kind: str, payload: Payload, inner: bytes, at: int) -> None:
        inner_kind = payload.type if isinstance(payload.type, str) else None
        name = f"{kind}/{inner_kind}" if kind in ("response_item", "event_msg") else kind
        if kind == "session_meta" or (not kind and not self.metas and is_old_head(payload)):
            self._meta(payload)
            used = True
            name = name or "(head)"
        elif not kind and names_thread(payload):
            used = self._call(line, payload)
            name = "(name)"
        elif kind == "turn_context":
            self._start(payload)
            self._carry("context", line)
            used = True
        elif kind == "compacted":
            used = self._compacted(line, at)
        elif kind == "event_msg":
            if inner_kind == "agent_message":
                self._agent_said(line, at)
                return  # counted when it is known whether it says anything new
            used = self._event(line, inner_kind or "", payload, at)
        elif kind in ("response_item", ""):
            name = name or inner_kind or str(payload.record_type or "(none)")
            used = self._item(line, inner_kind, payload, inner, at)
        else:
            used = False
        self.material.count(name, "derived" if used else "unmapped")

    def _meta(self, payload: Payload) -> None:
        """The first is of this thread; then follow its ancestors', or its own again."""
        last = self.metas[-1] if self.metas else None
        if last is None or (payload.id is not None and payload.id == last.forked_from_id):
            self.metas.append(payload)

    def _call(self, line: Line, payload: Payload) -> bool:
        """What the index calls a thread: the last line counts."""
        file, title = line.file, as_text(payload.thread_name.strip())
        if title is not None:
            label = f"{NAME}:{payload.id}"
            said = SourceTitle(label, file.id, file.path, file.generation, line.offset, title)
            self.others[payload.id] = said
        return title is not None

    @property
    def thread(self) -> str:
        """The id of this file's thread."""
        said = as_text(self.metas[0].id) if self.metas else None
        return said or hashlib.blake2b(self.first_line, digest_size=8).hexdigest()

    @property
    def base(self) -> Base | None:
        """The place in another rollout that this one goes on from."""
        return Base.of(self.metas[0].history_base) if self.metas else None

    @property
    def root(self) -> str:
        """The id of the thread this one goes back to."""
        return (as_text(self.metas[-1].id) if self.metas else None) or self.thread

    def owner(self, task: str) -> Payload | None:
        """Of the threads in this file the one that a turn is of."""
        if not UUID7.fullmatch(task):
            return self.metas[0] if self.metas else None
        for meta in self.metas:
            if not (as_text(meta.id) and UUID7.fullmatch(meta.id)) or meta.id <= task:
                return meta
        return self.metas[-1] if self.metas else None

    # -- turns --------------------------------------------------------------------------------

    def _task_of(self, payload: Payload) -> str | None:
        """The task that a record names."""
        said = as_text(payload.turn_id)
        return said if said is None or UUID.fullmatch(said) else f"{NAME}:{self.root}:{said}"

    def _start(self, payload: Payload) -> None:
        task = self._task_of(payload)
        if task is None:
            return
        self._closed = False
        if task != self._task:
            self._task = task
            known = self._tasks.get(task)
            self._go_on(self._last_of[known] if known >= 0 else NONE)

    def _go_on(self, turn: int) -> None:
        self._parts.going_on = self._at = turn
        self._part = self._parts[turn] if turn >= 0 else None

    def _task_number(self, task: str) -> int:
        number = self._tasks.add(task)
        if number == len(self._last_of):
            self._last_of.append(NONE)
            self._opened.append(0)
            self._compacted_in.append(0)
        return number

    def _open(self, turn_id: str, task: str, is_compaction: bool = False) -> int:
        meta = self.owner(task)
        thread = (as_text(meta.id) if meta else None) or self.thread
        part = Part(
            turn_id,
            task,
            self._parts[self.path[-1]].id if self.path else None,
            self.file.id,
            self.thread,
            thread != self.thread,
            as_text(meta.model_provider) if meta else None,
            (as_text(meta.cwd) if meta else None) or self.cwd,
            milliseconds(meta.timestamp) if meta else 0,
            meta is not None and is_subagent(meta),
            is_compaction,
        )
        number = self._parts.add(part)
        self._go_on(number)
        self.own = range(self.own.start, number + 1)
        known = self._task_number(task)
        self._last_of[known] = number
        if is_compaction:
            self._compacted_in[known] += 1
        else:
            self._opened[known] += 1
        self.path.append(number)
        return number

    def _turn(self, inner: bytes) -> int:
        """The turn that something said belongs to, made if need be."""
        part = self._part
        if part is not None and not part.is_compaction:
            return self._at
        if self._task is not None:
            mine = self._opened[self._task_number(self._task)]
            turn_id = f"{self._task}:{mine + 1}" if mine else self._task
            number = self._open(turn_id, self._task)
        else:
            chain = self._chain.copy()
            chain.update(inner)
            turn_id = f"{NAME}:{self.root}:{len(self.own) + 1}:{chain.hexdigest()}"
            number = self._open(turn_id, turn_id)
        for kind, line in self._waiting:
            self._add(number, kind, line, 0)
        self._waiting.clear()
        self._parts[number].grown += self._early
        self._early.clear()
        return number

    def _prompted(self, inner: bytes, prompt: Prompt) -> int:
        """The turn of a prompt. Without turn ids, one that comes after an answer opens a turn."""
        if self._closed:
            self._task = None
        part = self._part
        if self._task is None and part is not None and part.answered:
            self._go_on(NONE)
        turn = self._turn(inner)
        part = self._parts[turn]
        part.prompts.add(prompt.key)
        part.ended = False
        return turn

    def _add(self, turn: int, kind: str, line: Line, at: int) -> None:
        part = self._part if turn == self._at and self._part else self._parts[turn]
        number = 0
        if kind == "item":
            number, part.items = part.items, part.items + 1
            part.weight += 1
        elif kind == "asked":
            number, part.events = part.events, part.events + 1
        self._parts.note(turn, kind, number, line)
        part.first_at = part.first_at or at

    def _carry(self, kind: str, line: Line) -> None:
        """What describes a turn goes to the one that is open, else to the next."""
        part = self._part
        if part is None or part.is_compaction:
            self._waiting.append((kind, line))
        else:
            self._add(self._at, kind, line, 0)

    def _of_call(self, call_id: str | None) -> int:
        """The turn of a call, or NONE."""
        call = self._calls.get(call_id) if call_id else NONE
        return self._called[call] if call >= 0 else NONE

    def _note_call(self, call_id: str, turn: int) -> None:
        call = self._calls.add(call_id)
        if call == len(self._called):
            self._called.append(turn)
        else:
            self._called[call] = turn

    # -- items: what the model saw and said ---------------------------------------------------

    def _item(self, line: Line, kind: str | None, payload: Payload, inner: bytes, at: int) -> bool:
        """Whether something comes of an item."""
        kind = kind or ("message" if isinstance(payload.role, str) else "other")
        if kind == "message":
            turn = self._message(payload, inner)
            if turn == NONE:
                self._waiting.append(("item", line))
                return True
        elif kind.endswith(("_output", "_result")):
            turn = self._of_call(as_text(payload.call_id))
            turn = turn if turn >= 0 else self._turn(inner)
            if NEWLY_SPAWNED in bytes(memoryview(payload.output)[:200]):
                self._parts[turn].weight -= 1
        elif kind in AGENT_ITEMS or kind.endswith("_call"):
            turn = self._turn(inner)
            part = self._parts[turn]
            part.answered = part.answered or kind != "agent_message"
            if kind.endswith("_call") and as_text(payload.call_id):
                self._note_call(payload.call_id, turn)
        else:
            return False
        self._add(turn, "item", line, at)
        self._chain.update(inner)
        return True

    def _message(self, payload: Payload, inner: bytes) -> int:
        """The turn of a message; NONE if it waits for one: the client put it in."""
        if payload.role == "assistant":
            turn = self._turn(inner)
            part = self._parts[turn]
            part.answered = part.has_words = True
            return turn
        if payload.role == "user":
            prompt = read_prompt(parsed(payload.content) or parsed(payload.message))
            if not prompt.sent.startswith(INJECTED):
                return self._prompted(inner, prompt)
            found = CWD.search(prompt.sent)
            self.cwd = self.cwd or (found[1].strip() if found else None)
        if self._task is None and self._at == NONE:
            return NONE
        return self._turn(inner)

    # -- events: what the client showed -------------------------------------------------------

    def _event(self, line: Line, kind: str, payload: Payload, at: int) -> bool:
        """Whether something comes of an event."""
        if kind == "task_started":
            self._start(payload)
        elif kind == "token_count":
            self._count(payload.info)
        elif kind == "thread_rolled_back":
            self._roll_back(as_number(payload.num_turns) or 0)
        elif kind == "thread_name_updated":
            if payload.thread_id in (None, self.thread):
                self.title = as_text(payload.thread_name) or self.title
        elif kind == "user_message":
            self._asked(line, asked_prompt(parsed(payload.message), None), at)
        else:
            return self._later_event(line, kind, payload, at)
        return True

    def _later_event(self, line: Line, kind: str, payload: Payload, at: int) -> bool:
        """What tells of something that was said before."""
        if kind in ENDINGS:
            return self._ended(line, kind, at)
        item = as_dict(parsed(payload.item)) if kind == "item_completed" else {}
        said = item or {"type": kind, "call_id": payload.call_id, "event_id": payload.event_id}
        if item.get("type") == "UserMessage":
            self._asked(line, asked_prompt(None, item), at)
        elif tool_called(said) is not None:
            self._called_by_script(line, payload, at)
        elif kind in CARRIED_EVENTS or item.get("type") in CARRIED_ITEMS:
            self._detail(line, id_of(said), at)
        else:
            return False
        return True

    def _asked(self, line: Line, prompt: Prompt, at: int) -> None:
        """That a human typed this. It says so before or after the item, or without one."""
        part, turn = self._part, self._at
        known = part is not None and prompt.key in part.prompts and not part.answered
        if part is None or part.is_compaction or not known:
            turn = self._prompted(prompt.sent.encode(errors="surrogatepass"), prompt)
        self._add(turn, "asked", line, at)

    def _agent_said(self, line: Line, at: int) -> None:
        turn = self._turn(b"agent_message")
        part = self._parts[turn]
        part.said += 1
        part.answered = True
        self._add(turn, "said", line, at)

    def _ended(self, line: Line, kind: str, at: int) -> bool:
        """Whether there is a turn that this is the end of."""
        self._closed = self._closed or kind != "error"
        part = self._part
        if part is None:
            return False
        part.ended = True
        self._add(self._at, "detail", line, at)
        return True

    def _detail(self, line: Line, call_id: str | None, at: int) -> None:
        turn = self._of_call(call_id)
        turn = turn if turn >= 0 else self._at
        if turn == NONE:
            self._waiting.append(("detail", line))
            return
        self._add(turn, "detail", line, at)

    def _called_by_script(self, line: Line, payload: Payload, at: int) -> None:
        """A call belongs to the turn it names: a script may outlive its own."""
        task = self._task_of(payload)
        known = self._tasks.get(task) if task is not None and task != self._task else NONE
        turn = self._last_of[known] if known >= 0 else self._at
        if turn == NONE or self._parts[turn].is_compaction:
            self._waiting.append(("detail", line))
        else:
            self._add(turn, "detail", line, at)

    def _compacted(self, line: Line, at: int) -> bool:
        """A compaction cuts a turn in two: what follows stands on it."""
        if not self.path:  # nothing is known that it could have summarised
            turn = self._turn(b"compacted")
            self._parts[turn].summarises = True
            self._add(turn, "item", line, at)
            return True
        above = self._task or self._parts[self.path[-1]].id
        task = self._task_number(above)
        number, followed = self._compacted_in[task] + 1, self._opened[task]
        turn = self._open(f"{above}:compaction:{number}", above, is_compaction=True)
        part = self._parts[turn]
        part.context_tokens = self._context
        part.trigger = "context_limit" if followed else None
        part.answered = True
        self._add(turn, "item", line, at)
        return True

    def _roll_back(self, turns: int) -> None:
        """The last turns with a prompt are no longer in use: what follows branches off."""
        while turns > 0 and self.path:
            turns -= bool(self._parts[self.path.pop()].prompts)
        self._go_on(NONE)
        self._task = None

    def _count(self, info: Any) -> None:
        """Totals only grow, and are often repeated; one that fell began anew."""
        said = as_dict(as_dict(info).get("total_token_usage"))
        total = {TOKENS[name]: as_number(said.get(name)) or 0 for name in TOKENS if name in said}
        if not total:
            return
        last = as_dict(as_dict(info).get("last_token_usage"))
        self._context = as_number(last.get("total_tokens")) or self._context
        base = self._total
        if base is None and self._goes_on():
            base = {
                TOKENS[n]: total.get(TOKENS[n], 0) - (as_number(last.get(n)) or 0) for n in TOKENS
            }
        elif base is None or total.get("total_tokens", 0) < base.get("total_tokens", 0):
            base = {}
        self._total = total
        part = self._part or (self._parts[self.path[-1]] if self.path else None)
        go_on(self._early if part is None else part.grown, base, total)


def is_subagent(meta: Payload) -> bool:
    """Whether another thread started this one."""
    return "subagent" in as_dict(meta.source) or as_text(meta.parent_thread_id) is not None


def parent_thread(meta: Payload) -> str | None:
    """The thread that started this one."""
    spawned = as_dict(as_dict(as_dict(meta.source).get("subagent")).get("thread_spawn"))
    parent = as_text(spawned.get("parent_thread_id")) or as_text(meta.parent_thread_id)
    return parent or (as_text(meta.forked_from_id) if is_subagent(meta) else None)
