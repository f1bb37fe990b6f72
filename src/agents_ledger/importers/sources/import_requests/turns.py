"""Import requests: the turns of one session."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, structs

from agents_ledger.importers.port.material import fingerprint
from agents_ledger.importers.sources.import_requests.merge import MergedSession
from agents_ledger.importers.sources.import_requests.records import (
    ImportKey,
    decoded,
    encoded,
    status_word,
    whole,
)
from agents_ledger.importers.sources.import_requests.rules import ROOT, STATUSES, VERSION
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, json_or_none
from agents_ledger.importers.transcript.turn_tree import TurnTree, parents_first
from agents_ledger.model.imports.requests import ImportMessage, ImportToolCall, ImportTurn
from agents_ledger.model.imports.sources import DerivedTurn
from agents_ledger.model.turns import CallStatus, MessageSource, Turn, Usage, to_json

ImportStep = ImportMessage | ImportToolCall


class RequestTurns:
    def __init__(
        self,
        key: ImportKey,
        merged: MergedSession,
        file_ids: frozenset[int],
        spawned: dict[str, str],
    ) -> None:
        """`spawned`: by call, the label of the session it started."""
        self.key = key
        self.merged = merged
        self.file_ids = file_ids
        self.spawned = spawned
        turns = merged.turns
        self.parents: dict[str, str | None] = {
            turn_id: parent if parent in turns else None
            for turn_id, parent in merged.parents.items()
        }
        self.steps: dict[str, list[ImportStep]] = {turn_id: [] for turn_id in turns}
        for message_id, turn_id in merged.turn_of_message.items():
            self.steps[turn_id].append(merged.messages[message_id])
        for call_id, turn_id in merged.turn_of_call.items():
            self.steps[turn_id].append(merged.calls[call_id])
        followed = {parent for parent in self.parents.values() if parent}
        self.answered = {turn_id for turn_id in turns if self._is_answered(turn_id)}
        self.pending = set(turns) - self.answered - followed

    def _is_answered(self, turn_id: str) -> bool:
        steps = self.steps[turn_id]
        if any(isinstance(step, ImportToolCall) or step.role == "assistant" for step in steps):
            return True
        return not steps and self.merged.turns[turn_id].completed_at_ms is not None

    def head(self) -> str | None:
        """The latest answered turn at the end of a branch, preferably one of the last item."""
        tree, numbers = TurnTree(), dict[str, int]()
        followed: set[int | None] = set()  # answered turns with an answered turn below them
        for turn_id in parents_first(self.parents):
            parent = numbers.get(self.parents[turn_id] or "")
            numbers[turn_id] = tree.add(parent, settled=turn_id in self.answered)
            if turn_id in self.answered:
                followed.add(tree.nearest_settled(parent))
        order = list(self.parents)
        ends = [t for t in order if t in self.answered and numbers[t] not in followed]
        if not ends:
            return None
        best = max(ends, key=lambda t: (t in self.merged.latest, self._time(t), order.index(t)))
        return self.key.id_of("turn", best)

    def _time(self, turn_id: str) -> int:
        turn = self.merged.turns[turn_id]
        is_completed = turn.completed_at_ms is not None
        return whole(turn.completed_at_ms if is_completed else turn.started_at_ms)

    def turns(self) -> Iterator[DerivedTurn]:
        for turn_id in parents_first(self.parents):
            yield self._derived(turn_id)

    def _turn_id(self, turn_id: str | None) -> str | None:
        return None if turn_id is None else self.key.id_of("turn", turn_id)

    def _derived(self, turn_id: str) -> DerivedTurn:
        turn, steps = self.merged.turns[turn_id], _ordered(self.steps[turn_id])
        call_ids = [step.source_tool_call_id for step in steps if isinstance(step, ImportToolCall)]
        spawned = {call: self.spawned[call] for call in call_ids if call in self.spawned}
        latest = self.merged.latest
        is_in_latest = turn_id in latest
        gone = [_id(step) for step in steps if is_in_latest and _id(step) not in latest]
        evidence = encoded([turn, steps, spawned, gone, turn_id in self.pending])
        return DerivedTurn(
            self.key.id_of("turn", turn_id),
            self._turn_id(self.parents[turn_id]),
            fingerprint(VERSION, [evidence]),
            self.file_ids,
            tuple(
                self.key.id_of("message", step.source_message_id)
                for step in steps
                if isinstance(step, ImportMessage)
            ),
            partial(self._build, turn, steps, spawned, set(gone)),
        )

    # -- content ------------------------------------------------------------------------------

    def _build(
        self, turn: ImportTurn, steps: list[ImportStep], spawned: dict[str, str], gone: set[str]
    ) -> Turn:
        turn_id = turn.source_turn_id
        builder = TurnBuilder(self.key.id_of("turn", turn_id), self._turn_id(self.parents[turn_id]))
        for step in steps:
            if isinstance(step, ImportMessage):
                self._add_message(builder, step, step.source_message_id in gone)
            else:
                self._add_call(builder, step, spawned.get(step.source_tool_call_id))
        built = builder.build(status="pending" if turn_id in self.pending else "completed")
        return self._with_fields(turn, built)

    def _with_fields(self, turn: ImportTurn, built: Turn) -> Turn:
        """The turn with the fields of its item, which override what its steps amount to."""
        session = self.merged.session
        usage = Usage(
            *(
                None if (tokens := getattr(turn, name)) is None else whole(tokens)
                for name in Usage.__struct_fields__
            )
        )
        ended = whole(turn.completed_at_ms) or built.completed_at
        metadata = None if turn.source_turn_id == ROOT else turn.metadata
        messages = {message.id: message for message in built.messages}
        query = [self.key.id_of("message", m) for m in turn.query_message_source_ids or ()]
        query = [message_id for message_id in dict.fromkeys(query) if message_id in messages]
        response = self.key.id_of("message", turn.response_message_source_id or "")
        has_response = response in messages and messages[response].role == "assistant"
        return structs.replace(
            built,
            started_at=whole(turn.started_at_ms) or built.started_at,
            completed_at=None if built.status == "pending" else ended,
            model=turn.model or session.model,
            provider=turn.provider or session.provider,
            query_message_ids=to_json(query) if query else built.query_message_ids,
            response_message_id=response if has_response else built.response_message_id,
            source_event_id=turn.source_turn_id,
            workspace_path=session.workspace_path,
            effective_config_json=json_or_none(metadata),
            **{**structs.asdict(usage), "total_tokens": usage.total},
        )

    def _add_message(self, builder: TurnBuilder, message: ImportMessage, is_gone: bool) -> None:
        metadata = _object(message.metadata_json)
        metadata |= {
            "import_source": self.key.source,
            "import_provider": self.key.provider,
            "import_session_id": self.key.session_id,
            "source_message_id": message.source_message_id,
        }
        if is_gone:
            metadata["import_gone"] = True  # the source no longer has it
        asked_by: MessageSource = "agent" if self.merged.session.is_subagent else "human"
        builder.message(
            self.key.id_of("message", message.source_message_id),
            message.role,
            message.content,
            at=whole(message.created_at_ms),
            least_sequence=whole(message.sequence),
            source=asked_by if message.role == "user" else None,
            thinking=message.thinking,
            context=_json(message.context_json),
            metadata=metadata,
        )

    def _add_call(self, builder: TurnBuilder, call: ImportToolCall, spawned: str | None) -> None:
        call_id = call.source_tool_call_id  # rows of calls are unique within their turn
        message_id = call.source_message_id
        builder.call(
            call_id,
            call.tool_name or "unknown",
            _json(call.params_json),
            at=whole(call.started_at_ms),
            least_sequence=whole(call.sequence),
            message_id=self.key.id_of("message", message_id) if message_id else None,
            tool_number=None if call.tool_number is None else whole(call.tool_number),
        )
        result = _json(call.result_json)
        builder.result(
            call_id,
            None if result is None else Raw(result.encode("utf-8", "surrogatepass")),
            at=whole(call.completed_at_ms),
            status=_status(call),
            error=call.error,
            source_status=call.status,
            spawned=spawned,
        )


def _id(step: ImportStep) -> str:
    return step.source_message_id if isinstance(step, ImportMessage) else step.source_tool_call_id


def _ordered(steps: list[ImportStep]) -> list[ImportStep]:
    """By sequence; a call never before its message."""
    sequence_of = {
        step.source_message_id: whole(step.sequence)
        for step in steps
        if isinstance(step, ImportMessage)
    }

    def position(step: ImportStep) -> tuple[int, int, int]:
        sequence = whole(step.sequence)
        if isinstance(step, ImportMessage):
            return sequence, 0, 0
        return max(sequence, sequence_of.get(step.source_message_id or "", 0)), 1, sequence

    return sorted(steps, key=position)


def _status(call: ImportToolCall) -> CallStatus:
    """Our status of a call; if the source's is unknown, by its error and result."""
    status = STATUSES.get(status_word(call))
    if status is not None:
        return status
    if call.error:
        return "failed"
    return "completed" if call.result_json is not None else "pending"


def _json(value: Any) -> str | None:
    """The JSON of a value, which may be JSON text already."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return encoded(value).decode()
        return value
    return encoded(value).decode()


def _object(value: Any) -> dict[str, Any]:
    text = _json(value)
    if text is None:
        return {}
    metadata = decoded(text.encode("utf-8", "surrogatepass"))
    return metadata if isinstance(metadata, dict) else {"_raw": metadata}
