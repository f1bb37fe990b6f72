"""Turns as items: what was said and done, so that every provider accepts it.

Each call is followed by its result. What a turn lacks is repaired, and the repair is told:

- a call without a result gets one that says so;
- a result without its call is shown as the user's words;
- a call id that came before, or that a provider would refuse, is replaced by one made from it;
- letters of a tool's name that a provider would refuse become underscores, parameters that are no
  JSON object are put into one.

Thinking is kept only with its provider's signature: no provider takes it back without. Signed
thinking of a turn that names neither its provider nor a Claude model is told as a repair. System
messages that a turn was asked with are shown as the user's; others are notices, and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import structs

from agents_ledger.context import images
from agents_ledger.model.context.items import (
    CallItem,
    ImageItem,
    Item,
    Part,
    Repair,
    ResultItem,
    TextItem,
    ThinkingItem,
)
from agents_ledger.model.turns import OPEN_CALL, Message, ToolCall, Turn

# OpenAI accepts at most 40 characters in a call id, Anthropic only letters, digits, _ and -.
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
REFUSED_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
NAME_MAX = 64
NO_RESULT = "[no result recorded]"
NO_OUTPUT = "[no output]"
NO_CALL = "[result of a tool call that is not recorded]"
SYSTEM = "[system]"
UNKNOWN_SIGNER = "signed thinking left out: the turn names no provider"

_decode = msgspec.json.Decoder().decode


def sound(text: str) -> str:
    """The text without lone surrogates, which no provider accepts."""
    if text.isascii():
        return text
    try:
        text.encode()  # several times as fast as replacing nothing
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def decoded(text: str | None) -> Any:
    """The value of a JSON text; None if it is none."""
    try:
        return None if text is None else _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


class ItemBuilder:
    """Items in the making, over one turn after the other."""

    def __init__(self) -> None:
        self.repairs: list[Repair] = []
        self._call_ids: set[str] = set()

    def turn(self, turn: Turn, part: Part) -> list[Item]:
        return _Walk(self, turn, part).items

    def messages(self, messages: Iterable[Message], part: Part) -> list[Item]:
        """The items of messages that belong to no turn yet."""
        questions = tuple(messages)
        ids = msgspec.json.encode([message.id for message in questions]).decode()
        query = Turn("", query_message_ids=ids, messages=questions)
        return [structs.replace(item, turn_id=None) for item in self.turn(query, part)]

    def reuses(self, call_ids: frozenset[str]) -> bool:
        """Whether a turn with these call ids can be rendered unchanged: none of them occurs earlier
        in this context."""
        if not self._call_ids.isdisjoint(call_ids):
            return False
        self._call_ids |= call_ids
        return True

    def call_id(self, call: ToolCall) -> str:
        chosen = call.id
        # Made from turn and id, not random: the same thread always gives the same context.
        if chosen in self._call_ids or not CALL_ID.fullmatch(chosen):
            import hashlib

            key = f"{call.turn_id}\0{call.id}".encode("utf-8", "surrogatepass")
            chosen = f"call_{hashlib.sha256(key).hexdigest()[:24]}"
            self.repairs.append(Repair(call.turn_id, "call id replaced", call.id))
        self._call_ids.add(chosen)
        return chosen


class _Walk:
    """One turn, step by step. Calls that were made together stand together, their results after
    them: those of one message, and those made before the message with the first one's result."""

    def __init__(self, row: ItemBuilder, turn: Turn, part: Part) -> None:
        self.row = row
        self.turn = turn
        self.part = part
        self.items: list[Item] = []
        self._open: list[tuple[str, ToolCall]] = []
        self._answers = _answers(turn)
        self._awaited = set(self._answers)  # calls whose result messages are still to come
        for step in turn.steps:
            if isinstance(step, ToolCall):
                self._call(step)
            elif step.role == "tool" and step.tool_call_id in self._answers:
                # The result is shown directly after its call.
                self._awaited.discard(step.tool_call_id)
            elif not (self._await_results() and _is_blank(step)):
                if self._open:
                    self._close()
                self._message(step)
        if self._open:
            self._close()

    def _message(self, message: Message) -> None:
        if message.role == "assistant":
            self._assistant(message)
        elif message.role == "user":
            if message.metadata_json or message.files:
                for image in images.of_message(message, decoded(message.metadata_json)):
                    self.items.append(self._placed(image))
                for file in images.attached_files(message):
                    self._text("user", file)
            self._text("user", message.content)
        elif message.role == "tool":
            self._text("user", f"{NO_CALL}\n{message.content or NO_OUTPUT}")
            self.row.repairs.append(Repair(self.turn.id, "result without a call", message.id))
        elif message.content and message in self.turn.query:
            self._text("user", f"{SYSTEM}\n{message.content}")

    def _placed(self, image: ImageItem) -> ImageItem:
        return structs.replace(image, turn_id=self.turn.id, part=self.part)

    def _assistant(self, message: Message) -> None:
        if not message.metadata_json and not message.files:
            self._text("assistant", message.content)
            return
        metadata = decoded(message.metadata_json)
        signature = metadata.get("thinking_signature") if isinstance(metadata, dict) else None
        if message.thinking and isinstance(signature, str):
            thinking, signer = sound(message.thinking), _signer(self.turn)
            self.items.append(ThinkingItem(thinking, signature, signer, self.turn.id, self.part))
            if signer is None:
                self.row.repairs.append(Repair(self.turn.id, UNKNOWN_SIGNER, message.id))
        self._text("assistant", message.content)
        for image in images.of_message(message, metadata):
            self._text("assistant", images.in_words(image))
        for file in images.attached_files(message):
            self._text("assistant", file)

    def _text(self, role: Any, text: str | None) -> None:
        if text and not text.isspace():
            self.items.append(TextItem(role, sound(text), self.turn.id, self.part))

    def _call(self, call: ToolCall) -> None:
        if self._open and not self._await_results():
            message_id = self._open[-1][1].message_id
            if call.message_id is None or call.message_id != message_id:
                self._close()
        call_id = self.row.call_id(call)
        params = _params(call.params_json)
        self.items.append(
            CallItem(call_id, _tool_name(call.tool_name), params, self.turn.id, self.part)
        )
        self._open.append((call_id, call))

    def _await_results(self) -> bool:
        """Whether the results of all open calls come as messages later in the turn."""
        return bool(self._open) and all(call.id in self._awaited for _, call in self._open)

    def _close(self) -> None:
        for call_id, call in self._open:
            self.items.append(self._result(call_id, call))
        self._open.clear()

    def _result(self, call_id: str, call: ToolCall) -> ResultItem:
        if call.status == "completed" and call.result_json and _is_plain(call.result_json):
            return ResultItem(call_id, sound(call.result_json), False, (), self.turn.id, self.part)
        text, pictures = _shown(call)
        text = text or self._answers.get(call.id) or ""
        failed = call.status != "completed"
        if not text and failed:
            text = call.error or NO_RESULT
            if call.status in (*OPEN_CALL, "cancelled"):
                self.row.repairs.append(Repair(self.turn.id, "call without a result", call.id))
        if not text and not pictures:
            text = NO_OUTPUT
        placed = tuple(map(self._placed, pictures)) if pictures else ()
        return ResultItem(call_id, sound(text), failed, placed, self.turn.id, self.part)


def _signer(turn: Turn) -> str | None:
    """The provider that signed a turn's thinking. Anthropic's is valid wherever Claude runs."""
    if turn.provider:
        return turn.provider
    return "anthropic" if "claude" in (turn.model or "") else None


def _answers(turn: Turn) -> dict[str | None, str | None]:
    """The results that came as messages, by call."""
    results = [message for message in turn.messages if message.role == "tool"]
    if not results:
        return {}
    called = {call.id for call in turn.tool_calls}
    return {
        message.tool_call_id: message.content
        for message in results
        if message.tool_call_id in called
    }


def _is_blank(message: Message) -> bool:
    """Whether this is an assistant's message that holds nothing but its calls."""
    return message.role == "assistant" and not message.content and not message.thinking


@lru_cache(maxsize=256)  # a thread calls few tools, often
def _tool_name(name: str) -> str:
    return REFUSED_IN_NAMES.sub("_", name)[:NAME_MAX]


def _params(text: str) -> str:
    value = decoded(text)
    if isinstance(value, dict):
        return sound(text)
    wrapped = {"input": sound(text) if value is None and text.strip() != "null" else value}
    return msgspec.json.encode(wrapped).decode()


def _shown(call: ToolCall) -> tuple[str, list[ImageItem]]:
    """What a call's result says, and the images in it."""
    if call.result_json is None:
        return "", []
    if _is_plain(call.result_json):
        return call.result_json, []
    value = decoded(call.result_json)
    if isinstance(value, str):
        return value, []
    blocks: Any = value.get("content") if isinstance(value, dict) else value
    if not _are_blocks(blocks):
        return call.result_json, []
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return "\n".join(texts), list(images.of_blocks(blocks, f"tool call {call.id}"))


def _is_plain(text: str) -> bool:
    """Whether this is an object without the key `content`, which need not be decoded."""
    return text.startswith("{") and '"content"' not in text and "\\u" not in text


def _are_blocks(value: Any) -> bool:
    """Whether this is content in blocks of text and images, and nothing else would be lost."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(part, dict)
            and (isinstance(part.get("text"), str) or part.get("type") in images.KINDS)
            for part in value
        )
    )
