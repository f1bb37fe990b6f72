"""Codex: one line of a rollout, and the prompt in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct

from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text, parse_json
from agents_ledger.importers.sources.codex import rules

NULL = Raw(b"null")
ORDINALS = range(1 << 63)
THREAD_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# The thread, and the rollout if the thread was reverted and has several (source: rollout names).
ROLLOUT_NAME = re.compile(rf"rollout-.*?({THREAD_ID})(?:_([0-9a-f-]+))?$")
SPACES = " \t\r\n"


class HistoryBase(NamedTuple):
    """The point in another rollout that a paginated rollout continues from."""

    rollout_id: str
    end: int  # the first ordinal after it


class Payload(Struct, gc=False):
    """The fields of a record that the tree needs. Any may be missing, or of another type."""

    type: Any = None
    id: Any = None
    turn_id: Any = None
    role: Any = None
    call_id: Any = None
    event_id: Any = None
    record_type: Any = None
    timestamp: Any = None
    info: Any = None
    usage: Any = None
    response_id: Any = None
    compaction_response_id: Any = None
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
    message: Raw = NULL
    content: Raw = NULL
    output: Raw = NULL
    item: Raw = NULL

    @property
    def is_old_head(self) -> bool:
        """Whether this is the first line of a rollout without envelopes."""
        is_head = isinstance(self.id, str) and isinstance(self.timestamp, str)
        return is_head and self.type is None and self.instructions is not UNSET

    @property
    def is_old(self) -> bool:
        """Whether only rollouts without envelopes have such a line."""
        return self.record_type == "state" or self.is_old_head

    @property
    def names_thread(self) -> bool:
        """Whether this is a line of the index, which gives a thread its title."""
        is_title = isinstance(self.id, str) and isinstance(self.thread_name, str)
        return is_title and self.type is None and self.timestamp is None

    @property
    def is_subagent(self) -> bool:
        return "subagent" in as_dict(self.source) or as_text(self.parent_thread_id) is not None

    @property
    def parent_thread(self) -> str | None:
        spawn = as_dict(as_dict(as_dict(self.source).get("subagent")).get("thread_spawn"))
        # 0.118 has it in `source`; `parent_thread_id` of its own was seen in 0.146.
        parent = as_text(spawn.get("parent_thread_id")) or as_text(self.parent_thread_id)
        return parent or (as_text(self.forked_from_id) if self.is_subagent else None)

    @property
    def base(self) -> HistoryBase | None:
        fields = as_dict(self.history_base)
        rollout_id, end = as_text(fields.get("thread_id")), fields.get("end_ordinal_exclusive")
        if rollout_id is None or not isinstance(end, int) or end not in ORDINALS:
            return None
        return HistoryBase(rollout_id, end)


class Envelope(Struct, gc=False):
    type: Any = None
    timestamp: Any = None
    ordinal: Any = None
    payload: Raw = NULL


decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_payload = msgspec.json.Decoder(Payload).decode


class CodexRecord(NamedTuple):
    """One line of a rollout. The kind is empty where there is no envelope."""

    kind: str
    timestamp: Any
    ordinal: Any
    payload: Payload
    payload_json: bytes


def decode_record(data: bytes) -> CodexRecord:
    envelope = decode_envelope(data)
    kind = envelope.type if isinstance(envelope.type, str) else ""
    payload_json: bytes = envelope.payload
    # A bare item also has a type: only the missing payload shows the old format.
    if kind not in rules.ENVELOPES and bytes(envelope.payload) == b"null":
        kind, payload_json = "", data
    payload = decode_payload(payload_json)
    return CodexRecord(kind, envelope.timestamp, envelope.ordinal, payload, payload_json)


def rollout_name(path: PurePath) -> re.Match[str] | None:
    """The thread and rollout in a file name, compressed or not; None for any other name."""
    # Files that are a week old are compressed, and unpacked again when the thread continues (2026).
    return ROLLOUT_NAME.match(path.name.removesuffix(".zst").removesuffix(".jsonl"))


# -- prompts ----------------------------------------------------------------------------------


class CodexPrompt(NamedTuple):
    text: str  # what was typed
    sent: str  # including everything the client put around it
    is_typed: bool  # it has a form that only a person's input has

    @property
    def is_scheduled(self) -> bool:
        return rules.SCHEDULED.match(self.sent) is not None

    @property
    def key(self) -> int:
        """Equal for the item and the event of one prompt, which differ in white space and in how
        they represent images."""
        text = rules.IMAGE_PLACEHOLDER.sub("", self.sent) if "[Image #" in self.sent else self.sent
        for space in SPACES:
            text = text.replace(space, "")
        return hash(text)


def content_text(content: Any) -> str:
    """The text of a content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    texts = [as_dict(block).get("text") for block in as_list(content)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def read_prompt(content: Any) -> CodexPrompt:
    """The prompt in the content of an item or of an event."""
    sent = content_text(list(_without_tags(content)) if isinstance(content, list) else content)
    request = _request(sent)
    answers = _answers(sent if request is None else request)
    is_typed = request is not None or answers is not None
    return CodexPrompt(answers or request or sent, sent, is_typed)


def event_prompt(message: Any, item: Any) -> CodexPrompt:
    """The prompt in an event, which has a message or an item."""
    return read_prompt(message or as_dict(item).get("content"))


def event_images(payload: dict[str, Any]) -> list[str]:
    blocks = as_list(as_dict(payload.get("item")).get("content"))
    paths = [as_dict(block).get("path") for block in blocks]
    return [path for path in (*as_list(payload.get("local_images")), *paths) if as_text(path)]


def _without_tags(blocks: list[Any]) -> Iterator[Any]:
    for index, block in enumerate(blocks):
        text = as_dict(block).get("text")
        if not (isinstance(text, str) and rules.IMAGE_TAG.fullmatch(text)):
            yield block
            continue
        image = index - 1 if text == "</image>" else index + 1
        if not 0 <= image < len(blocks) or "text" in as_dict(blocks[image]):
            yield block


def _request(sent: str) -> str | None:
    """What follows the preambles, which may be empty; None without a preamble."""
    start, has_preamble = 0, False
    while rules.PREAMBLE.match(sent, start) and (heading := rules.REQUEST.search(sent, start)):
        start, has_preamble = heading.end(), True
    if not has_preamble:
        return None
    end = sent.find(rules.EVIDENCE, start)
    return sent[start : end if end >= 0 else len(sent)].strip()


def _answers(text: str) -> str | None:
    """The answers to questions of the agent; None if this is not such a reply."""
    reply = rules.REPLY.fullmatch(text) if "<send_user_message_question_reply>" in text else None
    if reply is None:
        return None
    value = parse_json(reply[1])
    answers = [as_text(as_dict(item).get("answer")) for item in as_list(value) or [value]]
    return "\n\n".join(answer for answer in answers if answer) or None
