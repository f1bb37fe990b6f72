"""Copilot CLI: one file of events, read in order: its copies of turns, and what it says of its
session."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import (
    UUID,
    as_dict,
    as_number,
    as_text,
    parse_json,
)
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.sources.copilot import records, rules
from agents_ledger.importers.sources.copilot.records import CopilotEvent, EventData
from agents_ledger.importers.sources.copilot.turn_copies import CopilotCopies, CopilotTurnCopy
from agents_ledger.importers.transcript.columns import LastByName
from agents_ledger.importers.transcript.field_maps import token_counts
from agents_ledger.importers.transcript.lines import decode_line
from agents_ledger.model.imports.records import digest
from agents_ledger.model.imports.sources import SourceFile

OUTPUT = "output_tokens"

ModelTotals = dict[str, dict[str, int]]  # tokens by model and column


class RunTotals:
    """What the totals at the end of a run add to the output that its messages report.

    The totals of five resumed sessions with 36 runs are those of the run alone; since 1.0.79 they
    are those of the session so far. No field says which, so the output of the messages decides.
    """

    def __init__(self) -> None:
        self.is_complete = False  # the totals include nothing from before this log
        self.reports = 0  # how often tokens were reported
        self._totals: ModelTotals = {}  # as last reported
        self._is_resumed = False  # whether these are of another run
        # Of messages of this run that no totals include yet.
        self._output = 0
        self._output_since_compaction = 0
        self._output_of_lost_runs = 0  # of runs that reported no totals

    def start_run(self, *, is_new: bool) -> None:
        """Start a run of a new session, or of one that is resumed."""
        # A new session has used nothing before: whatever its totals include is its own.
        if is_new:
            self._totals, self._output_of_lost_runs, self.is_complete = {}, 0, True
        else:
            self._output_of_lost_runs += self._output
        self._is_resumed = not is_new
        self._output = self._output_since_compaction = 0

    def add_message(self, output: int) -> None:
        self.reports += 1
        self._output += output
        self._output_since_compaction += output

    def add_compaction(self) -> None:
        """Totals may miss what this run used before a compaction."""
        self._output_since_compaction = 0

    def read(self, metrics: dict[str, Any]) -> dict[str, int]:
        """The tokens in new totals that were not counted yet; empty if there are none."""
        totals = _model_totals(metrics)
        if not totals:
            return {}
        self.reports += 1
        if self._is_resumed and not self._continues(totals):
            self._totals, self._output_of_lost_runs = {}, 0
        grown = dict.fromkeys(rules.TOKENS, 0)
        for model, usage in totals.items():
            before = self._totals.get(model, {})
            if any(usage[name] < number for name, number in before.items()):
                before = {}  # the totals of this model start over
            for name, number in usage.items():
                grown[name] += number - before.get(name, 0)
        grown[OUTPUT] = max(0, grown[OUTPUT] - self._output - self._output_of_lost_runs)
        grown["total_tokens"] = grown["input_tokens"] + grown[OUTPUT]
        self._totals, self._is_resumed, self.is_complete = self._totals | totals, False, True
        self._output = self._output_since_compaction = self._output_of_lost_runs = 0
        return {name: number for name, number in grown.items() if number}

    def _continues(self, totals: ModelTotals) -> bool:
        """Whether totals are of the session: none is less than before the run, and their output is
        as near to that of all runs as to that of this one."""
        for model, before in self._totals.items():
            usage = totals.get(model, {})
            if any(usage.get(name, 0) < number for name, number in before.items()):
                return False
        earlier, output = _output(self._totals), _output(totals)
        of_run = (self._output, self._output_since_compaction)
        of_session = min(abs(output - earlier - number) for number in of_run)
        return of_session <= min(abs(output - number) for number in of_run)


def _model_totals(metrics: dict[str, Any]) -> ModelTotals:
    usages = {model: as_dict(as_dict(metric).get("usage")) for model, metric in metrics.items()}
    return {
        model: dict.fromkeys(rules.TOKENS, 0) | token_counts(usage, rules.TOKENS)
        for model, usage in usages.items()
        if usage
    }


def _output(totals: ModelTotals) -> int:
    return sum(usage[OUTPUT] for usage in totals.values())


class Interactions:
    """The interactions that are being worked on, to find the prompts that the program adds."""

    def __init__(self) -> None:
        self._current: dict[str | None, str] = {}  # by the call that started a subagent
        self._has_start = False

    def is_addition(self, kind: str, caller: str | None, data: EventData) -> bool:
        """Whether the program added a prompt to the current interaction, or to one whose start is
        not in the log."""
        self._has_start |= kind == "session.start"
        interaction = as_text(data.interaction_id)
        if interaction is None or kind not in (rules.PROMPT, "assistant.message"):
            return False
        before, self._current[caller] = self._current.get(caller), interaction
        if kind != rules.PROMPT or records.message_source(data.source) != "event":
            return False
        return before == interaction or (before is None and not self._has_start)


class OpeningPrompts:
    """The prompts of subagents that have started and done nothing yet.

    The user.message of such a prompt names no subagent: it is that of the call, and comes after
    subagent.started, which may be after the end of the call (1.0.82).
    """

    def __init__(self) -> None:
        self._given: dict[str, str] = {}  # by call
        self._waiting: dict[str, str] = {}

    def caller(self, kind: str, caller: str | None, data: EventData) -> str | None:
        """The call whose subagent an event belongs to."""
        call_id = as_text(data.tool_call_id) or ""
        if kind == "tool.execution_start" and (prompt := data.given_prompt):
            self._given[call_id] = prompt.strip()
        elif kind == "subagent.started" and call_id in self._given:
            self._waiting[call_id] = self._given.pop(call_id)
        elif kind == rules.PROMPT and caller is None and self._waiting:
            text = (as_text(parse_json(data.content)) or "").strip()
            caller = next((call for call, prompt in self._waiting.items() if prompt == text), None)
        if caller is not None and kind != "subagent.started":
            self._waiting.pop(caller, None)
        return caller


@dataclass(slots=True)
class CopilotLog:
    file: SourceFile
    turns: range  # the numbers of its copies
    session_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    first_at: int = 0
    last_at: int = 0
    last_turn: int | None = None
    subagents: dict[str, int] = field(default_factory=dict)  # the last turn of each, by call
    event_hashes: set[str] = field(default_factory=set)  # of a document


class LoggedEvent(NamedTuple):
    """An event while it is read. Its name is a number of `CopilotCopies.names`."""

    line: SourceLine
    kind: str
    name: int
    data: EventData
    at: int


class LogReader:
    """Reads the events of one file in order and adds its turns to the copies."""

    def __init__(self, material: Material, file: SourceFile, copies: CopilotCopies) -> None:
        self.log = CopilotLog(file, range(len(copies), len(copies)))
        self._material = material
        self._copies = copies
        self._is_document = file.kind == "document"
        self._model: str | None = None
        self._cwd: str | None = None
        self._waiting: list[int] = []  # entries for the next turn
        self._calls = LastByName()  # by call, its turn
        self._call_entries = LastByName()
        self._callers: dict[str, str] = {}  # by subagent, the call that started it
        self._openings = OpeningPrompts()
        self._interactions = Interactions()
        self._times_named = array("I")  # by name of an event, how often it occurred
        self._totals = RunTotals()

    def read_lines(self) -> CopilotLog:
        for line in self._material.lines(self.log.file):
            kind = self._read(line)
            if kind is not None:
                self._material.count(kind, "derived" if kind in rules.USED else "unmapped")
        return self._finished()

    def read_document(self, document: dict[str, Any]) -> CopilotLog:
        """Read a document as the events that it amounts to."""
        for number, entry in enumerate(records.document_entries(document)):
            if entry.kind != "session":
                self._material.count(entry.kind, "derived" if entry.events else "unmapped")
            for event in entry.events:
                self.log.event_hashes.add(digest(event).hex())
                self._read(SourceLine(self.log.file, 0, len(event), number, event))
        return self._finished()

    def _finished(self) -> CopilotLog:
        self.log.turns = range(self.log.turns.start, len(self._copies))
        return self.log

    def _read(self, line: SourceLine) -> str | None:
        """Take one event and return its kind; None if the line is not an event."""
        decoded = decode_line(self._material, line, records.decode_event_and_data)
        if decoded is None:
            return None
        event, data = decoded
        log = self.log
        if not log.session_id:
            session_id = as_text(data.session_id) if event.type == "session.start" else None
            log.session_id = session_id or _session_id(log.file, line.data or b"")
        kind = intern(event.type) if isinstance(event.type, str) else "(none)"
        at = self._material.timestamp(event.timestamp, line)
        log.first_at = log.first_at or at
        log.last_at = max(log.last_at, at)
        if kind in rules.USED:
            name = self._name(event)
            caller = self._openings.caller(kind, self._caller(kind, event, data), data)
            is_addition = self._interactions.is_addition(kind, caller, data)
            logged = LoggedEvent(line, rules.ADDED_PROMPT if is_addition else kind, name, data, at)
            if caller is None or kind in rules.RUNS:
                self._take(logged)
            else:
                self._take_of_subagent(caller, logged)
        return kind

    def _name(self, event: CopilotEvent) -> int:
        """The number of an event's id; one that repeats is numbered."""
        event_id = as_text(event.id) or ""
        if not UUID.fullmatch(event_id):
            # Ids that are no UUIDs are unique in their session only.
            event_id = f"{rules.NAME}:{self.log.session_id}:{event_id}"
        names = self._copies.names
        name = names.add(event_id)
        if name >= len(self._times_named):
            self._times_named.frombytes(bytes(4 * (len(names) - len(self._times_named))))
        self._times_named[name] += 1
        times = self._times_named[name]
        return name if times == 1 else names.add(f"{event_id}:{times}")

    def _caller(self, kind: str, event: CopilotEvent, data: EventData) -> str | None:
        """The call that started the subagent of an event; if it is unknown, the subagent's id."""
        subagent, caller = as_text(event.agent_id), as_text(data.parent_tool_call_id)
        if not subagent or kind != "subagent.started":
            return self._callers.get(subagent or "") or caller or subagent
        call_id = as_text(data.tool_call_id)
        if call_id:
            self._callers[subagent] = call_id
        # The start of a subagent belongs to the agent that started it.
        return caller

    def _take(self, event: LoggedEvent) -> None:
        kind, data = event.kind, event.data
        self._describe(kind, data)
        if kind in rules.RUNS:
            # session.shutdown reports since one of the two; a crashed run has no shutdown.
            self._totals.start_run(is_new=kind == "session.start")
        elif kind == rules.PROMPT:
            turn = self.log.last_turn
            if turn is None or self._copies[turn].is_settled:
                turn = self._open(event.name)
            self._add(turn, event)
        elif kind == "session.compaction_complete":
            self._compaction(event)
        elif kind == "session.shutdown":
            self._add_totals(as_dict(data.model_metrics))
        elif kind in rules.CARRIED:
            self._carry(event)

    def _describe(self, kind: str, data: EventData) -> None:
        models = data.new_model, data.chosen_model, data.selected_model
        self._model = next(filter(None, map(as_text, models)), self._model)
        if kind in rules.RUNS:
            metadata, context = self.log.metadata, as_dict(data.context)
            for name, theirs in rules.CONTEXT_FIELDS.items():
                if as_text(context.get(theirs)):
                    # The first folder and branch count: a resumed session may be elsewhere.
                    metadata.setdefault(name, context[theirs])
            self._cwd = metadata.get("cwd")
            if as_text(data.copilot_version):
                metadata.setdefault("version", data.copilot_version)

    # -- turns --------------------------------------------------------------------------------

    def _open(self, name: int, *, is_compaction: bool = False) -> int:
        copies, last = self._copies, self.log.last_turn
        parent = copies.read(last) if last is not None else None
        copy = self._copy_below(name, parent, self._model)
        copy.is_compaction = copy.answered = is_compaction
        turn = self.log.last_turn = copies.going_on = copies.add(copy)
        if not is_compaction:
            for entry in self._waiting:
                copies.entries.give(entry, turn)
            self._waiting.clear()
        return turn

    def _copy_below(
        self, name: int, parent: CopilotTurnCopy | None, model: str | None
    ) -> CopilotTurnCopy:
        file_id, above = self.log.file.id, parent.name if parent else None
        depth = parent.depth + 1 if parent else 1
        return CopilotTurnCopy(file_id, False, name, above, model, self._cwd, depth=depth)

    def _add(self, turn: int | None, event: LoggedEvent, kind: str | None = None) -> int:
        """Add an event to a turn, or to none yet, and return its entry."""
        if turn is not None and (copy := self._copies[turn]).subagent is not None:
            copy.first_at = copy.first_at or event.at
            copy.last_at = max(copy.last_at, event.at)
        kind = kind or event.kind
        return self._copies.add_event(
            turn, kind, event.name, event.line, in_document=self._is_document
        )

    def _carry(self, event: LoggedEvent) -> None:
        """Add an event to the turn of its call, to the open one, or to the next."""
        call_id = as_text(event.data.tool_call_id)
        turn = self._calls.get(call_id)
        turn = self.log.last_turn if turn is None else turn
        # After a compaction the agent continues without a prompt: its next answer opens a turn.
        if turn is None or self._copies[turn].is_compaction:
            if event.kind not in rules.ANSWERS:
                self._waiting.append(self._add(None, event))
                return
            turn = self._open(event.name)
        if event.kind == "subagent.started" and call_id:
            self._copies[turn].spawned[call_id] = self._subagent_label(call_id)
        self._act(turn, event, default_model=self._model)

    def _act(self, turn: int, event: LoggedEvent, *, default_model: str | None) -> None:
        """Add what an agent or a subagent did."""
        kind, data, copy = event.kind, event.data, self._copies[turn]
        # The model of subagent.started is that of the subagent.
        model = as_text(data.model) if kind != "subagent.started" else None
        copy.model = model or copy.model or default_model
        copy.add_outcome(kind, data.error_type)
        entry = self._add(turn, event)
        tokens = as_number(data.output_tokens)
        if kind == "assistant.message" and tokens is not None:
            copy.add_tokens({"output_tokens": tokens, "total_tokens": tokens})
            self._totals.add_message(tokens)
            copy.reports = self._totals.reports
        call_id = as_text(data.tool_call_id)
        if kind == "tool.execution_start" and call_id:
            self._calls[call_id], self._call_entries[call_id] = turn, entry

    def _compaction(self, event: LoggedEvent) -> None:
        # A compaction that failed replaced nothing.
        if event.data.success is False:
            return
        self._totals.add_compaction()
        if self.log.last_turn is None:
            self._waiting.append(self._add(None, event, "system.notification"))
        else:
            self._add(self._open(event.name, is_compaction=True), event, rules.COMPACTION)

    def _add_totals(self, metrics: dict[str, Any]) -> None:
        """Add to the last turn of a run what its messages did not report."""
        is_complete = self._totals.is_complete
        tokens = self._totals.read(metrics)
        if self.log.last_turn is not None:
            copy = self._copies[self.log.last_turn]
            copy.add_tokens(tokens)
            # The first totals of a log without its beginning may include tokens from before.
            copy.is_estimate = copy.is_estimate or (bool(tokens) and not is_complete)
            copy.reports = self._totals.reports

    # -- subagents: sessions of their own, in the file of their parent ------------------------

    def _subagent_label(self, call_id: str) -> str:
        return f"{rules.NAME}:{self.log.session_id}:{call_id}"

    def _take_of_subagent(self, call_id: str, event: LoggedEvent) -> None:
        turn = self.log.subagents.get(call_id)
        if turn is None:
            turn = self._open_first(call_id)
        elif event.kind == rules.PROMPT and self._copies[turn].is_settled:
            turn = self._open_next(turn, event.name)
        self.log.subagents[call_id] = turn
        if event.kind == rules.PROMPT or event.kind in rules.CARRIED:
            self._act(turn, event, default_model=None)

    def _open_first(self, call_id: str) -> int:
        label, caller = self._subagent_label(call_id), self._calls.get(call_id)
        caller = self.log.last_turn if caller is None else caller
        if caller is not None:
            self._copies[caller].spawned[call_id] = label
        name = self._copies.names.add(label)
        copy = self._copy_below(name, None, None)
        copy.subagent, copy.start = call_id, self._call_entries.get(call_id)
        return self._copies.add(copy)

    def _open_next(self, turn: int, name: int) -> int:
        before = self._copies.read(turn)
        copy = self._copy_below(name, before, before.model)
        copy.subagent, copy.first_at = before.subagent, before.first_at
        return self._copies.add(copy)


def _session_id(file: SourceFile, first_line: bytes) -> str:
    """The id of a session whose start is not in the log: from its folder or file name."""
    path = Path(file.path)
    name = path.parent.name if path.name == "events.jsonl" else path.stem
    return name if UUID.fullmatch(name) else hashlib.blake2b(first_line, digest_size=8).hexdigest()
