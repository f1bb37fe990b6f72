"""Cursor: the content of one turn, from the bubbles of a chat or the messages of the agent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from agents_ledger.importers.parsing.json_values import dicts, json_or_text, loose, path_of, pruned
from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_list,
    as_number,
    as_text,
    without_data,
)
from agents_ledger.importers.port.material import Material, SourceRow
from agents_ledger.importers.sources.cursor import records, rules
from agents_ledger.importers.transcript.field_maps import token_counts
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, json_text
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.imports.records import LARGE
from agents_ledger.model.turns import (
    OPEN_CALL,
    FileKind,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    MessageSource,
    Turn,
)

# A turn alternates between a few rows: its bubbles, their contexts and checkpoints.
DECODED_ROWS = 4  # decoded rows that are cached


class Bubble(Struct, frozen=True, gc=False, array_like=True):
    """A message of a chat, and where it is recorded."""

    id: str  # the source's own
    role: Literal["user", "assistant"]
    row: SourceRow
    inner: tuple[str | int, ...]  # the path to it inside the row's JSON
    at: int  # 0: unknown
    print: bytes  # of its content
    model: str | None
    request_id: str | None
    checkpoint_id: str | None
    may_spawn: bool  # its tool call may start a subagent


class BubbleReader:
    """Reads bubbles again; caches the JSON of the last few rows, or of one large row."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self._cache: OrderedDict[tuple[int, int], Any] = OrderedDict()

    def value(self, row: SourceRow) -> Any:
        key = (row.file_id, row.offset)
        if key not in self._cache:
            while len(self._cache) >= (DECODED_ROWS if row.length < LARGE else 1):
                self._cache.popitem(last=False)
            self._cache[key] = loose(self.material.values_of(row).get("value"))
        return self._cache[key]

    def __getitem__(self, bubble: Bubble) -> dict[str, Any]:
        value = self.value(bubble.row)
        for step in bubble.inner:
            if isinstance(value, str):
                value = loose(value)
            try:
                value = value[step]
            except (LookupError, TypeError):
                return {}
        return as_dict(value)


class ChatFacts(NamedTuple):
    """What all turns of a chat have in common."""

    model: str | None
    workspace: str | None
    spawned: Mapping[str, str]  # call -> label of the subagent's session
    # What was sent with a prompt, by bubble or request.
    contexts: Mapping[str, SourceRow]
    checkpoints: Mapping[str, SourceRow]
    asked_by: MessageSource


class CursorMessage(NamedTuple):
    """A message of a turn, and the rows that it is made of."""

    id: str
    at: int
    bubble: Bubble
    context: SourceRow | None  # what was sent with it
    checkpoint: SourceRow | None  # the files at that time


def message_of(facts: ChatFacts, message_id: str, at: int, bubble: Bubble) -> CursorMessage:
    # messageRequestContext is what was sent with the prompt; its answers share the requestId.
    request = bubble.request_id if bubble.role == "user" else None
    context = facts.contexts.get(bubble.id) or facts.contexts.get(request or "")
    checkpoint = facts.checkpoints.get(bubble.checkpoint_id or "")
    return CursorMessage(message_id, at, bubble, context, checkpoint)


# -- chats ------------------------------------------------------------------------------------


def build_summary(turn_id: str, parent_id: str, summary: str, at: int) -> Turn:
    builder = TurnBuilder(turn_id, parent_id)
    builder.message(f"{turn_id}:text", "system", summary, at=at, source="event")
    builder.compaction = Compaction(summary, parent_id)
    return builder.build()


class ChatTurn:
    def __init__(self, reader: BubbleReader, builder: TurnBuilder, facts: ChatFacts) -> None:
        self.reader = reader
        self.builder = builder
        self.facts = facts

    def build(self, messages: Iterable[CursorMessage]) -> Turn:
        self.builder.model = self.facts.model
        self.builder.workspace_path = self.facts.workspace
        for message in messages:
            record = self.reader[message.bubble]
            self.builder.model = message.bubble.model or self.builder.model
            self._add_message(message, record)
            for position, call in enumerate(records.tool_calls(record)):
                self._add_call(call, message, position)
            self._add_usage(record)
        self.builder.provider = rules.NAME if self.builder.model else None
        return self.builder.build()

    def _add_message(self, message: CursorMessage, record: dict[str, Any]) -> None:
        metadata = records.metadata_of(record)
        if message.checkpoint is not None:
            metadata["checkpoint"] = _checkpoint_paths(self.reader.value(message.checkpoint))
        context = pruned(as_dict(record.get("context")))
        if message.context is not None:
            sent = pruned(as_dict(self.reader.value(message.context)))
            context = _merged_context(context, sent)
        if context.get("cursorRules"):
            metadata.setdefault("cursorRules", context["cursorRules"])
        role = message.bubble.role
        self.builder.message(
            message.id,
            role,
            records.text_of(record),
            at=message.at,
            source=self.facts.asked_by if role == "user" else None,
            thinking=records.thinking_of(record),
            metadata=metadata,
            context=context,
            files=tuple(_files(record)),
            lints=tuple(dict.fromkeys(_lints(record))),
            codeblocks=tuple(_codeblocks(record)),
        )

    def _add_usage(self, record: dict[str, Any]) -> None:
        tokens = token_counts(record.get("tokenCount"), rules.TOKENS)
        # Both counts are 0 in most bubbles: unknown, and not a use of nothing.
        if any(tokens.values()):
            self.builder.add_tokens(**tokens, total_tokens=sum(tokens.values()))
        error = record.get("errorDetails")
        # Set by every bubble: an answer after the error shows that the request was repeated.
        self.builder.failed = bool(error)
        self.builder.error = _error_text(error) if error else None

    def _add_call(self, call: dict[str, Any], message: CursorMessage, position: int) -> None:
        number = as_number(call.get("tool"))
        call_id = as_text(call.get("toolCallId")) or f"{message.id}:{position}"
        params = call.get("params") or call.get("rawArgs") or {}
        self.builder.call(
            call_id,
            as_text(call.get("name")) or (f"tool_{number}" if number is not None else "unknown"),
            json_text(json_or_text(params)),
            at=message.at,
            message_id=message.id,
            tool_number=number,
        )
        status, source_status = records.status_of(call)
        error = call.get("error")
        self.builder.result(
            call_id,
            json_or_text(call.get("result") or None),
            at=message.at if status not in OPEN_CALL else 0,
            status=status,
            error=_error_text(error) if error else ("failed" if status == "failed" else None),
            source_status=source_status,
            spawned=self.facts.spawned.get(call_id),
        )
        self.builder.add_files(message.id, list(_called_files(call)), call_id=call_id)


def _error_text(error: Any) -> str:
    fields = as_dict(error)
    texts = (as_text(fields.get(name)) for name in ("message", "detail", "title", "error"))
    return next(filter(None, texts), None) or as_text(error) or "failed"


def _merged_context(context: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """The context of a message with what was sent with it; differing fields are kept apart."""
    differing = {name: value for name, value in sent.items() if context.get(name, value) != value}
    merged = {**sent, **context}
    return {**merged, "messageRequestContext": differing} if differing else merged


def _files(record: dict[str, Any]) -> Iterable[MessageFile]:
    """The files of a message; a file counts once for each of its first lines."""
    unique: dict[tuple[str, str, int | None], MessageFile] = {}
    for file in _attached_files(record):
        unique.setdefault((file.kind, file.file_path, file.line_start), file)
    return unique.values()


def _attached_files(record: dict[str, Any]) -> Iterator[MessageFile]:
    context = as_dict(record.get("context")) or record
    paths: list[tuple[FileKind, str | None]]
    paths = [("referenced", path_of(name)) for name in as_list(record.get("relevantFiles"))]
    paths += [("attached", path_of(s.get("uri"))) for s in dicts(context.get("fileSelections"))]
    yield from (MessageFile(kind, path) for kind, path in paths if path)
    for chunk in dicts(record.get("attachedCodeChunks")):
        path = _path(chunk)
        if path:
            yield MessageFile("attached", path, *_line_range(chunk))


def _called_files(call: dict[str, Any]) -> Iterator[MessageFile]:
    params = as_dict(records.params_of(call))
    for file in rules.FILE_TOOLS.files(str(call.get("name")), params):
        path = path_of(file.file_path)
        if path:
            yield MessageFile(file.kind, path)


def _path(item: dict[str, Any]) -> str | None:
    names = ("uri", "relativeWorkspacePath", "path", "filePath")
    return next(filter(None, (path_of(item.get(name)) for name in names)), None)


def _line_range(chunk: dict[str, Any]) -> tuple[int | None, int | None]:
    """The first and the last line of attached code; its lines are in a list."""
    start, lines = as_number(chunk.get("startLineNumber")), as_list(chunk.get("lines"))
    end = as_number(chunk.get("endLineNumber"))
    if end is None and start is not None and lines:
        end = start + len(lines) - 1
    return start, end


def _lints(record: dict[str, Any]) -> Iterator[MessageLint]:
    """What linters reported: by file in `multiFileLinterErrors`; in `lints` by file or singly."""
    for name in ("multiFileLinterErrors", "lints"):
        for item in dicts(record.get(name)):
            of_file = as_dict(item.get("linterErrors")) or item
            for error in dicts(of_file.get("errors")) if "errors" in of_file else [item]:
                yield _lint(error, _path(of_file) or _path(error))


def _lint(error: dict[str, Any], path: str | None) -> MessageLint:
    span = as_dict(error.get("range"))
    start = as_dict(span.get("startPosition") or span.get("start"))
    end = as_dict(span.get("endPosition") or span.get("end"))
    return MessageLint(
        path,
        as_text(error.get("message")),
        as_text(error.get("source")),
        as_number(start.get("line")),
        as_number(start.get("column", start.get("character"))),
        as_number(end.get("line")),
        as_number(end.get("column", end.get("character"))),
        rules.SEVERITIES.get(str(error.get("severity")).lower().rpartition("_")[2]),
    )


def _codeblocks(record: dict[str, Any]) -> Iterator[MessageCodeblock]:
    for block in dicts(record.get("codeBlocks")):
        content = block.get("content")
        yield MessageCodeblock(
            content if isinstance(content, str) else "",
            as_text(block.get("languageId")),
            path_of(block.get("uri")),
        )


def _checkpoint_paths(checkpoint: Any) -> Any:
    """The paths of the files of a checkpoint; their contents stay in the source record."""
    fields = as_dict(checkpoint)
    paths = {}
    for name in ("files", "nonExistentFiles", "newlyCreatedFolders"):
        files = as_list(fields.get(name))
        paths[name] = [path for f in files if (path := path_of(as_dict(f).get("uri") or f))]
    return pruned(paths)


# -- the agent --------------------------------------------------------------------------------


class AgentTurn:
    """Builds a turn of the agent, from a transcript or a store."""

    def __init__(self, builder: TurnBuilder, asked_by: MessageSource) -> None:
        self.builder = builder
        self.asked_by = asked_by
        self.at = 0
        self.open_calls: OrderedDict[str, None] = OrderedDict()  # without a result yet
        self.last_calls: set[str] = set()  # of the last message

    def add(self, message_id: str, record: dict[str, Any], at: int) -> None:
        self.at = at
        if "role" not in record:
            self._add_end(record)
            return
        self.builder.model = as_text(record.get("model")) or self.builder.model
        blocks = agent_blocks(record)
        text = agent_text(blocks)
        is_user = record["role"] == "user"
        prompt = rules.prompt_in(text) if is_user else rules.CursorPrompt(text, 0, False)
        metadata: dict[str, Any] = {"text": text} if prompt.words != text else {}
        other_blocks = [without_data(b) for b in blocks if b.get("type") not in rules.MAPPED_BLOCKS]
        if other_blocks:
            metadata["blocks"] = other_blocks
        role = rules.ROLES.get(str(record["role"]), "system")
        if role == "user" and are_results(blocks):
            role = "tool"
        if role == "assistant":
            self.last_calls = set()
        if role != "tool":
            source: MessageSource = "event" if prompt.is_event else self.asked_by
            self.builder.message(
                message_id,
                role,
                prompt.words,
                at=self.at,
                source=source if role == "user" else None,
                thinking="\n\n".join(_thoughts(blocks)) or None,
                metadata=metadata,
            )
        self._add_calls(message_id, blocks)

    def close_calls(self) -> None:
        """Complete calls that the agent continued after: most transcripts have no results."""
        for call_id in self.open_calls:
            if call_id not in self.last_calls:
                self.builder.result(call_id, None, at=self.at)

    def _add_end(self, record: dict[str, Any]) -> None:
        error = record.get("error")
        if error or record.get("status") == "error":
            text = as_text(error) or as_text(as_dict(error).get("message"))
            self.builder.failed, self.builder.error = True, text or "failed"

    def _add_calls(self, message_id: str, blocks: Sequence[dict[str, Any]]) -> None:
        for position, block in enumerate(blocks):
            kind = block.get("type")
            own_id = as_text(block.get("toolCallId")) or as_text(block.get("id"))
            if kind in rules.CALL_BLOCKS:
                call_id = own_id or f"{message_id}:{position}"
                params = block.get("args") if "args" in block else block.get("input")
                name = as_text(block.get("toolName")) or as_text(block.get("name")) or "unknown"
                params = {} if params is None else params
                self.builder.call(call_id, name, params, at=self.at, message_id=message_id)
                self.open_calls[call_id] = None
                self.last_calls.add(call_id)
            elif kind in rules.RESULT_BLOCKS:
                self._add_result(own_id or as_text(block.get("tool_use_id")), block)

    def _add_result(self, own_id: str | None, block: dict[str, Any]) -> None:
        """To the call that it names, or to the oldest open one: transcripts have no call ids."""
        if not self.open_calls:
            return
        is_open = own_id is not None and own_id in self.open_calls
        call_id = own_id if own_id and is_open else next(iter(self.open_calls))
        del self.open_calls[call_id]
        result = next((block[n] for n in ("result", "content", "output") if n in block), None)
        failed = bool(block.get("isError") or block.get("is_error"))
        self.builder.result(
            call_id,
            without_data(result),
            at=self.at,
            status="failed" if failed else "completed",
            error="failed" if failed else None,
        )


def agent_blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a message of the agent; a text is one."""
    content = record.get("content")
    if content is None:
        content = as_dict(record.get("message")).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [{**block, "type": as_text(block.get("type"))} for block in dicts(content)]


def agent_text(blocks: Iterable[dict[str, Any]]) -> str:
    not_text = rules.MAPPED_BLOCKS - {"text"}
    texts = (as_text(b.get("text")) for b in blocks if b.get("type") not in not_text)
    return "\n\n".join(filter(None, texts))


def are_results(blocks: Sequence[dict[str, Any]]) -> bool:
    """Whether a message has nothing but results of tools."""
    return bool(blocks) and all(b.get("type") in rules.RESULT_BLOCKS for b in blocks)


def _thoughts(blocks: Iterable[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if block.get("type") in rules.THINKING_BLOCKS:
            text = as_text(block.get("thinking")) or as_text(block.get("text"))
            if text:
                yield text
