"""Cline: the content of one turn, from the timeline or from what the model was sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from agents_ledger.importers.transcript.message_tree import PlannedTurn
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    as_dict,
    as_list,
    as_number,
    as_text,
    parsed,
    without_data,
)
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.turns import FileKind, MessageFile, Turn

Record = tuple[str, str, dict[str, Any]]  # message id, kind, what it says

XML_TOOLS = (
    "access_mcp_resource|apply_diff|ask_followup_question|attempt_completion|browser_action|"
    "codebase_search|execute_command|fetch_instructions|insert_content|list_code_definition_names|"
    "list_files|load_mcp_documentation|new_task|plan_mode_respond|read_file|replace_in_file|"
    "search_and_replace|search_files|switch_mode|update_todo_list|use_mcp_tool|web_fetch|"
    "write_to_file"
)
XML_CALL = re.compile(rf"<({XML_TOOLS})>(.*?)</\1>", re.DOTALL)
XML_PARAM = re.compile(r"<(\w+)>\n?(.*?)\n?</\1>", re.DOTALL)
TOLD = re.compile(r"\[(\w+)[^\n]*\] Result:\s*")
FAILED = ("Command failed with exit code ", "The tool execution failed ")
TALK = ("attempt_completion", "ask_followup_question", "plan_mode_respond")
SAID = ("question", "response", "result")  # in these
USED = {"prompt": "input_tokens", "completion": "output_tokens", "cached": "cached_input_tokens"}
HUMAN = re.compile(r"<(task|feedback|user_message|answer)>\n?(.*?)\n?</\1>", re.DOTALL)
FILES: dict[str, FileKind] = {
    "appliedDiff": "written",
    "editedExistingFile": "written",
    "newFileCreated": "written",
    "readFile": "read",
}
SHOWN = ("listFiles", "listFilesTopLevel", "listFilesRecursive", "searchFiles", "webFetch")


class Call(Struct):
    """What the history tells of a tool call."""

    id: str | None
    name: str
    params: Any
    result: Any = None
    failed: bool = False


# -- what the model was sent ------------------------------------------------------------------


def blocks(content: Any) -> list[dict[str, Any]]:
    """The blocks of a content; a text is one."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in as_list(content) if isinstance(block, dict)]


def texts(content: Any) -> list[str]:
    """The words of a content."""
    return [b["text"] for b in blocks(content) if isinstance(b.get("text"), str)]


def is_input(message: dict[str, Any]) -> bool:
    """Whether a human speaks in a message of the user's side."""
    if message.get("role") != "user":
        return False
    return any(HUMAN.search(text) for text in texts(message.get("content")))


def api_calls(answer: Any, after: Any) -> list[Call]:
    """The tool calls of an answer, with what the message after it says of them."""
    message = as_dict(answer)
    if message.get("role") != "assistant":
        return []
    calls = [
        Call(as_text(b.get("id")), as_text(b.get("name")) or "unknown", b.get("input") or {})
        for b in blocks(message.get("content"))
        if b.get("type") == "tool_use"
    ]
    results = blocks(as_dict(after).get("content"))
    for call in calls:
        for block in results:
            if block.get("type") == "tool_result" and block.get("tool_use_id") == call.id:
                call.result = without_data(block.get("content"))
                call.failed = bool(block.get("is_error"))
    calls = calls or _xml_calls(message)
    told = _told(as_dict(after).get("content"))
    if len(told) == len(calls):
        for call, (name, result) in zip(calls, told, strict=True):
            if call.result is None and name in call.name:  # subagents: use_subagents
                call.result, call.failed = result, result.startswith(FAILED)
    return [call for call in calls if call.name not in TALK]


def _xml_calls(message: dict[str, Any]) -> list[Call]:
    """Calls of older versions, which stand in the text."""
    return [
        Call(None, name, dict(XML_PARAM.findall(inner)))
        for text in texts(message.get("content"))
        for name, inner in XML_CALL.findall(text)
    ]


def _told(content: Any) -> list[tuple[str, str]]:
    """Results that stand in the text."""
    found: list[tuple[str, str]] = []
    for text in texts(content):
        start = TOLD.match(text)
        if start:
            found.append((start[1], text[start.end() :]))
        elif found and not text.startswith("<environment_details>"):
            found[-1] = (found[-1][0], f"{found[-1][1]}\n\n{text}".strip())
    return found


def build_api(turn: PlannedTurn, records: Sequence[Record], workspace: str | None) -> Turn:
    """A turn of a task that has no timeline."""
    builder = TurnBuilder(turn.id, turn.parent)
    builder.workspace_path = workspace
    for number, (message_id, _, said) in enumerate(records):
        at = milliseconds(said.get("ts"))
        content = said.get("content")
        if said.get("role") == "user":
            _api_input(builder, message_id, said, at)
            continue
        thoughts = [b.get("thinking") for b in blocks(content) if b.get("type") == "thinking"]
        _api_cost(builder, said)
        builder.message(
            message_id,
            "assistant",
            "\n\n".join(texts(content) + _talk(content)),
            at=at,
            thinking="\n\n".join(t for t in thoughts if isinstance(t, str)) or None,
        )
        after = records[number + 1][2] if number + 1 < len(records) else None
        for position, call in enumerate(api_calls(said, after)):
            _call(builder, call.id or f"{message_id}:{position}", call, at, message_id)
    return builder.build()


def _talk(content: Any) -> list[str]:
    """What was said to the human by calling a tool."""
    told = [as_dict(b.get("input")) for b in blocks(content) if b.get("name") in TALK]
    return [words for each in told for name in SAID if (words := as_text(each.get(name)))]


def _api_cost(builder: TurnBuilder, said: dict[str, Any]) -> None:
    model = as_dict(said.get("modelInfo"))
    builder.model = as_text(model.get("modelId")) or builder.model
    builder.provider = as_text(model.get("providerId")) or builder.provider
    used = as_dict(as_dict(said.get("metrics")).get("tokens"))
    tokens = {ours: as_number(used.get(name)) or 0 for name, ours in USED.items() if name in used}
    if tokens:
        builder.add_tokens(**tokens, total_tokens=sum(tokens.values()))


def _api_input(builder: TurnBuilder, message_id: str, said: dict[str, Any], at: int) -> None:
    content = said.get("content")
    human = [found[1] for text in texts(content) for found in HUMAN.findall(text)]
    if not human and builder.answered:  # results, which stand with their calls
        builder.ended_at = max(builder.ended_at, at)
        return
    text = "\n\n".join(human or texts(content))
    others = [without_data(b) for b in blocks(content) if b.get("type") not in ("text",)]
    others = [block for block in others if block.get("type") != "tool_result"]
    context = {"sent": texts(content)} if human else None
    metadata = {"blocks": others} if others else None
    builder.message(
        message_id, "user", text, at=at, source="human", metadata=metadata, context=context
    )


def _call(builder: TurnBuilder, call_id: str, call: Call, at: int, message_id: str | None) -> None:
    builder.call(call_id, call.name, call.params, at=at, message_id=message_id)
    if call.result is not None:
        error = "\n".join(texts(call.result)) or "failed"
        builder.result(
            call_id,
            call.result,
            at=at,
            status="failed" if call.failed else "completed",
            error=error if call.failed else None,
        )


# -- the timeline -----------------------------------------------------------------------------


def given_up(request: str | None) -> str | None:
    """Why a request came to nothing, as it says itself; None if it did not."""
    told = as_dict(parsed(request or ""))
    reason = as_text(told.get("cancelReason"))
    return (as_text(told.get("streamingFailedMessage")) or reason) if reason else None


def build_timeline(
    turn: PlannedTurn, records: Sequence[Record], calls: dict[str, Call], workspace: str | None
) -> Turn:
    """A turn of the timeline, with what the history tells of its calls."""
    return _Timeline(turn, calls, workspace).built(records)


class _Timeline:
    def __init__(self, turn: PlannedTurn, calls: dict[str, Call], workspace: str | None) -> None:
        self.builder = TurnBuilder(turn.id, turn.parent)
        self.builder.workspace_path = workspace
        self.calls = calls
        self.open: str | None = None  # the call whose output comes next
        self.output: list[str] = []

    def built(self, records: Sequence[Record]) -> Turn:
        for number, (message_id, kind, said) in enumerate(records):
            at = milliseconds(said.get("ts"))
            name = as_text(said.get("say")) or as_text(said.get("ask")) or ""
            model = as_dict(said.get("modelInfo"))
            self.builder.model = as_text(model.get("modelId")) or self.builder.model
            self.builder.provider = as_text(model.get("providerId")) or self.builder.provider
            if kind == "prompt":
                self._prompt(message_id, said, at)
            elif kind == "compaction":
                self._compaction(message_id, said, at)
            elif kind in ("notice", "failure"):
                self._notice(message_id, name, said, at)
                if kind == "failure" and not self.builder.answered:
                    text = as_text(said.get("text"))
                    self.builder.failed, self.builder.error = (
                        True,
                        given_up(text) or text or "error",
                    )
            else:
                last = number == len(records) - 1
                went_on = not said.get("partial") and ("say" in said or not last)
                self._reply(message_id, name, said, at, went_on=went_on)
        return self.builder.build()

    def _prompt(self, message_id: str, said: dict[str, Any], at: int) -> None:
        metadata = {name: said[name] for name in ("images", "files") if said.get(name)}
        if metadata.get("images"):
            metadata["images"] = [str(each)[:64] for each in as_list(metadata["images"])]
        text = as_text(said.get("text"))
        self.builder.failed, self.builder.error = False, None
        self.builder.message(message_id, "user", text, at=at, source="human", metadata=metadata)

    def _compaction(self, message_id: str, said: dict[str, Any], at: int) -> None:
        told = as_dict(said.get("contextCondense")) or as_dict(parsed(str(said.get("text"))))
        summary = as_text(told.get("summary")) or as_text(said.get("text")) or ""
        self.builder.message(message_id, "system", summary, at=at, source="event")
        if self.builder.parent_id is not None:
            self.builder.compaction = Compaction(
                summary,
                self.builder.parent_id,
                tokens_before=as_number(told.get("prevContextTokens")),
                tokens_after=as_number(told.get("newContextTokens")),
            )

    def _notice(self, message_id: str, name: str, said: dict[str, Any], at: int) -> None:
        if name != "api_req_started":
            text = as_text(said.get("text"))
            self.builder.message(
                message_id, "system", text, at=at, source="event", metadata={"type": name}
            )
            return
        told = as_dict(parsed(str(said.get("text"))))
        parts = {
            "input_tokens": as_number(told.get("tokensIn")),
            "output_tokens": as_number(told.get("tokensOut")),
            "cached_input_tokens": as_number(told.get("cacheReads")),
            "cache_write_tokens": as_number(told.get("cacheWrites")),
        }
        if any(number is not None for number in parts.values()):
            total = (parts["input_tokens"] or 0) + (parts["output_tokens"] or 0)
            if told.get("apiProtocol") != "openai":  # there the input includes the cache
                total += (parts["cached_input_tokens"] or 0) + (parts["cache_write_tokens"] or 0)
            self.builder.add_tokens(**parts, total_tokens=total)

    def _reply(
        self, message_id: str, name: str, said: dict[str, Any], at: int, *, went_on: bool
    ) -> None:
        self.builder.failed, self.builder.error = False, None
        text = as_text(said.get("text"))
        metadata = {"partial": True} if said.get("partial") else {}
        if name == "reasoning":
            self.builder.message(
                message_id, "assistant", None, at=at, thinking=text, metadata=metadata
            )
        elif name in ("tool", "use_mcp_server", "command"):
            self._tool(message_id, name, text or "", at, went_on=went_on)
        elif name in ("command_output", "mcp_server_response", "browser_action_result"):
            self._result(text or "", at)
        else:
            told = as_dict(parsed(text or ""))
            asked = as_text(told.get("question")) or as_text(told.get("response"))
            self.builder.message(
                message_id, "assistant", asked or text, at=at, metadata={"type": name, **metadata}
            )

    def _tool(self, message_id: str, name: str, text: str, at: int, *, went_on: bool) -> None:
        told = as_dict(parsed(text))
        self.open, self.output = message_id, []
        known = self.calls.get(message_id)
        if known is not None:
            _call(self.builder, message_id, known, at, None)
        elif name == "command":
            self.builder.call(message_id, "execute_command", {"command": text}, at=at)
        elif name == "use_mcp_server":
            params = {"server": told.get("serverName"), "arguments": told.get("arguments")}
            self.builder.call(message_id, as_text(told.get("toolName")) or name, params, at=at)
        else:
            self._shown(message_id, told, text, at)
        if went_on and (known is None or known.result is None):
            result = told.get("content") if told.get("tool") in SHOWN else None
            self.builder.result(message_id, result, at=at)

    def _shown(self, message_id: str, told: dict[str, Any], text: str, at: int) -> None:
        tool = as_text(told.get("tool")) or "unknown"
        dropped = ("tool", "content") if tool in SHOWN else ("tool",)
        params = {name: value for name, value in told.items() if name not in dropped}
        self.builder.call(message_id, tool, params or {"text": text}, at=at)
        path = as_text(told.get("path"))
        if path and tool in FILES:
            # A call has no files of its own: they stand with what the agent said last.
            self.builder.add_files(self.builder.last_message_id, [MessageFile(FILES[tool], path)])

    def _result(self, text: str, at: int) -> None:
        known = self.calls.get(self.open or "")
        if self.open is None or (known is not None and known.result is not None):
            return
        if text:
            self.output.append(text)
        self.builder.result(self.open, "\n".join(self.output), at=at)
