"""Cline: the content of one turn: from a timeline, from a history alone, or from a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_list,
    as_number,
    as_text,
    parse_json,
    without_data,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.cline import records, rules
from agents_ledger.importers.transcript.field_maps import token_counts
from agents_ledger.importers.transcript.message_log import LogMessage
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.turns import MessageFile, MessageSource

# Blocks that become text, thinking, calls, results or attached files.
MAPPED_BLOCKS = ("file", "text", "thinking", "tool_result", "tool_use")


def _add_result(builder: TurnBuilder, call_id: str, result: Any, at: int, *, failed: bool) -> None:
    error = as_text(result) or "\n".join(records.texts(result)) or "failed"
    builder.result(
        call_id,
        without_data(result),
        at=at,
        status="failed" if failed else "completed",
        error=error if failed else None,
    )


def _set_compaction(builder: TurnBuilder, summary: str, before: Any, after: Any = None) -> None:
    if builder.parent_id is not None:
        builder.compaction = Compaction(
            summary,
            builder.parent_id,
            tokens_before=as_number(before),
            tokens_after=as_number(after),
        )


# -- a history alone --------------------------------------------------------------------------


def add_history(builder: TurnBuilder, messages: Sequence[LogMessage]) -> None:
    """Add the messages of a task that has no timeline."""
    members = [(message.id, message.record) for message in messages]
    for number, (message_id, message) in enumerate(members):
        at = milliseconds(message.get("ts"))
        content = message.get("content")
        if message.get("role") == "user":
            _add_history_input(builder, message_id, content, at)
            continue
        thoughts = (
            b.get("thinking") for b in records.blocks(content) if b.get("type") == "thinking"
        )
        _add_history_usage(builder, message)
        builder.message(
            message_id,
            "assistant",
            "\n\n".join(records.texts(content) + _talk(content)),
            at=at,
            thinking="\n\n".join(t for t in thoughts if isinstance(t, str)) or None,
        )
        next_message = members[number + 1][1] if number + 1 < len(members) else None
        for position, call in enumerate(records.history_calls(message, next_message)):
            call_id = call.id or f"{message_id}:{position}"
            builder.call(call_id, call.name, call.params, at=at, message_id=message_id)
            if call.result is not None:
                _add_result(builder, call_id, call.result, at, failed=call.failed)


def _talk(content: Any) -> list[str]:
    """What the agent told the person by calling a tool."""
    params = [
        as_dict(b.get("input"))
        for b in records.blocks(content)
        if b.get("name") in rules.TALKING_TOOLS
    ]
    return [text for p in params for name in rules.TALKING_FIELDS if (text := as_text(p.get(name)))]


def _add_history_usage(builder: TurnBuilder, message: dict[str, Any]) -> None:
    _set_model(builder, message, "modelId", "providerId")
    usage = as_dict(as_dict(message.get("metrics")).get("tokens"))
    tokens = token_counts(usage, rules.HISTORY_TOKENS)
    if tokens:
        builder.add_tokens(**tokens, total_tokens=sum(tokens.values()))


def _set_model(builder: TurnBuilder, record: dict[str, Any], model: str, provider: str) -> None:
    info = as_dict(record.get("modelInfo"))
    builder.model = as_text(info.get(model)) or builder.model
    builder.provider = as_text(info.get(provider)) or builder.provider


def _add_history_input(builder: TurnBuilder, message_id: str, content: Any, at: int) -> None:
    human = [match[1] for text in records.texts(content) for match in rules.HUMAN.findall(text)]
    if not human and builder.answered:  # results, which are added with their calls
        builder.ended_at = max(builder.ended_at, at)
        return
    other_blocks = [
        without_data(b)
        for b in records.blocks(content)
        if b.get("type") not in ("text", "tool_result")
    ]
    builder.message(
        message_id,
        "user",
        "\n\n".join(human or records.texts(content)),
        at=at,
        source="human",
        metadata={"blocks": other_blocks} if other_blocks else None,
        context={"sent": records.texts(content)} if human else None,
    )


# -- a timeline -------------------------------------------------------------------------------


class ClineTimelineTurn:
    """Builds a turn of a timeline, with what the history says of its calls."""

    def __init__(self, builder: TurnBuilder, calls: dict[str, records.ClineCall]) -> None:
        self.builder = builder
        self.calls = calls
        self.open_call: str | None = None  # the call that the next output belongs to
        self.output: list[str] = []

    def add(self, messages: Sequence[LogMessage]) -> None:
        for number, message in enumerate(messages):
            message_id, kind, entry = message.id, message.kind, message.record
            at = milliseconds(entry.get("ts"))
            name = as_text(entry.get("say")) or as_text(entry.get("ask")) or ""
            _set_model(self.builder, entry, "modelId", "providerId")
            if kind == "prompt":
                self._add_prompt(message_id, entry, at)
            elif kind == "compaction":
                self._add_compaction(message_id, entry, at)
            elif kind in ("notice", "failure"):
                self._add_notice(message_id, name, entry, at)
                if kind == "failure" and not self.builder.answered:
                    text = as_text(entry.get("text"))
                    error = records.cancel_reason(text) or text or "error"
                    self.builder.failed, self.builder.error = True, error
            else:
                is_last = number == len(messages) - 1
                is_done = not entry.get("partial") and ("say" in entry or not is_last)
                self._add_reply(message_id, name, entry, at, is_done=is_done)

    def _add_prompt(self, message_id: str, entry: dict[str, Any], at: int) -> None:
        metadata = {name: entry[name] for name in ("images", "files") if entry.get(name)}
        if metadata.get("images"):
            metadata["images"] = [str(image)[:64] for image in as_list(metadata["images"])]
        text = as_text(entry.get("text"))
        self.builder.failed, self.builder.error = False, None
        self.builder.message(message_id, "user", text, at=at, source="human", metadata=metadata)

    def _add_compaction(self, message_id: str, entry: dict[str, Any], at: int) -> None:
        fields = as_dict(entry.get("contextCondense")) or as_dict(
            parse_json(str(entry.get("text")))
        )
        summary = as_text(fields.get("summary")) or as_text(entry.get("text")) or ""
        self.builder.message(message_id, "system", summary, at=at, source="event")
        before, after = fields.get("prevContextTokens"), fields.get("newContextTokens")
        _set_compaction(self.builder, summary, before, after)

    def _add_notice(self, message_id: str, name: str, entry: dict[str, Any], at: int) -> None:
        if name == "api_req_started":
            self._add_usage(as_dict(parse_json(str(entry.get("text")))))
            return
        text = as_text(entry.get("text"))
        self.builder.message(
            message_id, "system", text, at=at, source="event", metadata={"type": name}
        )

    def _add_usage(self, usage: dict[str, Any]) -> None:
        tokens = token_counts(usage, rules.TIMELINE_TOKENS)
        counted = ["input_tokens", "output_tokens"]
        if usage.get("apiProtocol") != "openai":
            counted += ["cached_input_tokens", "cache_write_tokens"]
        if tokens:
            total = sum(tokens.get(column, 0) for column in counted)
            self.builder.add_tokens(**tokens, total_tokens=total)

    def _add_reply(
        self, message_id: str, name: str, entry: dict[str, Any], at: int, *, is_done: bool
    ) -> None:
        self.builder.failed, self.builder.error = False, None
        text = as_text(entry.get("text"))
        metadata = {"partial": True} if entry.get("partial") else {}
        if name == "reasoning":
            self.builder.message(
                message_id, "assistant", None, at=at, thinking=text, metadata=metadata
            )
        elif name in rules.CALL_ENTRIES:
            self._add_call(message_id, name, text or "", at, is_done=is_done)
        elif name in rules.OUTPUT_ENTRIES:
            self._add_output(text or "", at)
        else:
            fields = as_dict(parse_json(text or ""))
            words = as_text(fields.get("question")) or as_text(fields.get("response"))
            self.builder.message(
                message_id, "assistant", words or text, at=at, metadata={"type": name, **metadata}
            )

    def _add_call(self, message_id: str, name: str, text: str, at: int, *, is_done: bool) -> None:
        fields = as_dict(parse_json(text))
        self.open_call, self.output = message_id, []
        call = self.calls.get(message_id)
        if call is not None:
            self.builder.call(message_id, call.name, call.params, at=at)
            if call.result is not None:
                _add_result(self.builder, message_id, call.result, at, failed=call.failed)
        elif name == "command":
            self.builder.call(message_id, "execute_command", {"command": text}, at=at)
        elif name == "use_mcp_server":
            params = {"server": fields.get("serverName"), "arguments": fields.get("arguments")}
            self.builder.call(message_id, as_text(fields.get("toolName")) or name, params, at=at)
        else:
            self._add_editor_call(message_id, fields, text, at)
        if is_done and (call is None or call.result is None):
            result = (
                fields.get("content") if fields.get("tool") in rules.RESULT_IN_CONTENT else None
            )
            self.builder.result(message_id, result, at=at)

    def _add_editor_call(self, message_id: str, fields: dict[str, Any], text: str, at: int) -> None:
        tool = as_text(fields.get("tool")) or "unknown"
        dropped = ("tool", "content") if tool in rules.RESULT_IN_CONTENT else ("tool",)
        params = {name: value for name, value in fields.items() if name not in dropped}
        self.builder.call(message_id, tool, params or {"text": text}, at=at)
        # Files belong to messages: here to the last one of the agent.
        files = rules.TASK_FILE_TOOLS.files(tool, fields)
        self.builder.add_files(self.builder.last_message_id, files, call_id=message_id)

    def _add_output(self, text: str, at: int) -> None:
        call = self.calls.get(self.open_call or "")
        if self.open_call is None or (call is not None and call.result is not None):
            return
        if text:
            self.output.append(text)
        self.builder.result(self.open_call, "\n".join(self.output), at=at)


# -- a session --------------------------------------------------------------------------------


class ClineTurnContext(NamedTuple):
    """What is known of a session's turn besides its messages."""

    asked_by: MessageSource
    workspace: str | None
    spawned: Mapping[str, str]  # call -> label of the agent's session
    unmetered: frozenset[str]  # messages whose tokens are counted elsewhere

    def evidence(self) -> bytes:
        fields = (*self[:2], sorted(self.spawned.items()), sorted(self.unmetered))
        return repr(fields).encode("utf-8", "replace")


class ClineSessionTurn:
    def __init__(self, builder: TurnBuilder, context: ClineTurnContext) -> None:
        self.builder = builder
        self.builder.workspace_path = context.workspace
        self.context = context
        self.calls: dict[str, str] = {}  # their id -> ours: some providers give one twice

    def add(self, messages: Sequence[LogMessage]) -> None:
        members = [(message.id, message.kind, message.record) for message in messages]
        times = (milliseconds(message.get("ts")) for _, _, message in members)
        at = next(filter(None, times), 0)
        for message_id, kind, message in members:
            at = milliseconds(message.get("ts")) or at
            if kind == "compaction":
                self._add_compaction(message_id, message, at)
            elif kind in ("notice", "failure"):
                self._add_notice(message_id, message, at, failed=kind == "failure")
            elif message.get("role") == "assistant":
                self._add_reply(message_id, message, at)
            else:
                self._add_input(message_id, message, at)

    def _add_notice(
        self, message_id: str, message: dict[str, Any], at: int, *, failed: bool
    ) -> None:
        text = "\n\n".join(
            records.words_of(text).text for text in records.texts(message.get("content"))
        )
        metadata = as_dict(message.get("metadata"))
        kind = as_text(metadata.get("kind")) or as_text(metadata.get("displayRole")) or "client"
        self.builder.message(
            message_id, "system", text, at=at, source="event", metadata={"type": kind}
        )
        if failed and not self.builder.answered:
            self.builder.failed, self.builder.error = True, text or "error"

    def _add_compaction(self, message_id: str, message: dict[str, Any], at: int) -> None:
        metadata = as_dict(message.get("metadata"))
        summary = as_text(metadata.get("summary")) or "\n\n".join(
            records.texts(message.get("content"))
        )
        self.builder.message(message_id, "system", summary, at=at, source="event")
        _set_compaction(self.builder, summary, metadata.get("tokensBefore"))

    def _add_input(self, message_id: str, message: dict[str, Any], at: int) -> None:
        content = message.get("content")
        for block in records.blocks(content):
            if block.get("type") == "tool_result":
                failed = bool(block.get("is_error"))
                self._add_result(str(block.get("tool_use_id")), block.get("content"), at, failed)
        texts = records.human_words(content)
        other_blocks = _unmapped_blocks(content)
        attached = [block for block in records.blocks(content) if block.get("type") == "file"]
        if not (texts or other_blocks or attached):
            self.builder.ended_at = max(self.builder.ended_at, at)
            return
        modes = [text.mode for text in texts if text.mode]
        metadata = {"blocks": other_blocks, "mode": modes[0] if modes else None}
        paths = [path for block in attached if (path := as_text(block.get("path")))]
        self.builder.message(
            message_id,
            "user",
            "\n\n".join(text.text for text in texts),
            at=at,
            source=self.context.asked_by,
            metadata={name: value for name, value in metadata.items() if value},
            context={"files": attached} if attached else None,
            files=[MessageFile("attached", path) for path in paths],
        )

    def _add_reply(self, message_id: str, message: dict[str, Any], at: int) -> None:
        self.builder.failed, self.builder.error = False, None
        content = message.get("content")
        thoughts = (as_text(block.get("thinking")) for block in records.blocks(content))
        metrics = as_dict(message.get("metrics"))
        _set_model(self.builder, message, "id", "provider")
        if message_id not in self.context.unmetered:
            self._add_usage(metrics)
        metadata = {"blocks": _unmapped_blocks(content), "cost": metrics.get("cost")}
        self.builder.message(
            message_id,
            "assistant",
            "\n\n".join(records.texts(content)),
            at=at,
            thinking="\n\n".join(filter(None, thoughts)) or None,
            metadata={name: value for name, value in metadata.items() if value},
        )
        # Tools that the provider ran, with their results.
        activities = as_list(as_dict(message.get("metadata")).get("modelToolActivities"))
        for activity in map(as_dict, activities):
            call_id = str(activity.get("toolCallId"))
            self._add_call(message_id, call_id, activity.get("toolName"), activity.get("input"), at)
            if "output" in activity or "isError" in activity:
                failed = bool(activity.get("isError"))
                self._add_result(call_id, activity.get("output"), at, failed)
        for block in records.blocks(content):
            if block.get("type") == "tool_use":
                call_id = str(block.get("id"))
                self._add_call(message_id, call_id, block.get("name"), block.get("input"), at)

    def _add_usage(self, metrics: dict[str, Any]) -> None:
        tokens = token_counts(metrics, rules.SESSION_TOKENS)
        if tokens:
            total = tokens.get("input_tokens", 0) + tokens.get("output_tokens", 0)
            self.builder.add_tokens(**tokens, total_tokens=total)

    def _add_call(self, message_id: str, own_id: str, name: Any, params: Any, at: int) -> None:
        call_id = own_id if own_id not in self.calls else f"{own_id}:{message_id}"
        self.calls[own_id] = call_id
        tool = as_text(name) or "unknown"
        child = self.context.spawned.get(own_id)
        self.builder.call(
            call_id, tool, without_data(params), at=at, message_id=message_id, spawned=child
        )
        if tool in rules.SESSION_FILE_TOOLS:
            files = [MessageFile(rules.SESSION_FILE_TOOLS[tool], path) for path in _paths(params)]
            self.builder.add_files(message_id, files, call_id=call_id)

    def _add_result(self, own_id: str, content: Any, at: int, failed: bool) -> None:
        _add_result(self.builder, self.calls.get(own_id, own_id), content, at, failed=failed)


def _unmapped_blocks(content: Any) -> list[Any]:
    return [without_data(b) for b in records.blocks(content) if b.get("type") not in MAPPED_BLOCKS]


def _paths(params: Any, depth: int = 3) -> list[str]:
    """The paths in the parameters of a call, in any of the forms that the tools accept."""
    if isinstance(params, str):
        return [params] if params else []
    if isinstance(params, dict):
        params = [params[name] for name in rules.SESSION_PATHS if name in params]
    if not depth:
        return []
    return [path for item in as_list(params) for path in _paths(item, depth - 1)]
