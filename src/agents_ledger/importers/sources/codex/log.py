"""Codex: one rollout file, read in order: its copies of turns, and what it says of its thread.

A turn is identified by the source's turn id, which a fork that replays its parent keeps. Rollouts
older than turn ids: a prompt after an answer opens a turn, and its id is made of the thread, its
number, and a hash of all content up to the prompt.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from agents_ledger.importers.parsing.lenient_json import (
    UUID,
    as_dict,
    as_number,
    as_text,
    parse_json,
)
from agents_ledger.importers.parsing.timestamps import UUID7, milliseconds
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.sources.codex import records, rules
from agents_ledger.importers.sources.codex.records import (
    CodexPrompt,
    CodexRecord,
    Payload,
)
from agents_ledger.importers.sources.codex.scripts import event_call_id, script_call_tool
from agents_ledger.importers.sources.codex.turn_copies import (
    CodexCopies,
    CodexTurnCopy,
    Growth,
    Totals,
    add_growth,
)
from agents_ledger.importers.transcript.columns import LastByName
from agents_ledger.importers.transcript.lines import decode_line
from agents_ledger.model.imports.sources import Fate, SourceFile, SourceTitle


class OrdinalIndex:
    """The turn in use after each ordinal of a paginated rollout."""

    def __init__(self) -> None:
        self._ordinals = array("Q")
        self._turns = array("i")  # -1: none

    @property
    def first(self) -> int | None:
        return self._ordinals[0] if self._ordinals else None

    def add(self, ordinal: Any, turn: int | None) -> None:
        """Add the turn in use after a record."""
        number = -1 if turn is None else turn
        is_valid = isinstance(ordinal, int) and ordinal in records.ORDINALS
        if not is_valid or (self._turns and number == self._turns[-1]):
            return
        if not self._ordinals or ordinal > self._ordinals[-1]:
            self._ordinals.append(ordinal)
            self._turns.append(number)

    def turn_before(self, end: int) -> int | None:
        """The turn in use before an ordinal."""
        index = bisect_left(self._ordinals, end) - 1
        return self._turns[index] if index >= 0 and self._turns[index] >= 0 else None


@dataclass(slots=True)
class Rollout:
    file: SourceFile
    turns: range  # the numbers of its copies
    metas: list[Payload] = field(default_factory=list)  # own, then those of threads it forked from
    first_line: bytes = b""
    path: array[int] = field(default_factory=lambda: array("i"))  # the turns not rolled back
    ordinals: OrdinalIndex = field(default_factory=OrdinalIndex)
    title: str | None = None
    index_titles: dict[str, SourceTitle] = field(default_factory=dict)  # by thread
    cwd: str | None = None
    first_at: int = 0
    last_at: int = 0

    @property
    def meta(self) -> Payload:
        return self.metas[0] if self.metas else Payload()

    @property
    def thread(self) -> str:
        thread_id = as_text(self.meta.id)
        return thread_id or hashlib.blake2b(self.first_line, digest_size=8).hexdigest()

    @property
    def root(self) -> str:
        """The id of the thread that its thread descends from."""
        return (as_text(self.metas[-1].id) if self.metas else None) or self.thread

    @property
    def id(self) -> str:
        """The id that other rollouts refer to: a thread that was reverted has several."""
        # Archived threads move to another folder: only the name identifies the file.
        name = records.rollout_name(PurePath(self.file.path.replace("\\", "/")))
        return (name[2] or name[1]) if name else self.thread

    @property
    def has_earlier_totals(self) -> bool:
        """Whether its totals may include tokens that were used before it begins."""
        meta = self.meta
        return meta.history_base is not None or meta.subagent_history_start_ordinal is not None

    def add_meta(self, meta: Payload) -> None:
        """The first is its own; those of its ancestors, or its own again, follow."""
        last = self.metas[-1] if self.metas else None
        # A resumed rollout writes its session_meta again, up to 29 times in one real file.
        if last is None or (meta.id is not None and meta.id == last.forked_from_id):
            self.metas.append(meta)

    def owner(self, task: str) -> Payload | None:
        """The thread of this file that a turn belongs to."""
        if not UUID7.fullmatch(task):
            return self.metas[0] if self.metas else None
        for meta in self.metas:
            # The replayed prefix ends at the first turn id that sorts after the thread id (both
            # UUIDv7).
            if not (as_text(meta.id) and UUID7.fullmatch(meta.id)) or meta.id <= task:
                return meta
        return self.metas[-1] if self.metas else None


class ThreadTotals:
    def __init__(self) -> None:
        self.context: int | None = None  # tokens of the last request
        self._last: Totals | None = None

    def growth(self, info: Any, *, has_earlier: bool) -> Growth | None:
        """The growth since the last totals. They are often repeated; totals that fell start over.

        `has_earlier`: the first totals may include tokens that were used before the file begins.
        """
        # `info` was null in 18 of 4,365 real events.
        after = _token_counts(as_dict(info).get("total_token_usage"))
        if not after:
            return None
        last = as_dict(as_dict(info).get("last_token_usage"))
        self.context = as_number(last.get("total_tokens")) or self.context
        before = self._last
        if before is None and has_earlier:
            before = {
                name: after.get(name, 0) - (as_number(last.get(theirs)) or 0)
                for name, theirs in rules.TOKENS.items()
            }
        # 769 of 4,365 real totals repeat the former one; totals fall at a resume or a replay.
        elif before is None or after.get("total_tokens", 0) < before.get("total_tokens", 0):
            before = {}
        self._last = after
        return before, after


def _token_counts(usage: Any) -> Totals:
    counts = as_dict(usage)
    return {
        name: as_number(counts[theirs]) or 0
        for name, theirs in rules.TOKENS.items()
        if theirs in counts
    }


class RolloutReader:
    """Reads the records of one file in order and adds its turns to the copies."""

    def __init__(self, material: Material, file: SourceFile, copies: CodexCopies) -> None:
        self.rollout = Rollout(file, range(len(copies), len(copies)))
        self._material = material
        self._copies = copies
        self._task: str | None = None
        self._task_ended = False
        self._turn: int | None = None  # the turn that is open
        self._line: SourceLine  # being read
        self._at = 0  # its time
        self._waiting: list[tuple[str, SourceLine]] = []  # records for the next turn
        self._early_growth: list[Growth] = []  # before the first turn
        self._early_responses: dict[str, Totals] = {}  # before the turn of their task
        self._recorded_tasks: set[str | None] = set()  # with usage records
        self._tokens = ThreadTotals()
        self._tasks = LastByName()
        self._calls = LastByName()
        self._content_hash = hashlib.blake2b(digest_size=8)

    @property
    def _copy(self) -> CodexTurnCopy | None:
        """The copy of the open turn."""
        return None if self._turn is None else self._copies[self._turn]

    def read(self) -> Rollout:
        for line in self._material.lines(self.rollout.file):
            self._line = line
            self._read_line(line)
        if self._early_responses and self.rollout.path:
            self._copies[self.rollout.path[-1]].responses |= self._early_responses
            self._recorded_tasks.add(self._copies.read(self.rollout.path[-1]).task)
        for turn in self.rollout.turns:
            copy = self._copies.read(turn)
            if copy.task in self._recorded_tasks:
                self._copies[turn].has_usage_records = True
            fate: Fate = "unmapped" if copy.has_assistant_items else "derived"
            self._material.count("event_msg/agent_message", fate, copy.agent_events)
        return self.rollout

    def _read_line(self, line: SourceLine) -> None:
        record = decode_line(self._material, line, records.decode_record)
        if record is None:
            return
        rollout = self.rollout
        rollout.first_line = rollout.first_line or line.data or b""
        if self._is_inherited(record):
            self._material.count("(inherited)", "unmapped")
            return
        self._at = at = self._material.timestamp(record.timestamp, line)
        rollout.first_at = rollout.first_at or at
        rollout.last_at = max(rollout.last_at, at)
        self._take(record)
        if record.ordinal is not None:
            rollout.ordinals.add(record.ordinal, rollout.path[-1] if rollout.path else None)

    def _is_inherited(self, record: CodexRecord) -> bool:
        """Whether it belongs to the parent's history that a subagent was given."""
        start = self.rollout.meta.subagent_history_start_ordinal
        has_both = isinstance(start, int) and isinstance(record.ordinal, int)
        return has_both and record.kind != "session_meta" and record.ordinal < start

    def _take(self, record: CodexRecord) -> None:
        kind, payload = record.kind, record.payload
        inner_kind = payload.type if isinstance(payload.type, str) else None
        name = f"{kind}/{inner_kind}" if kind in ("response_item", "event_msg") else kind
        is_used = True
        if name == "event_msg/agent_message":
            self._agent_event()
            # Counted when it is known whether an item repeats it.
            return
        if kind == "session_meta":
            self.rollout.add_meta(payload)
        elif kind == "turn_context":
            self._start_task(payload)
            self._describe_turn()
        elif kind == "compacted":
            self._compaction(payload)
        elif kind == "event_msg":
            is_used = self._event(inner_kind or "", payload)
        elif kind == "response_item":
            is_used = self._item(inner_kind, record)
        elif kind:
            is_used = kind == rules.USAGE and self._count_response(payload)
        else:
            name, is_used = self._without_envelope(inner_kind, record)
        self._material.count(name, "derived" if is_used else "unmapped")

    def _without_envelope(self, kind: str | None, record: CodexRecord) -> tuple[str, bool]:
        """Take a line of the old format or of the index: its name, and whether it is used."""
        payload = record.payload
        if payload.is_old_head and not self.rollout.metas:
            self.rollout.add_meta(payload)
            return "(head)", True
        if payload.names_thread:
            return "(name)", self._index_title(payload)
        name = kind or str(payload.record_type or "(none)")
        return name, self._item(kind, record)

    def _index_title(self, payload: Payload) -> bool:
        """Take the title of a thread: the last line counts."""
        file, title = self._line.file, as_text(payload.thread_name.strip())
        if title is not None:
            label = f"{rules.NAME}:{payload.id}"
            self.rollout.index_titles[payload.id] = SourceTitle(
                label, file.id, file.path, file.generation, self._line.offset, title
            )
        return title is not None

    # -- turns --------------------------------------------------------------------------------

    def _task_of(self, payload: Payload) -> str | None:
        turn_id = as_text(payload.turn_id)
        if turn_id is None or UUID.fullmatch(turn_id):
            return turn_id
        # The root, not the thread: a fork replays the same short id.
        return f"{rules.NAME}:{self.rollout.root}:{turn_id}"

    def _start_task(self, payload: Payload) -> None:
        task = self._task_of(payload)
        if task is None:
            return
        self._task_ended = False
        if task != self._task:
            self._task = task
            self._select(self._tasks.get(task))

    def _select(self, turn: int | None) -> None:
        self._turn = turn
        self._copies.going_on = -1 if turn is None else turn

    def _open(self, turn_id: str, task: str, *, is_compaction: bool = False) -> int:
        rollout, before = self.rollout, self._last_of_task(task)
        meta = rollout.owner(task)
        thread = (as_text(meta.id) if meta else None) or rollout.thread
        copy = CodexTurnCopy(
            file_id=rollout.file.id,
            is_compaction=is_compaction,
            name=self._copies.names.add(turn_id),
            parent=self._copies.read(rollout.path[-1]).name if rollout.path else None,
            task=task,
            file_thread=rollout.thread,
            is_replayed=thread != rollout.thread,
            provider=as_text(meta.model_provider) if meta else None,
            cwd=(as_text(meta.cwd) if meta else None) or rollout.cwd,
            thread_time=milliseconds(meta.timestamp) if meta else 0,
            is_subagent=meta is not None and meta.is_subagent,
            task_turns=(before.task_turns if before else 0) + (not is_compaction),
            task_compactions=(before.task_compactions if before else 0) + is_compaction,
        )
        turn = self._copies.add(copy)
        self._select(turn)
        self._copies[turn].responses |= self._early_responses
        self._early_responses.clear()
        self._tasks[task] = turn
        rollout.turns = range(rollout.turns.start, turn + 1)
        rollout.path.append(turn)
        return turn

    def _last_of_task(self, task: str) -> CodexTurnCopy | None:
        turn = self._tasks.get(task)
        return None if turn is None else self._copies.read(turn)

    def _content_turn(self, content: bytes) -> int:
        """The turn that content belongs to, opened if need be."""
        copy = self._copy
        if self._turn is not None and copy is not None and not copy.is_compaction:
            if copy.was_moved:
                # Turns after later compactions have the numbers that they had when this was two.
                copy.task_turns += 1
                copy.was_moved = False
            return self._turn
        if self._task is not None:
            before = self._last_of_task(self._task)
            # The first turn keeps the source's id; those after a compaction are numbered.
            number = before.task_turns + 1 if before else 1
            turn = self._open(f"{self._task}:{number}" if number > 1 else self._task, self._task)
        else:
            # All content up to the prompt: forks that differ before it must not share the turn.
            content_hash = self._content_hash.copy()
            content_hash.update(content)
            number = len(self.rollout.turns) + 1
            turn_id = f"{rules.NAME}:{self.rollout.root}:{number}:{content_hash.hexdigest()}"
            turn = self._open(turn_id, turn_id)
        for role, line in self._waiting:
            self._add_line(turn, role, line)
        self._waiting.clear()
        self._copies[turn].growth += self._early_growth
        self._early_growth.clear()
        return turn

    def _prompt_turn(self, content: bytes, prompt: CodexPrompt) -> int:
        """The turn of a prompt. Without turn ids, a prompt after an answer opens a turn."""
        if self._task_ended:
            self._task = None
        if self._task is None and self._copy is not None and self._copy.answered:
            self._select(None)
        turn = self._content_turn(content)
        copy = self._copies[turn]
        copy.prompts.add(prompt.key)
        copy.ended = False
        return turn

    def _add(self, turn: int | None, role: str, *, has_time: bool = True) -> None:
        """Add the record to a turn, or to the next one."""
        if turn is None:
            self._waiting.append((role, self._line))
            return
        copy = self._add_line(turn, role, self._line)
        copy.first_at = copy.first_at or (self._at if has_time else 0)

    def _add_line(self, turn: int, role: str, line: SourceLine) -> CodexTurnCopy:
        copy, number = self._copies[turn], 0
        if role == "item":
            number, copy.items = copy.items, copy.items + 1
            copy.weight += 1
        elif role == "prompt_event":
            number, copy.prompt_events = copy.prompt_events, copy.prompt_events + 1
        self._copies.entries.add(line, role, turn, number)
        return copy

    def _describe_turn(self) -> None:
        """Add the context of a turn to the open one, or to the next."""
        is_compaction = self._copy is not None and self._copy.is_compaction
        self._add(None if is_compaction else self._turn, "context", has_time=False)

    # -- items: what the model read and wrote -------------------------------------------------

    def _item(self, kind: str | None, record: CodexRecord) -> bool:
        """Take an item; False if it is not used."""
        payload, content = record.payload, record.payload_json
        kind = kind or ("message" if isinstance(payload.role, str) else "other")
        turn: int | None
        if kind == "message":
            turn = self._message(payload, content)
        elif kind.endswith(("_output", "_result")):
            turn = self._calls.get(as_text(payload.call_id))
            turn = self._content_turn(content) if turn is None else turn
            # Else the child's copy would be as long as the parent's, which has the real result.
            if rules.NEWLY_SPAWNED in bytes(memoryview(payload.output)[:200]):
                self._copies[turn].weight -= 1
        elif kind in rules.AGENT_ITEMS or kind.endswith("_call"):
            turn = self._content_turn(content)
            copy = self._copies[turn]
            copy.answered = copy.answered or kind != "agent_message"
            if kind.endswith("_call") and as_text(payload.call_id):
                self._calls[payload.call_id] = turn
        else:
            return False
        self._add(turn, "item")
        if turn is not None:
            self._content_hash.update(content)
        return True

    def _message(self, payload: Payload, content: bytes) -> int | None:
        """The turn of a message; None if the client injected it before the first turn."""
        if payload.role == "assistant":
            turn = self._content_turn(content)
            copy = self._copies[turn]
            copy.answered = copy.has_assistant_items = True
            return turn
        if payload.role == "user":
            prompt = records.read_prompt(parse_json(payload.content) or parse_json(payload.message))
            if not prompt.sent.startswith(rules.INJECTED):
                return self._prompt_turn(content, prompt)
            cwd = rules.CWD_IN_PROMPT.search(prompt.sent)
            self.rollout.cwd = self.rollout.cwd or (cwd[1].strip() if cwd else None)
        if self._task is None and self._turn is None:
            return None
        return self._content_turn(content)

    # -- events: what the client displayed ----------------------------------------------------

    def _event(self, kind: str, payload: Payload) -> bool:
        """Take an event; False if it is not used."""
        if kind == "task_started":
            self._start_task(payload)
        elif kind == "token_count":
            self._count_tokens(payload.info)
        elif kind == "thread_rolled_back":
            self._roll_back(as_number(payload.num_turns) or 0)
        elif kind == "thread_name_updated":
            if payload.thread_id in (None, self.rollout.thread):
                self.rollout.title = as_text(payload.thread_name) or self.rollout.title
        elif kind == "user_message":
            self._prompt_event(records.event_prompt(parse_json(payload.message), None))
        elif kind in rules.ENDINGS:
            return self._ending(kind)
        else:
            return self._item_event(kind, payload)
        return True

    def _item_event(self, kind: str, payload: Payload) -> bool:
        """Take an event about an item; False if it adds nothing to it."""
        completed = as_dict(parse_json(payload.item)) if kind == "item_completed" else {}
        event = {"type": kind, "call_id": payload.call_id, "event_id": payload.event_id}
        if completed.get("type") == "UserMessage":
            self._prompt_event(records.event_prompt(None, completed))
        elif script_call_tool(completed or event) is not None:
            self._script_call(payload)
        elif kind in rules.DETAIL_EVENTS or completed.get("type") in rules.DETAIL_ITEMS:
            turn = self._calls.get(event_call_id(completed or event))
            self._add(self._turn if turn is None else turn, "detail")
        else:
            return False
        return True

    def _prompt_event(self, prompt: CodexPrompt) -> None:
        """Take the event of a prompt, which comes before or after its item, or without one."""
        turn, copy = self._turn, self._copy
        # After an answer the same text is a new prompt.
        has_item = copy is not None and prompt.key in copy.prompts and not copy.answered
        if turn is None or copy is None or copy.is_compaction or not has_item:
            turn = self._prompt_turn(prompt.sent.encode(errors="surrogatepass"), prompt)
        self._add(turn, "prompt_event")

    def _agent_event(self) -> None:
        turn = self._content_turn(b"agent_message")
        copy = self._copies[turn]
        copy.agent_events += 1
        copy.answered = True
        self._add(turn, "agent_event")

    def _ending(self, kind: str) -> bool:
        """End the open turn; False if there is none."""
        self._task_ended = self._task_ended or kind != "error"
        if self._copy is None:
            return False
        self._copy.ended = True
        self._add(self._turn, "detail")
        return True

    def _script_call(self, payload: Payload) -> None:
        """Add a call to the turn that it names: a script may outlive its turn."""
        task = self._task_of(payload)
        turn = self._tasks.get(task) if task != self._task else None
        turn = self._turn if turn is None else turn
        is_compaction = turn is not None and self._copies[turn].is_compaction
        self._add(None if is_compaction else turn, "detail")

    def _compaction(self, payload: Payload) -> None:
        """Cut the turn in two: what follows is a turn below the compaction. A prompt that set it
        off and has no answer yet is moved below it as a whole."""
        path, waiting = self.rollout.path, None
        if not path:  # the history that it summarises is in no file
            turn = self._content_turn(b"compacted")
            self._copies[turn].is_first_summary = True
        else:
            # Rollouts without turn ids: the compaction is named after the turn that it follows.
            task = self._task or self._copies.id(path[-1])
            before = self._last_of_task(task)
            number = before.task_compactions + 1 if before else 1
            # The response that compacts ends in the turn before.
            response = as_text(payload.compaction_response_id) or ""
            usage = self._copies[path[-1]].responses.pop(response, None)
            self._early_responses |= {} if usage is None else {response: usage}
            waiting = path.pop() if self._prompt_waits() else None
            turn = self._open(f"{task}:compaction:{number}", task, is_compaction=True)
            copy = self._copies[turn]
            copy.context_tokens = self._tokens.context
            copy.trigger = "context_limit" if copy.task_turns else None
            copy.answered = True
        self._add(turn, "item")
        if waiting is not None:
            self._continue_below(turn, waiting)

    def _prompt_waits(self) -> bool:
        """Whether the open turn is a prompt without an answer that follows another turn."""
        path, copy = self.rollout.path, self._copy
        if copy is None or len(path) == 1 or path[-1] != self._turn:
            return False
        return bool(copy.prompts) and not (copy.is_compaction or copy.answered or copy.ended)

    def _continue_below(self, compaction: int, turn: int) -> None:
        """Continue a turn below the compaction that its prompt set off."""
        parent = self._copies.read(compaction).name
        copy = self._copies[turn]
        copy.parent, copy.was_moved = parent, True
        copy.task_compactions += 1
        self._tasks[copy.task] = turn
        self.rollout.path.append(turn)
        self._select(turn)

    def _roll_back(self, turns: int) -> None:
        """Take the last turns with a prompt off the path: what follows is a branch."""
        path = self.rollout.path
        while turns > 0 and path:
            # num_turns counts turns of the user: compactions and their continuations are not
            # counted.
            turns -= bool(self._copies[path.pop()].prompts)
        self._select(None)
        self._task = None

    def _count_tokens(self, info: Any) -> None:
        growth = self._tokens.growth(info, has_earlier=self.rollout.has_earlier_totals)
        if growth is None:
            return
        path = self.rollout.path
        # Totals after the end of a turn are still those of its last request.
        copy = self._copy or (self._copies[path[-1]] if path else None)
        add_growth(self._early_growth if copy is None else copy.growth, growth)

    def _count_response(self, payload: Payload) -> bool:
        """Take the tokens of one response; False if there are none."""
        usage = _token_counts(payload.usage)
        if not usage:
            return False
        task = self._task_of(payload) or self._task
        self._recorded_tasks.add(task)
        turn = self._turn if task == self._task else self._tasks.get(task)
        responses = self._early_responses if turn is None else self._copies[turn].responses
        responses[as_text(payload.response_id) or f"@{self._line.offset}"] = usage
        return True
