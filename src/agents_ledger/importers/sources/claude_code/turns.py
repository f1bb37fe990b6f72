"""Claude Code: the content of turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import Struct

from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_number, as_text
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.claude_code import rules
from agents_ledger.importers.sources.claude_code.records import (
    blocks_of,
    read_content,
    spill_shown,
    subagent_of_result,
)
from agents_ledger.importers.sources.claude_code.rules import ASKING, COMPACTION, PASSIVE
from agents_ledger.importers.sources.claude_code.tree import ClaudeTree, PreservedTurns
from agents_ledger.importers.transcript.field_maps import token_counts
from agents_ledger.importers.transcript.lazy_turns import LazyTurns
from agents_ledger.importers.transcript.lines import text_of
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.turns import CallStatus, MessageSource, Turn, TurnStatus

THINKING = ("thinking", "redacted_thinking")
# Endings of types: tools that the provider runs have prefixes, as in server_tool_use.
SHOWN = ("text", "thinking", "tool_use", "tool_result")
# promptSource and origin say who wrote a prompt, in new versions only (2.1.220 has both).
METADATA = ("requestId", "permissionMode", "promptSource", "origin", "isApiErrorMessage")
NOTICE_METADATA = ("subtype", "level", "error", "retryAttempt", "durationMs")
Json = dict[str, Any]


class SpilledOutput(Struct, frozen=True):
    """An output that was too large for a record, in a file of its own."""

    file: SourceFile
    checksum: bytes


class TurnExtras(NamedTuple):
    """What belongs to turns and is not in their records."""

    spills: Mapping[str, SpilledOutput]
    spawned: Mapping[int, Mapping[str, str]]  # by entry and call, the session of a subagent
    preserved: Mapping[int, PreservedTurns]  # by the turn of a compaction


class ClaudeTurns(LazyTurns):
    turn_tree: ClaudeTree

    def __init__(self, tree: ClaudeTree, version: int, extras: TurnExtras) -> None:
        self._entries = tree.entries
        self._extras = extras
        self._has_copies = tree.entries.has_kind("copy")
        super().__init__(tree, version)

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        """Its records, the outputs and subagents they refer to, and what a compaction preserved."""
        parts = list(map(self._entries.fingerprint, self._own(turn)))
        parts += [spill.checksum for _, spill in sorted(self._spills(turn).items())]
        children = sorted(self._spawned(turn).items())
        preserved = self._extras.preserved.get(turn) or ()
        extras = [*preserved, *(text for pair in children for text in pair)]
        if extras:
            parts.append(":".join(extras).encode(errors="replace"))
        return parts, self._entries.files.union(self.turn_tree.members(turn))

    def record_ids(self, turn: int) -> Iterable[str]:
        return map(self._entries.name, self._own(turn))

    def repeated_ids(self, turn: int) -> Iterable[str]:
        entries = self._entries
        members = self.turn_tree.members(turn) if self._has_copies else ()
        return (entries.name(entry) for entry in members if entries.kind(entry) == "copy")

    def build(self, turn: int) -> Turn:
        entries, own = self._entries, self._own(turn)
        log = ClaudeTurnRecords(
            list(map(entries.name, own)),
            list(map(entries.kind, own)),
            entries.records(own, lambda entry: read_content(entries.data(entry))),
        )
        content = _ClaudeTurnContent(
            entries.material,
            TurnBuilder(self.name(turn), self.parent_name(turn), entries.material.limits),
            log,
            self._spawned(turn),
            self._spills(turn),
            self._extras.preserved.get(turn),
        )
        return content.build()

    def _own(self, turn: int) -> Sequence[int]:
        """The entries of a turn without those that repeat others."""
        members = self.turn_tree.members(turn)
        if not self._has_copies:
            return members
        return [entry for entry in members if self._entries.kind(entry) != "copy"]

    def _spawned(self, turn: int) -> dict[str, str]:
        spawned = self._extras.spawned
        members = self.turn_tree.members(turn) if spawned else ()
        return {call: label for e in members for call, label in spawned.get(e, {}).items()}

    def _spills(self, turn: int) -> dict[str, SpilledOutput]:
        spills = self._entries.spills
        members = self.turn_tree.members(turn) if spills else ()
        return {key: self._extras.spills[key] for e in members for key in spills.get(e, ())}


class ClaudeTurnRecords(NamedTuple):
    """The records of a turn in order."""

    uuids: Sequence[str]
    kinds: Sequence[str]
    records: Sequence[Json]


@dataclass
class _ClaudeTurnContent:
    material: Material
    builder: TurnBuilder
    log: ClaudeTurnRecords
    spawned: Mapping[str, str]
    spills: Mapping[str, SpilledOutput]
    preserved: PreservedTurns | None

    def __post_init__(self) -> None:
        uuids, kinds, records = self.log
        self.local = _local_commands(self.log)
        self.pieces: dict[str, list[int]] = {}  # by API response, the indexes of its records
        self.caller_of: dict[str, int] = {}  # by call, the index of its record
        for at, kind in enumerate(kinds):
            if kind == "assistant":
                self.pieces.setdefault(_message_id(uuids[at], records[at]), []).append(at)
                for call in _block_ids(records[at], "id"):
                    self.caller_of.setdefault(call, at)

    def build(self) -> Turn:
        uuids, kinds, records = self.log
        active = (at for at, kind in enumerate(kinds) if kind not in PASSIVE)
        first = next(active, 0)
        # A turn starts with its first real prompt: a `/model` before it may be hours older.
        asks = next((at for at in (first, *active) if uuids[at] not in self.local), first)
        self.builder.started_at = milliseconds(records[asks].get("timestamp"))
        for at, record in _results_after_calls(self.log, self.caller_of):
            self.builder.at = milliseconds(record.get("timestamp"))
            self._add(at, uuids[at], kinds[at], record)
            # The first folder counts: `cd` in a shell changes the cwd of later records.
            self.builder.workspace_path = self.builder.workspace_path or as_text(record.get("cwd"))
        return self.builder.build(status=self._status())

    def _status(self) -> TurnStatus | None:
        """The status of a turn without an answer; None if it is as usual."""
        if not self.builder.is_open:
            return None
        uuids, kinds, _ = self.log
        printed = "printed" in kinds and "queued" not in kinds
        prompts = (uuid for uuid, kind in zip(uuids, kinds, strict=True) if kind in ASKING)
        if (self.local or printed) and self.local.issuperset(prompts):
            return "completed"  # no agent was asked
        # A compaction without its past is a plain turn with the summary.
        return None if set(COMPACTION).isdisjoint(kinds) else "completed"

    def _add(self, at: int, uuid: str, kind: str, record: Json) -> None:
        if kind == "assistant":
            self._add_assistant(at, record)
        elif kind == "result":
            self._add_results(uuid, record)
        elif kind in COMPACTION:
            self._add_compaction(uuid, record)
        elif kind != "other":
            ended_at = self.builder.ended_at
            self._add_input(uuid, kind, record)
            if uuid in self.local or (kind in PASSIVE and kind != "failure"):
                self.builder.ended_at = ended_at  # the agent no longer worked

    # -- prompts and notices ------------------------------------------------------------------

    def _add_input(self, uuid: str, kind: str, record: Json) -> None:
        if kind in ASKING and uuid not in self.local:  # an earlier failure was of another prompt
            self.builder.failed, self.builder.error = False, None
        if kind != "queued" and record.get("type") == "system":
            self._add_notice(uuid, kind, record)
            return
        content = _message(record).get("content")
        metadata = {name: record[name] for name in METADATA if record.get(name)}
        if kind == "queued":
            attachment = as_dict(record.get("attachment"))
            content = attachment.get("prompt") if attachment else record.get("content")
            metadata["queued"] = True
        sent = text_of(content)
        text = rules.words_of(sent) if kind in ("queued", *ASKING) else sent
        self._note_failure(kind, text)
        if record.get("isMeta"):
            metadata["meta"] = True
        if blocks := _other_blocks(content):
            metadata["blocks"] = blocks
        source = self._source(uuid, kind, record, sent)
        context = {"sent": sent} if sent != text else None
        self.builder.message(uuid, "user", text, source=source, metadata=metadata, context=context)

    def _source(self, uuid: str, kind: str, record: Json, text: str) -> MessageSource:
        """Who wrote a message. New versions say so in `origin`."""
        attachment = as_dict(record.get("attachment"))
        origin = as_dict(record.get("origin") or attachment.get("origin")).get("kind", "human")
        if kind == "prompt" and text.startswith(rules.SIDE_QUESTION):
            return "human"
        if text.startswith(rules.AGENT_TAGS) or origin == "peer" or record.get("isSidechain"):
            return "agent"
        if origin != "human":
            return "event"
        if kind == "queued":
            # A command in the queue is for the program; none is given to the agent as it is typed.
            is_notice = (
                attachment.get("commandMode") == "task-notification"
                if attachment
                else rules.is_command(text)
            )
            return "event" if is_notice or text.startswith(rules.QUEUED_NOTICES) else "human"
        is_typed = kind in ASKING and uuid not in self.local
        # A prompt with `planContent` is written by the program when a plan is accepted.
        injected = record.get("planContent") or record.get("isMeta")
        return "human" if is_typed and not injected else "event"

    def _note_failure(self, kind: str, text: str | None) -> None:
        """A turn without an answer fails when it is interrupted or given up."""
        if kind == "failure" and not self.builder.answered:
            self.builder.failed, self.builder.error = True, text or "failed"

    def _add_notice(self, uuid: str, kind: str, record: Json) -> None:
        text = as_text(record.get("content"))
        if record.get("subtype") == "api_error":
            text = text or _refusal(record)
        self._note_failure(kind, text)
        metadata = {name: record[name] for name in NOTICE_METADATA if record.get(name)}
        self.builder.notice(uuid, text, metadata=metadata)

    # -- answers ------------------------------------------------------------------------------

    def _add_assistant(self, index: int, record: Json) -> None:
        """A record of an API response. Its first record adds the message of all of them."""
        uuids, _, records = self.log
        pieces = self.pieces[_message_id(uuids[index], record)]
        if index == pieces[0]:
            self._add_answer([(uuids[piece], records[piece]) for piece in pieces])
        for block in _blocks(record):
            kind = _block_type(block)
            if kind.endswith("tool_use"):
                self._add_call(block, uuids[pieces[0]])
            elif kind.endswith("tool_result"):  # of a tool that the provider runs
                status, error = _result_status(block)
                result = _without_images(block.get("content"))
                call_id = as_text(block.get("tool_use_id")) or ""
                self.builder.result(call_id, result, status=status, error=error)

    def _add_answer(self, pieces: list[tuple[str, Json]]) -> None:
        """One API response: 66 % of them are in several records, one for each block."""
        blocks = [block for _, record in pieces for block in _blocks(record)]
        texts = (b.get("text") for b in blocks if b.get("type") == "text")
        thoughts = [b.get("thinking") for b in blocks if b.get("type") in THINKING]
        shown_thoughts = [text for text in thoughts if isinstance(text, str) and text]
        # Every record of an answer repeats its usage: the sum would count the input 3.2 times.
        _, counted = max(reversed(pieces), key=lambda piece: _usage_rank(piece[1]))
        message = _message(counted)
        metadata: Json = {
            name: record[name] for _, record in pieces for name in METADATA if record.get(name)
        }
        metadata |= {
            "stop_reason": message.get("stop_reason"),
            "message_id": message.get("id"),
            "uuids": [piece for piece, _ in pieces] if len(pieces) > 1 else None,
            # At least a quarter of real thinking blocks have a signature and no text.
            "thinking_withheld": len(shown_thoughts) < len(thoughts),
            "others_usage": _usage_of_others(message),
            "blocks": [_without_images(b) for b in blocks if not _block_type(b).endswith(SHOWN)],
        }
        self._count_tokens(message, counted)
        self.builder.message(
            pieces[0][0],
            "assistant",
            # Some records of one answer repeat a block of another: identical texts are shown once.
            "\n\n".join(dict.fromkeys(text for text in texts if isinstance(text, str))),
            thinking="\n\n".join(shown_thoughts) or None,
            metadata={name: value for name, value in metadata.items() if value},
        )

    def _count_tokens(self, message: Json, record: Json) -> None:
        model = message.get("model")
        if record.get("isApiErrorMessage"):
            self.builder.failed = True
            self.builder.error = text_of(message.get("content")) or "API error"
            return
        # "No response requested." and the like: the failure of a real call stays in force.
        if model == rules.SYNTHETIC_MODEL:
            return
        self.builder.failed, self.builder.error = False, None
        if isinstance(model, str):
            self.builder.model = model
            self.builder.provider = "anthropic" if "claude" in model else None
        if tokens := token_counts(message.get("usage"), rules.TOKENS):
            # The API gives no total; its four counts do not overlap, the fifth is a part of one.
            total = sum(tokens.values()) - tokens.get("long_cache_write_tokens", 0)
            self.builder.add_tokens(**tokens, total_tokens=total)

    def _add_call(self, block: Json, message_id: str) -> None:
        name, call_id = as_text(block.get("name")) or "unknown", as_text(block.get("id"))
        if call_id:
            self.builder.call(
                call_id,
                name,
                block.get("input") or {},
                message_id=message_id,
                files=rules.FILE_TOOLS.files(name, as_dict(block.get("input"))),
                spawned=self.spawned.get(call_id),
            )

    def _add_results(self, uuid: str, record: Json) -> None:
        agent_id = subagent_of_result(record.get("toolUseResult"))
        unmatched: list[Any] = []
        for block in _blocks(record):
            if block.get("type") != "tool_result":
                unmatched.append(block)
                continue
            content = block.get("content")
            status, error = _result_status(block)
            if status == "failed" and record.get("toolDenialKind"):
                status = "rejected"  # by a rule or a classifier: it never ran
            call_id = as_text(block.get("tool_use_id")) or ""
            spilled = self._spilled(content) if self.spills else None
            has_call = self.builder.result(
                call_id,
                _without_images(content) if spilled is None else spilled,
                status=status,
                error=error,
                spawned=f"{rules.NAME}:agent-{agent_id}" if agent_id else None,
            )
            if not has_call:
                unmatched.append(block)
            elif spilled is not None:  # the part of it that the agent was shown
                self.builder.lone_result(uuid, call_id, text_of(content))
        if unmatched:
            metadata = {"blocks": _other_blocks(unmatched)}
            self.builder.notice(uuid, text_of(unmatched), role="user", metadata=metadata)

    def _spilled(self, content: Any) -> str | None:
        """The whole of an output that was too large for its record."""
        spill = self.spills.get(spill_shown(text_of(content)) or "")
        return self.material.document(spill.file).decode(errors="replace") if spill else None

    def _add_compaction(self, uuid: str, record: Json) -> None:
        """The boundary and then the summary, or in 1.0 the summary alone."""
        summary = text_of(_message(record).get("content"))
        metadata = as_dict(record.get("compactMetadata"))
        text = summary or as_text(record.get("content"))
        self.builder.notice(uuid, text, metadata=metadata)
        # Without an earlier turn there is nothing that a compaction could have replaced.
        if self.builder.parent_id is None:
            return
        first, through = self.preserved or (None, self.builder.parent_id)
        # The boundary has the numbers, the summary the text: both add to one compaction.
        last = self.builder.compaction or Compaction("", through)
        self.builder.compaction = Compaction(
            summary or last.summary,
            through,
            first,
            tokens_before=as_number(metadata.get("preTokens")) or last.tokens_before,
            tokens_after=as_number(metadata.get("postTokens")) or last.tokens_after,
            duration_ms=as_number(metadata.get("durationMs")) or last.duration_ms,
            trigger=rules.COMPACTION_TRIGGERS.get(str(metadata.get("trigger"))) or last.trigger,
        )


def _refusal(record: Json) -> str:
    error: Any = record.get("error")
    words = [str(status)] if (status := as_number(as_dict(error).get("status"))) else []
    message = as_text(error)
    # Errors are nested (three deep in one real file): the innermost message is the provider's.
    while isinstance(error, dict):
        message = as_text(error.get("message")) or message
        error = error.get("error")
    words += [message] if message else []
    attempt, limit = as_number(record.get("retryAttempt")), as_number(record.get("maxRetries"))
    if attempt:
        words.append(f"(attempt {attempt} of {limit})" if limit else f"(attempt {attempt})")
    return " ".join(words) or "API error"


def _usage_rank(record: Json) -> tuple[int, bool, bool]:
    """How much a record knows of the usage of its answer: mostly the last knows all (in 39 % of the
    answers the count grows). Other providers' models guess in the first, and the last may be 0."""
    message = _message(record)
    tokens = token_counts(message.get("usage"), rules.TOKENS)
    ended = bool(message.get("stop_reason"))
    return tokens.get("output_tokens", 0), any(tokens.values()), ended


def _usage_of_others(message: Json) -> list[Any]:
    """What other models used that the provider asked, as an advisor (2.1): it is not in the usage
    of the answer."""
    iterations = as_list(as_dict(message.get("usage")).get("iterations"))
    return [item for item in iterations if as_dict(item).get("type", "message") != "message"]


def _local_commands(log: ClaudeTurnRecords) -> set[str]:
    """The commands that the program itself answered: no agent was asked."""
    local: set[str] = set()
    last: str | None = None
    for at, (uuid, kind) in enumerate(zip(log.uuids, log.kinds, strict=True)):
        if kind == "printed" and last is not None:
            local.add(last)
        if kind == "command":
            last = uuid
        elif last is not None and (kind not in PASSIVE or log.records[at].get("isMeta")):
            # The command was expanded to a prompt for the agent.
            last = None
    return local


def _results_after_calls(
    log: ClaudeTurnRecords, caller_of: Mapping[str, int]
) -> Iterator[tuple[int, Json]]:
    """The records in their order, but results after their calls: of parallel calls the result of
    one may be written before the next call."""
    late: list[int] = []
    for at, (kind, record) in enumerate(zip(log.kinds, log.records, strict=True)):
        calls = _block_ids(record, "tool_use_id") if kind == "result" else ()
        if any(caller_of.get(call, at) > at for call in calls):
            late.append(at)
        else:
            yield at, record
    for at in late:
        yield at, log.records[at]


def _message(record: Json) -> Json:
    return as_dict(record.get("message"))


def _message_id(uuid: str, record: Json) -> str:
    return as_text(_message(record).get("id")) or uuid


def _blocks(record: Json) -> list[Json]:
    return blocks_of(_message(record).get("content"))


def _block_ids(record: Json, name: str) -> list[str]:
    return [value for block in _blocks(record) if (value := as_text(block.get(name)))]


def _block_type(block: Json) -> str:
    return as_text(block.get("type")) or ""


def _other_blocks(content: Any) -> list[Any]:
    """Blocks that are not text. The bytes of images stay in the source record."""
    return [_without_images(b) for b in blocks_of(content) if b.get("type") != "text"]


def _without_images(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_images(item) for item in value]
    source = as_dict(as_dict(value).get("source"))
    if isinstance(source.get("data"), str):
        fields = {name: item for name, item in source.items() if name != "data"}
        return {**value, "source": {**fields, "bytes": len(source["data"]) * 3 // 4}}
    if isinstance(as_dict(value).get("content"), list):
        return {**value, "content": _without_images(value["content"])}
    return value


def _result_status(block: Json) -> tuple[CallStatus, str | None]:
    content = block.get("content")
    code = as_dict(content)
    if _block_type(code).endswith("_error"):  # of a tool that the provider runs
        return "failed", as_text(code.get("error_code")) or "failed"
    if not block.get("is_error"):
        return "completed", None
    text = text_of(content) or "failed"
    return ("rejected" if text.startswith(rules.REJECTIONS) else "failed"), text
