"""Cursor: the content of one turn, from its bubbles in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from agents_ledger.importers.parsing.json_values import (
    EMBEDDED,
    dicts,
    json_or_text,
    loose,
    path_of,
    pruned,
)
from agents_ledger.importers.port.source import Material, Row
from agents_ledger.importers.transcript.turn_builder import (
    TurnBuilder,
    milliseconds,
    msgspec_text,
)
from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_number, as_text
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.imports.records import LARGE
from agents_ledger.model.turns import (
    OPEN_CALL,
    CallStatus,
    FileKind,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    MessageSource,
    Turn,
)

NAME = "cursor"
STATUSES: dict[str, CallStatus] = {
    "aborted": "cancelled",
    "canceled": "cancelled",
    "cancelled": "cancelled",
    "completed": "completed",
    "error": "failed",
    "errored": "failed",
    "failed": "failed",
    "loading": "running",
    "pending": "pending",
    "rejected": "rejected",
    "running": "running",
    "success": "completed",
}
FILE_TOOLS: dict[str, FileKind] = {
    "apply_patch": "written",
    "delete_file": "written",
    "edit_file": "written",
    "edit_file_v2": "written",
    "read_file": "read",
    "read_file_v2": "read",
    "search_replace": "written",
    "write": "written",
}
PATH_NAMES = ("path", "relativeWorkspacePath", "targetFile", "target_file", "file_path", "filePath")
TASK_NAMES = ("task", "task_v2")
TASK_NUMBER = 48
RULES = "cursorRules"
REQUEST = "messageRequestContext"
LONG_ARGUMENT = 2000  # a longer one stands in its tool call only
DECODED_ROWS = 4


class Bubble(Struct, frozen=True, gc=False, array_like=True):
    """A message, and where it stands."""

    id: str  # the source's own
    role: Literal["user", "assistant"]
    row: Row
    inner: tuple[str | int, ...]  # the way to it inside the row's JSON
    at: int  # 0: not said
    print: bytes  # of what it says
    model: str | None
    request_id: str | None
    checkpoint_id: str | None
    may_spawn: bool  # its tool call may start a subagent


class Summary(NamedTuple):
    """What stands for the turns before it."""

    words: str
    row: Row


class Spec(NamedTuple):
    """A turn to be built."""

    turn_id: str
    parent_id: str | None
    bubbles: Sequence[Bubble]
    model: str | None
    workspace: str | None
    spawned: Mapping[str, str]  # the sessions of subagents, by call
    contexts: Mapping[str, Row]  # what was sent with a message, by bubble or request
    checkpoints: Mapping[str, Row]
    asked_by: MessageSource = "human"
    renamed: Mapping[str, str] = {}  # messages whose bubbles are another turn's too, by bubble
    guessed: Mapping[str, int] = {}  # the times of bubbles that say none

    def messages(self) -> Iterator[tuple[str, int, Bubble]]:
        """The id and the time of each message, and its bubble."""
        for bubble in self.bubbles:
            at = bubble.at or self.guessed.get(bubble.id, 0)
            yield self.renamed.get(bubble.id, bubble.id), at, bubble

    @property
    def started(self) -> int:
        """When it began."""
        return next((at for _, at, _ in self.messages()), 0)

    def context(self, bubble: Bubble) -> Row | None:
        """What was sent with a message."""
        asked = bubble.request_id if bubble.role == "user" else None
        return self.contexts.get(bubble.id) or self.contexts.get(asked or "")

    def checkpoint(self, bubble: Bubble) -> Row | None:
        """The files as they were at a message."""
        return self.checkpoints.get(bubble.checkpoint_id or "")


class Bubbles:
    """Reads bubbles again; of the last few rows the JSON is held, of large ones only of one."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self._cache: OrderedDict[tuple[int, int], Any] = OrderedDict()

    def value(self, row: Row) -> Any:
        """What a row's JSON says."""
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


def summary_turn(turn_id: str, parent_id: str, words: str, at: int) -> Turn:
    """A compaction."""
    builder = TurnBuilder(turn_id, parent_id)
    builder.message(f"{turn_id}:text", "system", words, at=at, source="event")
    builder.compaction = Compaction(words, parent_id)
    return builder.build()


def build_turn(bubbles: Bubbles, spec: Spec) -> Turn:
    """The turn that these bubbles make."""
    return _Turn(bubbles, spec).built()


class _Turn:
    def __init__(self, bubbles: Bubbles, spec: Spec) -> None:
        self.bubbles = bubbles
        self.spec = spec
        self.builder = TurnBuilder(spec.turn_id, spec.parent_id)

    def built(self) -> Turn:
        self.builder.model, self.builder.workspace_path = self.spec.model, self.spec.workspace
        for message_id, at, bubble in self.spec.messages():
            said = self.bubbles[bubble]
            self.builder.model = bubble.model or self.builder.model
            self._say(message_id, at, bubble, said)
            for position, call in enumerate(tool_data(said)):
                self._call(call, message_id, at, position)
            self._count(said)
        self.builder.provider = NAME if self.builder.model else None
        return self.builder.build()

    def _say(self, message_id: str, at: int, bubble: Bubble, said: dict[str, Any]) -> None:
        metadata = metadata_of(said)
        checkpoint = self.spec.checkpoint(bubble)
        if checkpoint is not None:
            metadata["checkpoint"] = _without_contents(self.bubbles.value(checkpoint))
        context = pruned(as_dict(said.get("context")))
        sent = self.spec.context(bubble)
        if sent is not None:
            context = _joined(context, pruned(as_dict(self.bubbles.value(sent))))
        if context.get(RULES):
            metadata.setdefault(RULES, context[RULES])
        self.builder.message(
            message_id,
            bubble.role,
            text_of(said),
            at=at,
            source=self.spec.asked_by if bubble.role == "user" else None,
            thinking=thinking_of(said),
            metadata=metadata,
            context=context,
            files=tuple(dict.fromkeys(_files(said))),
            lints=tuple(_lints(said)),
            codeblocks=tuple(_codeblocks(said)),
        )

    def _count(self, said: dict[str, Any]) -> None:
        tokens = as_dict(said.get("tokenCount"))
        read, written = as_number(tokens.get("inputTokens")), as_number(tokens.get("outputTokens"))
        if read or written:
            total = (read or 0) + (written or 0)
            self.builder.add_tokens(input_tokens=read, output_tokens=written, total_tokens=total)
        wrong = said.get("errorDetails")
        self.builder.failed = bool(wrong)
        self.builder.error = _words(wrong) if wrong else None

    def _call(self, call: dict[str, Any], message_id: str, at: int, position: int) -> None:
        number = as_number(call.get("tool"))
        call_id = as_text(call.get("toolCallId")) or f"{message_id}:{position}"
        params = call.get("params") or call.get("rawArgs") or {}
        self.builder.call(
            call_id,
            as_text(call.get("name")) or (f"tool_{number}" if number is not None else "unknown"),
            msgspec_text(json_or_text(params)),
            at=at,
            message_id=message_id,
            tool_number=number,
        )
        status, word = status_of(call)
        error = call.get("error")
        self.builder.result(
            call_id,
            json_or_text(call.get("result") or None),
            at=at if status not in OPEN_CALL else 0,
            status=status,
            error=_words(error) if error else ("failed" if status == "failed" else None),
            source_status=word,
            spawned=self.spec.spawned.get(call_id),
        )


def _words(wrong: Any) -> str:
    said = as_dict(wrong)
    found = (as_text(said.get(name)) for name in ("message", "detail", "title", "error"))
    return next((each for each in found if each), None) or as_text(wrong) or "failed"


# -- what a bubble says -----------------------------------------------------------------------


def text_of(said: dict[str, Any]) -> str:
    """The words of a bubble of any generation."""
    for name in ("text", "rawText", "message"):
        if as_text(said.get(name)):
            return str(said[name])
    answer = as_text(as_dict(said.get("modelResponse")).get("text"))
    if answer:
        return answer
    for name in ("richText", "initText"):
        words = "".join(_lexical(loose(said.get(name)))).strip("\n")
        if words:
            return words
    first, asked = said.get("initText"), as_dict(said.get("delegate")).get("a")
    plain = first if loose(first) is None else None
    return as_text(plain) or as_text(asked) or ""


def _lexical(node: Any, depth: int = 0) -> Iterator[str]:
    """The text of an editor's state: paragraphs on lines of their own."""
    node = as_dict(node)
    kind = node.get("type")
    if kind == "linebreak":
        yield "\n"
    elif kind == "tab":
        yield "\t"
    elif isinstance(node.get("text"), str):
        yield node["text"]
    elif depth < 50:  # noqa: PLR2004 - no editor nests so deep
        for child in [node.get("root"), *as_list(node.get("children"))]:
            yield from _lexical(child, depth + 1)
    if kind == "paragraph":
        yield "\n"


def thinking_of(said: dict[str, Any]) -> str | None:
    """What the model thought before it answered."""
    thought = said.get("thinking")
    words = [as_text(thought) or as_text(as_dict(thought).get("text"))]
    if not words[0]:
        words = [
            as_text(block.get("thinking")) or as_text(block.get("text"))
            for block in dicts(said.get("allThinkingBlocks"))
        ]
    return "\n\n".join(word for word in words if word) or None


def metadata_of(said: dict[str, Any]) -> dict[str, Any]:
    """Every field of a bubble that is not empty and has no column."""
    content = text_of(said)
    kept = pruned(
        {
            name: value
            for name, value in said.items()
            if not (name in ("text", "rawText") and value == content)
        }
    )
    kept["thinking"] = _beside_thoughts(kept.get("thinking"))
    if isinstance(kept.get("context"), dict):
        del kept["context"]
    if isinstance(kept.get("toolFormerData"), dict):
        kept["toolFormerData"] = _beside_call(kept["toolFormerData"])
    return {name: value for name, value in kept.items() if value not in (None, "", [], {})}


def _beside_thoughts(thought: Any) -> Any:
    if isinstance(thought, dict) and as_text(thought.get("text")):
        return {name: value for name, value in thought.items() if name != "text"}
    return None if isinstance(thought, str) else thought


def _beside_call(call: dict[str, Any]) -> dict[str, Any]:
    """What a call says, without what is long and stands in the tool call."""
    params, asked = call.get("params"), call.get("rawArgs")
    held = {"error", "result", "params" if params else "rawArgs"}
    if params and asked and _is_long(asked) and loose(asked) == (loose(params) or params):
        held.add("rawArgs")
    kept = {name: value for name, value in call.items() if not (name in held and _is_long(value))}
    extra = as_dict(kept.get("additionalData"))
    if is_task(call) and isinstance(embedded(call), dict):  # it is a session of its own
        kept["additionalData"] = {n: value for n, value in extra.items() if n != EMBEDDED}
    return kept


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > LONG_ARGUMENT


def _joined(context: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """The context of a message with what was sent with it; where both say something, apart."""
    apart = {name: value for name, value in sent.items() if context.get(name, value) != value}
    joined = {**sent, **context}
    return {**joined, REQUEST: apart} if apart else joined


def _files(said: dict[str, Any]) -> Iterator[MessageFile]:
    for name in as_list(said.get("relevantFiles")):
        path = path_of(name)
        if path:
            yield MessageFile("referenced", path)
    context = as_dict(said.get("context")) or said
    for selected in dicts(context.get("fileSelections")):
        path = path_of(selected.get("uri"))
        if path:
            yield MessageFile("attached", path)
    for call in tool_data(said):
        kind = FILE_TOOLS.get(str(call.get("name")))
        params = as_dict(_params(call))
        path = next((path_of(params[n]) for n in PATH_NAMES if as_text(params.get(n))), None)
        if kind and path:
            yield MessageFile(kind, path)


def _lints(said: dict[str, Any]) -> Iterator[MessageLint]:
    for of_file in dicts(said.get("multiFileLinterErrors")):
        path = as_text(of_file.get("relativeWorkspacePath"))
        for error in dicts(of_file.get("errors")):
            span = as_dict(error.get("range"))
            start, end = as_dict(span.get("startPosition")), as_dict(span.get("endPosition"))
            yield MessageLint(
                path,
                as_text(error.get("message")),
                as_text(error.get("source")),
                as_number(start.get("line")),
                as_number(start.get("column")),
                as_number(end.get("line")),
                as_number(end.get("column")),
            )


def _codeblocks(said: dict[str, Any]) -> Iterator[MessageCodeblock]:
    for block in dicts(said.get("codeBlocks")):
        content = block.get("content")
        yield MessageCodeblock(
            content if isinstance(content, str) else "",
            as_text(block.get("languageId")),
            path_of(block.get("uri")),
        )


def _without_contents(checkpoint: Any) -> Any:
    """The files of a checkpoint, by name; what they held stays in the source record."""
    said = as_dict(checkpoint)
    names = {}
    for name in ("files", "nonExistentFiles", "newlyCreatedFolders"):
        paths = [path_of(as_dict(each).get("uri") or each) for each in as_list(said.get(name))]
        names[name] = [path for path in paths if path]
    return pruned(names)


# -- tools ------------------------------------------------------------------------------------


def tool_data(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a bubble. On what the user wrote there is only a state of the editor."""
    data = said.get("toolFormerData")
    found = dicts(data) if isinstance(data, list) else dicts([data])
    return [call for call in found if {"name", "tool", "toolCallId"} & call.keys()]


def is_task(call: dict[str, Any]) -> bool:
    """Whether a call starts a subagent."""
    return call.get("name") in TASK_NAMES or call.get("tool") == TASK_NUMBER


def embedded(call: dict[str, Any]) -> Any:
    """The chat of a subagent that is written into the call that started it."""
    value = as_dict(call.get("additionalData")).get(EMBEDDED)
    return loose(value) if isinstance(value, str) else value


def _params(call: dict[str, Any]) -> Any:
    """Of a call: an object, or JSON in text; empty in one field, it may stand in another."""
    for name in ("params", "rawArgs"):
        value = call.get(name)
        value = loose(value) if isinstance(value, str) else value
        if value:
            return value
    return {}


def status_of(call: dict[str, Any]) -> tuple[CallStatus, str | None]:
    """The status of a call, and the source's own word for it."""
    said = as_text(call.get("status")) or as_text(as_dict(call.get("additionalData")).get("status"))
    if call.get("userDecision") == "rejected":
        return "rejected", said or "rejected"
    done: CallStatus = "completed" if call.get("result") else "running"
    return STATUSES.get((said or "").lower(), done), said


def bubble_time(created: Any, timing: Any) -> int:
    """When a bubble was made; 0 if it does not say. A small number counts from the start of the
    program, not from 1970."""
    if created:
        return milliseconds(created)
    for name in ("clientRpcSendTime", "clientSettleTime", "clientEndTime", "clientStartTime"):
        moment = as_dict(timing).get(name)
        if isinstance(moment, (int, float)) and moment > 1e12:  # noqa: PLR2004 - ms since 2001
            return milliseconds(moment)
    return 0
