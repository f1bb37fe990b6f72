"""pi and OpenClaw: the content of turns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import (
    UNPAIRED,
    as_dict,
    as_list,
    as_number,
    as_text,
    parse_json,
    without_data,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.pi import rules
from agents_ledger.importers.sources.pi.database import unpacked
from agents_ledger.importers.sources.pi.entries import Config
from agents_ledger.importers.sources.pi.records import total_tokens
from agents_ledger.importers.sources.pi.tree import PiTree
from agents_ledger.importers.transcript.field_maps import as_params, patched_files, token_counts
from agents_ledger.importers.transcript.lazy_turns import LazyTurns
from agents_ledger.importers.transcript.lines import text_of
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.ledger.reports.events import readable
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.turns import MessageFile, MessageSource, Turn, to_json

Json = dict[str, Any]


class TurnContext(NamedTuple):
    """What belongs to turns and is not in their entries."""

    files: Sequence[int]  # by transcript
    folders: Sequence[str | None]  # by transcript
    speakers: Mapping[int, MessageSource]  # by transcript, where it is no person
    spawned: Mapping[int, tuple[str, str]]  # by entry, a call and the label of its session


class TurnFrame(NamedTuple):
    sealed: bool  # it has children, and is no longer open
    summarized_through: str | None  # of a compaction
    first_kept: str | None


class TurnSetting(NamedTuple):
    speaker: MessageSource
    cwd: str | None
    spawned: dict[str, str]  # labels of sessions, by call
    config: Config


class PiTurns(LazyTurns):
    turn_tree: PiTree

    def __init__(self, tree: PiTree, version: int, context: TurnContext) -> None:
        self._entries = tree.entries
        self._context = context
        super().__init__(tree, version)

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        """Its entries, where it is, and what the session says of it."""
        entries, members = self._entries, self.turn_tree.members(turn)
        parts = [f"{entries.identity(entry)};{entries.kind(entry)}" for entry in members]
        speaker, cwd, spawned, config = self._setting(turn)
        setting = speaker, sorted(spawned.items()), cwd, sorted(config.items())
        parts.append(repr((tuple(self._frame(turn)), *setting)))
        files = map(self._context.files.__getitem__, entries.transcripts.union(members))
        return [part.encode(errors="replace") for part in parts], files

    def record_ids(self, turn: int) -> Iterable[str]:
        return map(self._entries.name, self.turn_tree.members(turn))

    def build(self, turn: int) -> Turn:
        entries, setting = self._entries, self._setting(turn)
        builder = TurnBuilder(self.name(turn), self.parent_name(turn), entries.material.limits)
        builder.workspace_path = setting.cwd
        builder.effective_config_json = to_json(setting.config) if setting.config else None
        content = _PiTurnContent(builder, self._frame(turn), setting)
        for entry in self.turn_tree.members(turn):
            record = as_dict(parse_json(unpacked(entries.data(entry))))
            content.add(entries.name(entry), entries.kind(entry), record)
        return builder.build(is_followed=self.turn_tree.is_followed(turn))

    def _frame(self, turn: int) -> TurnFrame:
        tree, first_kept = self.turn_tree, self.turn_tree.first_kept(turn)
        through = tree.parent(turn if first_kept is None else first_kept)
        names = map(tree.optional_name, (through, first_kept))
        return TurnFrame(tree.is_followed(turn), *names)

    def _setting(self, turn: int) -> TurnSetting:
        entries, members = self._entries, self.turn_tree.members(turn)
        _, folders, speakers, spawned = self._context
        transcripts = entries.transcripts.union(members)
        answers = (entry for entry in members if entries.kind(entry) == "assistant")
        return TurnSetting(
            min(
                (speakers[number] for number in transcripts if number in speakers), default="human"
            ),
            # Transcripts are numbered with the original before its forks.
            folders[min(transcripts)],
            dict(spawned[entry] for entry in members if entry in spawned) if spawned else {},
            entries.configs[entries.config_of[next(answers, members[0])]],
        )


class _PiTurnContent:
    def __init__(self, builder: TurnBuilder, frame: TurnFrame, setting: TurnSetting) -> None:
        self.builder = builder
        self.frame = frame
        self.speaker = setting.speaker
        self.spawned = setting.spawned
        # Some models number their calls, and use an id for several of one turn.
        self.uses: Counter[str] = Counter()
        self.call_names: set[str] = set()
        self.waiting: dict[str, tuple[str, list[str]]] = {}  # by id: the last message, its calls

    def add(self, key: str, kind: str, record: Json) -> None:
        self.builder.at = milliseconds(record.get("timestamp"))
        message = as_dict(record.get("message"))
        # The id that the entry has in its file.
        entry_id = _whole_name(record.get("id"))
        metadata = {"entry_id": entry_id} if entry_id else {}
        if kind == "assistant":
            self._add_answer(key, message, metadata)
        elif kind == "result":
            self._add_result(key, message, metadata)
        elif kind == "bash":
            self._add_bash(key, message, metadata)
        elif kind == "compaction":
            self._add_compaction(key, record, metadata)
        elif kind == "prompt":
            self._add_prompt(key, message, metadata)
        elif kind == "usage":
            self._count_tokens(record.get("usage"))
        else:
            self._add_notice(key, kind, record, metadata)

    # -- prompts and notices ------------------------------------------------------------------

    def _add_prompt(self, key: str, message: Json, metadata: Json) -> None:
        text = text_of(message.get("content"))
        skill = rules.SKILL.fullmatch(text)
        if skill:
            skill_metadata = metadata | {"skill": skill["name"]}
            text = " ".join(filter(None, (f"/skill:{skill['name']}", skill["arguments"])))
        metadata |= _other_blocks(message.get("content"))
        source = _source(text, message, self.speaker)
        channel = rules.ENVELOPE.match(text)
        if channel and source == "human":
            metadata["channel"] = channel[1]
        if number := rules.MESSAGE_ID.search(text):
            metadata["message_id"] = number[1] or number[2]
        words = rules.words_of(text) if source == "human" else text
        context = {"sent": text} if words != text else None
        self.builder.message(key, "user", words, source=source, metadata=metadata, context=context)
        if skill:
            self.builder.notice(f"{key}:skill", skill["text"], role="user", metadata=skill_metadata)

    def _add_bash(self, key: str, message: Json, metadata: Json) -> None:
        """A command that the person ran; the agent sees its output."""
        names = ("exitCode", "cancelled", "truncated", "fullOutputPath", "excludeFromContext")
        details = {name: message[name] for name in names if message.get(name) not in (None, False)}
        command, output = as_text(message.get("command")), as_text(message.get("output"))
        text = f"!{command or ''}\n{output or ''}"
        metadata |= {"bash": details}
        self.builder.message(key, "user", text, source="human", metadata=metadata)

    def _add_notice(self, key: str, kind: str, record: Json, metadata: Json) -> None:
        """What the program injected, or what hooks and extensions did."""
        message = as_dict(record.get("message"))
        content = message.get("content", record.get("content", record.get("summary")))
        content = message.get("summary") if content is None else content
        metadata |= _other_blocks(content)
        if kind == "branch":
            metadata |= self._count_tokens(record.get("usage"))
        for name in ("customType", "display", "fromId", "details"):
            value = message.get(name, record.get(name))
            if value not in (None, "", {}, []):
                metadata[name] = without_data(value)
        data = record.get("data")
        text = text_of(content)
        if data is not None and not text:
            text = as_text(as_dict(data).get("error")) or to_json(data)
            self.builder.error = text
        is_system = message.get("role") == "system" or record.get("type") == "custom"
        self.builder.notice(key, text, role="system" if is_system else "user", metadata=metadata)

    # -- answers ------------------------------------------------------------------------------

    def _add_answer(self, key: str, message: Json, metadata: Json) -> None:
        text = text_of(message.get("content"))
        blocks = [as_dict(block) for block in as_list(message.get("content"))]
        thoughts = [b.get("thinking") for b in blocks if b.get("type") == "thinking"]
        thinking = "\n\n".join(t for t in thoughts if isinstance(t, str) and t) or None
        for name in ("api", "stopReason", "responseId"):
            if as_text(message.get(name)):
                metadata[name] = message[name]
        if thoughts and not any(thoughts):
            metadata["thinking_withheld"] = True
        if text.strip() in rules.SILENT:
            metadata["silent"] = True
        if as_text(message.get("model")) in rules.GATEWAY_MODELS:
            metadata["injected"] = message["model"]
        else:
            metadata |= self._end_call(message)
        self.builder.message(key, "assistant", text, thinking=thinking, metadata=metadata)
        for block in blocks:
            if block.get("type") == "toolCall":
                self._add_call(key, block)

    def _end_call(self, message: Json) -> Json:
        """How a call of the model ended; what it cost."""
        failed = message.get("stopReason") in ("error", "aborted")
        # "aborted" by a person is no failure of the turn, but its reason is shown.
        self.builder.failed = message.get("stopReason") == "error"
        error = as_text(message.get("errorMessage"))
        self.builder.error = (error or str(message["stopReason"])) if failed else None
        self.builder.model = as_text(message.get("model")) or self.builder.model
        self.builder.provider = as_text(message.get("provider")) or self.builder.provider
        return self._count_tokens(message.get("usage"))

    def _count_tokens(self, value: object) -> Json:
        """Count the tokens of a call; its cost, if that is reported."""
        usage = as_dict(value)
        if not usage:
            return {}
        tokens = token_counts(usage, rules.TOKENS)
        self.builder.add_tokens(**tokens, total_tokens=total_tokens(usage))
        cost = as_dict(usage.get("cost")).get("total")
        return {"cost": cost} if isinstance(cost, (int, float)) and cost else {}

    def _add_call(self, key: str, block: Json) -> None:
        name, call_id = as_text(block.get("name")) or "unknown", as_text(block.get("id"))
        if call_id is None:
            return
        params = as_params(block.get("arguments"))
        own = self._unique_name(key, call_id)
        files, spawned = list(_files(name, params)), self.spawned.get(own)
        self.builder.call(own, name, params, message_id=key, files=files, spawned=spawned)

    def _unique_name(self, key: str, call_id: str) -> str:
        """An id that no other call of the turn has."""
        name = call_id
        while name in self.call_names:
            self.uses[call_id] += 1
            # ID, ID:2, ID:3: stable as long as the entries before it are.
            name = f"{call_id}:{self.uses[call_id] + 1}"
        self.call_names.add(name)
        message, calls = self.waiting.get(call_id, ("", []))
        self.waiting[call_id] = (key, [*calls, name] if message == key else [name])
        return name

    def _answered_call(self, call_id: str) -> str:
        """The call that a result belongs to: of the last message with calls of this id, the first
        without a result."""
        _, calls = self.waiting.get(call_id, ("", [call_id]))
        return calls.pop(0) if len(calls) > 1 else calls[0]

    def _add_result(self, key: str, message: Json, metadata: Json) -> None:
        content, details = without_data(message.get("content")), message.get("details")
        text = text_of(content)
        result = content
        if details not in (None, {}, []):
            result = {"content": content, "details": without_data(details)}
        status = as_text(as_dict(details).get("status"))
        failed = message.get("isError") is True or status in rules.FAILURES
        error = as_text(as_dict(details).get("error"))
        call_id = _whole_name(message.get("toolCallId"))
        has_call = self.builder.result(
            self._answered_call(call_id or ""),
            result,
            status="failed" if failed else "completed",
            error=(error or text or "failed") if failed else None,
            source_status=status,
        )
        if not has_call:
            metadata |= {"tool": message.get("toolName")}
            self.builder.lone_result(key, call_id, text, metadata=metadata)

    def _add_compaction(self, key: str, record: Json, metadata: Json) -> None:
        summary = as_text(record.get("summary")) or ""
        details = as_dict(record.get("details"))
        files = [
            MessageFile(kind, path)
            for name, kind in rules.COMPACTION_FILES.items()
            for path in as_list(details.get(name))
            if as_text(path)
        ]
        metadata |= self._count_tokens(record.get("usage"))
        if record.get("fromHook"):
            metadata["from_hook"] = True
        self.builder.notice(key, summary, metadata=metadata, files=files)
        if self.frame.summarized_through is not None:
            self.builder.compaction = Compaction(
                summary,
                self.frame.summarized_through,
                self.frame.first_kept,
                tokens_before=as_number(record.get("tokensBefore")),
            )


def _whole_name(value: Any) -> str | None:
    """A name as the tree has it: without unpaired surrogates."""
    name = as_text(value)
    return name if name is None or name.isascii() else UNPAIRED.sub("\ufffd", name)


def _other_blocks(content: Any) -> Json:
    """Blocks that are not text. The bytes of images stay in the source record."""
    blocks = [b for b in as_list(content) if as_dict(b).get("type") != "text"]
    return {"blocks": without_data(blocks)} if blocks else {}


def _source(text: str, message: Json, speaker: MessageSource) -> MessageSource:
    """Who wrote a prompt: by the session's key, and by OpenClaw's marks in the text."""
    provenance = as_dict(message.get("provenance")).get("kind")
    if provenance == "inter_session":
        return "agent"
    if speaker != "human":
        return speaker
    content = rules.TIME.sub("", readable(text), count=1)
    prompts = {content, rules.words_of(content)}
    if text.startswith(rules.NOTICES):
        prompts |= {content.partition("\n\n")[2], content.rpartition("\n\n")[2]}
    beginnings = [rules.TIME.sub("", prompt, count=1) for prompt in prompts]
    for pattern, source in rules.SPEAKERS:
        if any(re.match(pattern, beginning) for beginning in beginnings):
            return source
    is_notice = content.startswith(rules.NOTICES) and "\n\n" not in content
    return "event" if is_notice or provenance == "internal_system" else "human"


def _files(name: str, params: Json) -> Iterator[MessageFile]:
    yield from rules.FILE_TOOLS.files(name, params)
    patch = params.get("input")
    if name == "apply_patch" and isinstance(patch, str):
        yield from patched_files(patch)
