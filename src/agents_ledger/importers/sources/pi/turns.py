"""pi and OpenClaw: the content of one turn, from its entries in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from agents_ledger.importers.sources.pi.nodes import Config
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    LONE,
    as_dict,
    as_list,
    as_number,
    as_text,
    parsed,
    without_data,
)
from agents_ledger.ledger.reports.events import readable
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.turns import FileKind, MessageFile, MessageSource, Turn, to_json

FILE_TOOLS: dict[str, FileKind] = {
    "edit": "written",
    "edit_file": "written",
    "read": "read",
    "read_file": "read",
    "write": "written",
    "write_file": "written",
}
FAILURES = {"error", "forbidden", "timeout"}  # so a tool of OpenClaw says in its result
NOT_CALLED = {"delivery-mirror", "gateway-injected"}  # "models" of copies that the gateway writes
SILENT = {"NO_REPLY", "HEARTBEAT_OK"}
ENVELOPE = re.compile(r"\[(?:[A-Z][a-z]{2} \d{4}-\d\d-\d\d[^\]]*\] )?\[?([A-Z][A-Za-z]+) [^\]]*\]")
MESSAGE_ID = re.compile(r"\[message_id: ([^\]\s]+)\]")
TIME = re.compile(r"^\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d[^\]]*\] ")
SPEAKERS: tuple[tuple[str, MessageSource], ...] = (  # by how a text begins
    (r"\[cron:|A scheduled reminder has been triggered\.", "cron"),
    (r"Read HEARTBEAT\.md|\[OpenClaw heartbeat", "trigger"),
    (r"A new session was started via /new or /reset|Pre-compaction memory flush", "trigger"),
    (r"Continue where you left off\. The previous model attempt ", "trigger"),
    (r"An async command (?:you ran earlier|the user already approved) has completed", "event"),
    (r"OpenClaw runtime context \(internal\):\n", "event"),
    (r"\[Subagent Context\]", "agent"),
    (r"\[System Message\]|\[Queued announce messages", "event"),
    (r'A (?:background task|subagent task|cron job) "[^\n]*" just ', "event"),
)
PARTS = {  # of the tokens of a call, as the source calls them
    "input_tokens": "input",
    "output_tokens": "output",
    "cached_input_tokens": "cacheRead",
    "cache_write_tokens": "cacheWrite",
}
# A skill that was called with `/skill:name`, as the program puts it in; then what was given to it.
SKILL = re.compile(
    r'(?P<text><skill name="(?P<name>[^"]+)" location="[^"]+">\n.*?\n</skill>)'
    r"(?:\n\n(?P<given>.+))?",
    re.DOTALL,
)
NOTICES = ("System:", "System (untrusted):")  # before what is asked
PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.*\S)", re.M)


class Node(NamedTuple):
    """An entry that says something."""

    key: str
    kind: str
    entry_id: str | None
    at: int


class Framing(NamedTuple):
    """Where a turn stands."""

    turn_id: str
    parent_id: str | None
    sealed: bool  # it has successors: it is no longer open
    through: str | None  # the last turn that a compaction summarised
    kept: str | None


class Setting(NamedTuple):
    """What the session says of its turns."""

    asked_by: MessageSource
    cwd: str | None
    spawned: dict[str, str]  # sessions, by the call that started them
    config: Config


def text_of(content: Any) -> str:
    """The words of a content: a text, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    words = [as_dict(b).get("text") for b in as_list(content) if as_dict(b).get("type") == "text"]
    return "\n\n".join(word for word in words if isinstance(word, str))


def total_of(usage: dict[str, Any]) -> int:
    """The tokens of a call, as they are said or added up."""
    total = as_number(usage.get("totalTokens"))
    if total is None:
        total = sum(as_number(usage.get(said)) or 0 for said in PARTS.values())
    return total


def build_turn(
    framing: Framing, setting: Setting, entries: Iterable[tuple[str, str, bytes]]
) -> Turn:
    """The turn that these entries make, each given with its name and its kind."""
    builder = TurnBuilder(framing.turn_id, framing.parent_id)
    builder.workspace_path = setting.cwd
    builder.effective_config_json = to_json(setting.config) if setting.config else None
    return _Turn(builder, framing, setting).built(entries)


class _Turn:
    def __init__(self, builder: TurnBuilder, framing: Framing, setting: Setting) -> None:
        self.builder = builder
        self.framing = framing
        self.asked_by = setting.asked_by
        self.spawned = setting.spawned
        # Some models count their calls, and give several one id.
        self.times: Counter[str] = Counter()
        self.names: set[str] = set()
        self.waiting: dict[str, tuple[str, list[str]]] = {}  # by id: those of the last message

    def built(self, entries: Iterable[tuple[str, str, bytes]]) -> Turn:
        for key, kind, data in entries:
            entry = as_dict(parsed(data))
            message = as_dict(entry.get("message"))
            at = milliseconds(entry.get("timestamp"))
            node = Node(key, kind, _whole(entry.get("id")), at)
            self._take(node, entry, message)
        open_ = not (self.builder.answered or self.builder.compaction)
        if open_ and self.framing.sealed:
            self.builder.error = self.builder.error or "no answer recorded"
            return self.builder.build(status="failed")
        return self.builder.build()

    def _take(self, node: Node, entry: dict[str, Any], message: dict[str, Any]) -> None:
        if node.kind == "assistant":
            self._say(node, message)
        elif node.kind == "result":
            self._result(node, message)
        elif node.kind == "bash":
            self._bash(node, message)
        elif node.kind == "compaction":
            self._compacted(node, entry)
        elif node.kind == "prompt":
            self._hear(node, message)
        elif node.kind == "usage":
            self._spend(as_dict(entry.get("usage")))
        else:
            self._notice(node, entry, message)

    # -- what was asked -----------------------------------------------------------------------

    def _hear(self, node: Node, message: dict[str, Any]) -> None:
        text = text_of(message.get("content"))
        skill = SKILL.fullmatch(text)
        if skill:
            text = " ".join(filter(None, (f"/skill:{skill['name']}", skill["given"])))
        metadata = _known_by(node) | _blocks(message.get("content"))
        source = _source(text, message, self.asked_by)
        channel = ENVELOPE.match(text)
        if channel and source == "human":
            metadata["channel"] = channel[1]
        number = MESSAGE_ID.search(text)
        if number:
            metadata["message_id"] = number[1]
        self.builder.message(node.key, "user", text, at=node.at, source=source, metadata=metadata)
        if skill:
            self.builder.message(
                f"{node.key}:skill",
                "user",
                skill["text"],
                at=node.at,
                source="event",
                metadata=_known_by(node) | {"skill": skill["name"]},
            )

    def _bash(self, node: Node, message: dict[str, Any]) -> None:
        """A command that the human ran; the agent sees what it printed."""
        names = ("exitCode", "cancelled", "truncated", "fullOutputPath", "excludeFromContext")
        said = {name: message[name] for name in names if message.get(name) not in (None, False)}
        text = f"!{as_text(message.get('command')) or ''}\n{as_text(message.get('output')) or ''}"
        self.builder.message(
            node.key,
            "user",
            text,
            at=node.at,
            source="human",
            metadata=_known_by(node) | {"bash": said},
        )

    def _notice(self, node: Node, entry: dict[str, Any], message: dict[str, Any]) -> None:
        """What the program put in, or what hooks and extensions did."""
        content = message.get("content", entry.get("content", entry.get("summary")))
        content = message.get("summary") if content is None else content
        metadata = _known_by(node) | _blocks(content)
        if node.kind == "branch":
            metadata |= self._spend(as_dict(entry.get("usage")))
        for name in ("customType", "display", "fromId", "details"):
            said = message.get(name, entry.get(name))
            if said not in (None, "", {}, []):
                metadata[name] = without_data(said)
        data = entry.get("data")
        text = text_of(content)
        if data is not None and not text:
            text = as_text(as_dict(data).get("error")) or to_json(data)
            self.builder.error = text
        is_system = message.get("role") == "system" or entry.get("type") == "custom"
        self.builder.message(
            node.key,
            "system" if is_system else "user",
            text,
            at=node.at,
            source="event",
            metadata=metadata,
        )

    # -- what the agent did -------------------------------------------------------------------

    def _say(self, node: Node, message: dict[str, Any]) -> None:
        content = message.get("content")
        text = text_of(content)
        blocks = [as_dict(block) for block in as_list(content)]
        thoughts = [b.get("thinking") for b in blocks if b.get("type") == "thinking"]
        metadata = _known_by(node)
        for name in ("api", "stopReason", "responseId"):
            if as_text(message.get(name)):
                metadata[name] = message[name]
        if thoughts and not any(thoughts):
            metadata["thinking_withheld"] = True
        if text.strip() in SILENT:
            metadata["silent"] = True
        if as_text(message.get("model")) in NOT_CALLED:
            metadata["injected"] = message["model"]
        else:
            self._count(message, metadata)
        self.builder.message(
            node.key,
            "assistant",
            text,
            at=node.at,
            thinking="\n\n".join(t for t in thoughts if isinstance(t, str) and t) or None,
            metadata=metadata,
        )
        for block in blocks:
            if block.get("type") == "toolCall":
                self._call(node, block)

    def _count(self, message: dict[str, Any], metadata: dict[str, Any]) -> None:
        failed = message.get("stopReason") in ("error", "aborted")
        self.builder.failed = message.get("stopReason") == "error"
        said = as_text(message.get("errorMessage"))
        self.builder.error = (said or str(message["stopReason"])) if failed else None
        self.builder.model = as_text(message.get("model")) or self.builder.model
        self.builder.provider = as_text(message.get("provider")) or self.builder.provider
        metadata |= self._spend(as_dict(message.get("usage")))

    def _spend(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Count the tokens of a call; what it cost, if that is said."""
        if not usage:
            return {}
        parts = {name: as_number(usage.get(said)) for name, said in PARTS.items()}
        self.builder.add_tokens(**parts, total_tokens=total_of(usage))
        cost = as_dict(usage.get("cost")).get("total")
        return {"cost": cost} if isinstance(cost, (int, float)) and cost else {}

    def _call(self, node: Node, block: dict[str, Any]) -> None:
        name, call_id = as_text(block.get("name")) or "unknown", as_text(block.get("id"))
        if call_id is None:
            return
        given = block.get("arguments")
        params = given if isinstance(given, dict) else {"input": given} if given else {}
        own = self._own_name(node, call_id)
        self.builder.call(own, name, params, at=node.at, message_id=node.key)
        self.builder.add_files(node.key, list(_files(name, params)))
        if own in self.spawned:
            self.builder.spawned(own, self.spawned[own])

    def _own_name(self, node: Node, call_id: str) -> str:
        """What a call goes by that no other of the turn does."""
        name = call_id
        while name in self.names:
            self.times[call_id] += 1
            name = f"{call_id}:{self.times[call_id] + 1}"
        self.names.add(name)
        message, calls = self.waiting.get(call_id, ("", []))
        if message != node.key:
            calls = []
        self.waiting[call_id] = (node.key, [*calls, name])
        return name

    def _answered(self, call_id: str) -> str:
        """The call of an id that a result belongs to: of the last message that made any, the first
        that has none."""
        _, calls = self.waiting.get(call_id, ("", [call_id]))
        return calls.pop(0) if len(calls) > 1 else calls[0]

    def _result(self, node: Node, message: dict[str, Any]) -> None:
        content, details = without_data(message.get("content")), message.get("details")
        text = text_of(content)
        shown = content
        if details not in (None, {}, []):
            shown = {"content": content, "details": without_data(details)}
        word = as_text(as_dict(details).get("status"))
        failed = message.get("isError") is True or word in FAILURES
        told = as_text(as_dict(details).get("error"))
        call_id = _whole(message.get("toolCallId"))
        known = self.builder.result(
            self._answered(call_id or ""),
            shown,
            at=node.at,
            status="failed" if failed else "completed",
            error=(told or text or "failed") if failed else None,
            source_status=word,
        )
        if not known:
            self.builder.message(
                node.key,
                "tool",
                text,
                at=node.at,
                source="event",
                tool_call_id=call_id,
                metadata=_known_by(node) | {"tool": message.get("toolName")},
            )

    def _compacted(self, node: Node, entry: dict[str, Any]) -> None:
        summary = as_text(entry.get("summary")) or ""
        details = as_dict(entry.get("details"))
        kinds: tuple[tuple[str, FileKind], ...] = (
            ("readFiles", "read"),
            ("modifiedFiles", "written"),
        )
        files = [
            MessageFile(kind, path)
            for name, kind in kinds
            for path in as_list(details.get(name))
            if as_text(path)
        ]
        metadata = _known_by(node) | self._spend(as_dict(entry.get("usage")))
        if entry.get("fromHook"):
            metadata["from_hook"] = True
        self.builder.message(
            node.key, "system", summary, at=node.at, source="event", metadata=metadata, files=files
        )
        if self.framing.through is not None:
            self.builder.compaction = Compaction(
                summary,
                self.framing.through,
                self.framing.kept,
                tokens_before=as_number(entry.get("tokensBefore")),
            )


def _whole(said: Any) -> str | None:
    """A name as the outline has it: without halves of letters."""
    name = as_text(said)
    return name if name is None or name.isascii() else LONE.sub("\ufffd", name)


def _known_by(node: Node) -> dict[str, Any]:
    return {"entry_id": node.entry_id} if node.entry_id else {}


def _blocks(content: Any) -> dict[str, Any]:
    """Blocks that are not text; the bytes of images stay in the source record."""
    others = [b for b in as_list(content) if as_dict(b).get("type") != "text"]
    return {"blocks": without_data(others)} if others else {}


def _source(text: str, message: dict[str, Any], asked_by: MessageSource) -> MessageSource:
    """Who said this. A session's key tells, and OpenClaw's marks in the text."""
    provenance = as_dict(message.get("provenance")).get("kind")
    if provenance == "inter_session":
        return "agent"
    if asked_by != "human":
        return asked_by
    said = TIME.sub("", readable(text), count=1)
    asked = {said}
    if text.startswith(NOTICES):  # before it, with an empty line between
        asked |= {said.partition("\n\n")[2], said.rpartition("\n\n")[2]}
    opening = [TIME.sub("", each, count=1) for each in asked]
    for begins, source in SPEAKERS:
        if any(re.match(begins, each) for each in opening):
            return source
    is_notice = said.startswith(NOTICES) and "\n\n" not in said
    return "event" if is_notice or provenance == "internal_system" else "human"


def _files(name: str, params: dict[str, Any]) -> Iterator[MessageFile]:
    path = as_text(params.get("path")) or as_text(params.get("file_path"))
    if name in FILE_TOOLS and path:
        yield MessageFile(FILE_TOOLS[name], path)
    patch = params.get("input")
    if name == "apply_patch" and isinstance(patch, str):
        for found in dict.fromkeys(PATCHED.findall(patch)):
            yield MessageFile("written", found)
