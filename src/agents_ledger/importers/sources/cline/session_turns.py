"""Cline's sessions: what a message is, and the content of one turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents_ledger.importers.sources.cline.turns import HUMAN, TOLD, Record, blocks, texts
from agents_ledger.importers.transcript.message_tree import Kind, PlannedTurn
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    as_dict,
    as_list,
    as_number,
    as_text,
    without_data,
)
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.turns import FileKind, MessageFile, MessageSource, Turn

# What the harness puts around the words of a person, and into their mouth.
WRAPPER = re.compile(r"\s*<(user_input|user_command)\b([^>]*)>")
ATTRIBUTE = re.compile(r'(mode|slash)="([^"]+)"')
MODE_NOTICE = re.compile(r"<mode_notice>[^<]*</mode_notice>\s*")
TEAM = "spawn a team of agents for the following task:"
RESUMED = "Warning: this is a legacy conversation, which means tool names may have changed."
BY_CLIENT = (
    RESUMED,
    "<hook_context",
    "[SYSTEM] ",
    "[TASK RESUMPTION]",
    "System-delivered teammate async run updates:",
    "The user approved switching to act mode. Continue with the approved plan now.",
)
COMPACTIONS = ("compaction", "compaction_summary")
SYNTHETIC = (
    "auto_compaction",
    "compaction_budget_emergency",
    "completion_reminder",
    "loop_detection_notice",
    "manual_compaction",
    "mistake_stop_notice",
    "recovery_notice",
)
SHOWN_ROLES = ("error", "status", "system")
SPAWNING = ("spawn_agent", "team_run_task")
TOKENS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadTokens": "cached_input_tokens",
    "cacheWriteTokens": "cache_write_tokens",
    "reasoningTokenCount": "reasoning_tokens",
}
FILE_TOOLS: dict[str, FileKind] = {"editor": "written", "read_files": "read"}
PATHS = ("path", "file_path", "filePath", "files", "file_paths", "paths")
APART = ("file", "text", "thinking", "tool_result", "tool_use")  # blocks that are shown elsewhere


class Words(NamedTuple):
    """What a person said in a text, and in which mode."""

    text: str
    mode: str | None = None
    is_wrapped: bool = False


def words_of(text: str) -> Words:
    """A text without what is wrapped around it."""
    start = WRAPPER.match(MODE_NOTICE.sub("", text))
    if start is None:
        said = MODE_NOTICE.sub("", text).strip()
        older = HUMAN.fullmatch(said)
        return Words(older[2] if older else said)
    inner = start.string[start.end() :]
    end = inner.rfind(f"</{start[1]}>")
    said = (inner[:end] if end >= 0 else inner).strip()
    told = dict(ATTRIBUTE.findall(start[2]))
    if "slash" in told:
        if told["slash"].lower() == "team" and said.lower().startswith(TEAM):
            said = said[len(TEAM) :].strip()
        said = f"/{told['slash']} {said}".strip()
    return Words(said, told.get("mode"), is_wrapped=True)


def said_by_person(content: Any) -> list[Words]:
    """The words in a message of the user's side; results and surroundings that older versions wrote
    as text are none."""
    found = []
    for text in texts(content):
        if TOLD.match(text) or text.startswith("<environment_details>"):
            found += [Words(human[1]) for human in HUMAN.findall(text)]
        else:
            found.append(words_of(text))
    return [each for each in found if each.text]


def result_ids(content: Any) -> list[str]:
    """The calls whose results a message has."""
    return [str(b.get("tool_use_id")) for b in blocks(content) if b.get("type") == "tool_result"]


def spawning(content: Any) -> Iterator[tuple[str, str]]:
    """The calls of a message that start an agent, each with the task it is given."""
    for block in blocks(content):
        task = as_text(as_dict(block.get("input")).get("task"))
        if task and block.get("name") in SPAWNING and block.get("type") == "tool_use":
            yield str(block.get("id")), task


def kind_of(role: Any, content: Any, metadata: Any) -> Kind | None:
    """What a message is; None: it makes no row."""
    if role != "user":
        return "reply" if role == "assistant" else None
    said = as_dict(metadata)
    if said.get("kind") in COMPACTIONS:
        return "compaction"
    words = said_by_person(content)
    if _is_synthetic(said, words):
        return "failure" if _shown_as(said) == "error" else "notice"
    if result_ids(content):
        return "reply"
    attached = any(block.get("type") in ("file", "image") for block in blocks(content))
    if words or attached:
        return "prompt"
    return "reply" if texts(content) else "notice"


def _shown_as(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("displayRole")).strip().lower()


def _is_synthetic(metadata: Mapping[str, Any], words: Sequence[Words]) -> bool:
    """Whether the client says this to the model, in the place of a person."""
    if _shown_as(metadata) in SHOWN_ROLES or metadata.get("kind") in SYNTHETIC:
        return True
    if metadata.get("userRunSpan") == 0 and words and not any(w.is_wrapped for w in words):
        return True  # what a person adds to a run is wrapped
    return bool(words) and words[0].text.startswith(BY_CLIENT)


class Told(NamedTuple):
    """What is known of a turn beside its messages."""

    asked_by: MessageSource
    workspace: str | None
    spawned: Mapping[str, str]  # sessions of agents by the calls that started them
    unmetered: frozenset[str]  # messages whose tokens others have counted


def build(turn: PlannedTurn, records: Sequence[Record], told: Told) -> Turn:
    """A turn of a session."""
    return _Building(turn, told).built(records)


class _Building:
    def __init__(self, turn: PlannedTurn, told: Told) -> None:
        self.builder = TurnBuilder(turn.id, turn.parent)
        self.builder.workspace_path = told.workspace
        self.told = told
        self.calls: dict[str, str] = {}  # ours by the ids of the source: some give one twice

    def built(self, records: Sequence[Record]) -> Turn:
        times = (milliseconds(said.get("ts")) for _, _, said in records)
        at = next(filter(None, times), 0)
        for message_id, kind, said in records:
            at = milliseconds(said.get("ts")) or at
            if kind == "compaction":
                self._compaction(message_id, said, at)
            elif kind in ("notice", "failure"):
                self._notice(message_id, said, at, failed=kind == "failure")
            elif said.get("role") == "assistant":
                self._reply(message_id, said, at)
            else:
                self._input(message_id, said, at)
        return self.builder.build()

    def _notice(self, message_id: str, said: dict[str, Any], at: int, *, failed: bool) -> None:
        text = "\n\n".join(words_of(text).text for text in texts(said.get("content")))
        metadata = as_dict(said.get("metadata"))
        told = as_text(metadata.get("kind")) or as_text(metadata.get("displayRole"))
        self.builder.message(
            message_id, "system", text, at=at, source="event", metadata={"type": told or "client"}
        )
        if failed and not self.builder.answered:
            self.builder.failed, self.builder.error = True, text or "error"

    def _compaction(self, message_id: str, said: dict[str, Any], at: int) -> None:
        metadata = as_dict(said.get("metadata"))
        summary = as_text(metadata.get("summary")) or "\n\n".join(texts(said.get("content")))
        self.builder.message(message_id, "system", summary, at=at, source="event")
        if self.builder.parent_id is not None:
            self.builder.compaction = Compaction(
                summary,
                self.builder.parent_id,
                tokens_before=as_number(metadata.get("tokensBefore")),
            )

    def _input(self, message_id: str, said: dict[str, Any], at: int) -> None:
        content = said.get("content")
        for block in blocks(content):
            if block.get("type") == "tool_result":
                self._result(str(block.get("tool_use_id")), block, block.get("content"), at)
        words = said_by_person(content)
        others = [without_data(b) for b in blocks(content) if b.get("type") not in APART]
        attached = [b for b in blocks(content) if b.get("type") == "file"]
        if not (words or others or attached):
            self.builder.ended_at = max(self.builder.ended_at, at)
            return
        modes = [each.mode for each in words if each.mode]
        metadata = {"blocks": others, "mode": modes[0] if modes else None}
        paths = [path for block in attached if (path := as_text(block.get("path")))]
        self.builder.message(
            message_id,
            "user",
            "\n\n".join(each.text for each in words),
            at=at,
            source=self.told.asked_by,
            metadata={name: value for name, value in metadata.items() if value},
            context={"files": attached} if attached else None,
            files=[MessageFile("attached", path) for path in paths],
        )

    def _reply(self, message_id: str, said: dict[str, Any], at: int) -> None:
        self.builder.failed, self.builder.error = False, None
        content, metadata = said.get("content"), as_dict(said.get("metadata"))
        thoughts = (as_text(b.get("thinking")) for b in blocks(content))
        others = [without_data(b) for b in blocks(content) if b.get("type") not in APART]
        metrics = as_dict(said.get("metrics"))
        self._cost(message_id, said, metrics)
        kept = {"blocks": others, "cost": metrics.get("cost")}
        self.builder.message(
            message_id,
            "assistant",
            "\n\n".join(texts(content)),
            at=at,
            thinking="\n\n".join(filter(None, thoughts)) or None,
            metadata={name: value for name, value in kept.items() if value},
        )
        for activity in map(as_dict, as_list(metadata.get("modelToolActivities"))):
            call_id = str(activity.get("toolCallId"))
            self._call(message_id, call_id, activity.get("toolName"), activity.get("input"), at)
            if "output" in activity or "isError" in activity:
                told = {"is_error": activity.get("isError")}
                self._result(call_id, told, activity.get("output"), at)
        for block in blocks(content):
            if block.get("type") == "tool_use":
                call_id = str(block.get("id"))
                self._call(message_id, call_id, block.get("name"), block.get("input"), at)

    def _cost(self, message_id: str, said: dict[str, Any], metrics: dict[str, Any]) -> None:
        """The input includes what came from the cache or went into it."""
        model = as_dict(said.get("modelInfo"))
        self.builder.model = as_text(model.get("id")) or self.builder.model
        self.builder.provider = as_text(model.get("provider")) or self.builder.provider
        counted = {ours: as_number(metrics.get(name)) for name, ours in TOKENS.items()}
        if message_id in self.told.unmetered or all(n is None for n in counted.values()):
            return
        total = (counted["input_tokens"] or 0) + (counted["output_tokens"] or 0)
        self.builder.add_tokens(**counted, total_tokens=total)

    def _call(self, message_id: str, own_id: str, name: Any, params: Any, at: int) -> None:
        call_id = own_id if own_id not in self.calls else f"{own_id}:{message_id}"
        self.calls[own_id] = call_id
        tool = as_text(name) or "unknown"
        self.builder.call(call_id, tool, without_data(params), at=at, message_id=message_id)
        if own_id in self.told.spawned:
            self.builder.spawned(call_id, self.told.spawned[own_id])
        if tool in FILE_TOOLS:
            files = [MessageFile(FILE_TOOLS[tool], path) for path in _paths(params)]
            self.builder.add_files(message_id, files)

    def _result(self, own_id: str, told: dict[str, Any], content: Any, at: int) -> None:
        failed = bool(told.get("is_error"))
        error = as_text(content) or "\n".join(texts(content)) or "failed"
        self.builder.result(
            self.calls.get(own_id, own_id),
            without_data(content),
            at=at,
            status="failed" if failed else "completed",
            error=error if failed else None,
        )


def _paths(given: Any, depth: int = 3) -> list[str]:
    """The files that a call names, in any of the forms the tools take."""
    if isinstance(given, str):
        return [given] if given else []
    if isinstance(given, dict):
        given = [given[name] for name in PATHS if name in given]
    if not depth:
        return []
    return [path for each in as_list(given) for path in _paths(each, depth - 1)]
