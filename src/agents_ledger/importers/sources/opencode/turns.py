"""opencode: the content of one turn, from its messages and their parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.json_values import path_of, pruned
from agents_ledger.importers.parsing.lenient_json import (
    DEPTH_MAX,
    TOO_DEEP,
    as_dict,
    as_list,
    as_text,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.opencode import rules
from agents_ledger.importers.sources.opencode.messages import MessageStore, StoredRecord
from agents_ledger.importers.sources.opencode.records import child_session, to_first_format
from agents_ledger.importers.sources.opencode.storage import OpencodeSession
from agents_ledger.importers.sources.opencode.tree import OpencodeTree, session_label
from agents_ledger.importers.transcript.field_maps import token_counts
from agents_ledger.importers.transcript.lazy_turns import LazyTurns
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.turns import FileKind, MessageFile, MessageSource, Turn

RESULT_FIELDS = ("output", "title", "metadata", "attachments")


class OpencodeTurns(LazyTurns):
    def __init__(self, tree: OpencodeTree, version: int) -> None:
        self._tree = tree
        self._messages = tree.messages
        super().__init__(tree, version)

    def name(self, turn: int) -> str:
        return self._tree.name(turn)

    def _session(self, turn: int) -> OpencodeSession:
        return self._tree.sessions[self._tree.turns.read(turn).session]

    def _members(self, turn: int) -> list[int]:
        return self._tree.turns.read(turn).messages

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        session, is_compaction = self._session(turn), self._tree.turns.read(turn).is_compaction
        context = f"{session.directory};{is_compaction};{_prompt_source(session)};"
        places = [record.place for record in self._records(turn) if record.place is not None]
        fingerprints = (place.fingerprint for place in places)
        return [context.encode(errors="replace"), *fingerprints], {p.file_id for p in places}

    def _records(self, turn: int) -> Iterator[StoredRecord]:
        """The messages of a turn, each followed by its parts."""
        for message in self._members(turn):
            yield self._messages.record(message)
            yield from map(self._messages.parts.record, self._messages.parts_of(message))

    def record_ids(self, turn: int) -> Iterable[str]:
        return map(self._messages.name, self._members(turn))

    def repeated_ids(self, turn: int) -> Iterable[str]:
        return map(self._messages.name, self._tree.copies.get(turn, ()))

    def build(self, turn: int) -> Turn:
        parent, session = self.parent_name(turn), self._session(turn)
        builder = TurnBuilder(self.name(turn), parent, self._messages.limits)
        builder.workspace_path = session.directory
        content = OpencodeTurnContent(builder, _prompt_source(session))
        for number in self._members(turn):
            content.add(_read_message(self._messages, number))
        if self._tree.turns.read(turn).is_compaction and parent is not None:
            builder.compaction = Compaction(
                "\n\n".join(content.summary),
                parent,
                model=builder.model or "none",
                provider=builder.provider,
                trigger=content.trigger,
            )
        return builder.build()


def _prompt_source(session: OpencodeSession) -> MessageSource:
    return "agent" if session.parent else "human"


class OpencodeMessage(NamedTuple):
    """A message and its parts by id, in the first format."""

    id: str
    info: dict[str, Any]
    parts: list[tuple[str, dict[str, Any]]]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [part for _, part in self.parts if part.get("type") == kind]


def _read_message(messages: MessageStore, number: int) -> OpencodeMessage:
    name, message = messages.name(number), messages.record(number)
    info = messages.content(message)
    if message.type:
        info, parts = to_first_format(message.type, info)
        return OpencodeMessage(
            name, info, [(f"{name}:{at}", part) for at, part in enumerate(parts)]
        )
    numbers, store = messages.parts_of(number), messages.parts
    read = [(store.name(part), messages.content(store.record(part))) for part in numbers]
    return OpencodeMessage(name, info, read)


class OpencodeTurnContent:
    def __init__(self, builder: TurnBuilder, prompt_source: MessageSource) -> None:
        self.builder = builder
        self.prompt_source = prompt_source
        self.summary: list[str] = []
        self.trigger: str | None = None
        self.call_ids: set[str] = set()

    def add(self, message: OpencodeMessage) -> None:
        info = message.info
        role = rules.ROLES.get(str(info.get("role")), "assistant")
        at = milliseconds(as_dict(info.get("time")).get("created"))
        texts = [part for part in message.of_type("text") if as_text(part.get("text"))]
        typed = [part["text"] for part in texts if not part.get("synthetic")]
        synthetic = [part["text"] for part in texts if part.get("synthetic")]
        source: MessageSource | None = None
        if role == "user":
            source = self.prompt_source if typed or not synthetic else "event"
        text = "\n\n".join(typed or synthetic)
        if info.get("summary") is True:
            self.summary.append(text)
        for part in message.of_type("compaction"):
            self.trigger = "context_limit" if part.get("auto") else "manual"
        self._add_model(info)
        reasoning = [as_text(part.get("text")) for part in message.of_type("reasoning")]
        self.builder.message(
            message.id,
            role,
            text,
            at=at,
            source=source,
            thinking="\n\n".join(filter(None, reasoning)) or None,
            metadata=_metadata(message),
            context={"synthetic": synthetic} if typed and synthetic else None,
            files=tuple(dict.fromkeys(_files(message))),
        )
        for part_id, part in message.parts:
            if part.get("type") == "tool":
                self._add_call(part_id, part, message.id, at)
        if role == "assistant":
            self._finish(info)

    def _add_model(self, info: dict[str, Any]) -> None:
        model = as_dict(info.get("model"))
        model_id = as_text(info.get("modelID")) or as_text(model.get("modelID"))
        if model_id:
            provider = as_text(info.get("providerID")) or as_text(model.get("providerID"))
            self.builder.model, self.builder.provider = model_id, provider

    def _finish(self, info: dict[str, Any]) -> None:
        """Add the end, the error and the tokens of an answer."""
        completed = milliseconds(as_dict(info.get("time")).get("completed"))
        self.builder.ended_at = max(self.builder.ended_at, completed)
        error = as_dict(info.get("error"))
        names = as_dict(error.get("data")).get("message"), error.get("message"), error.get("name")
        text = next(filter(None, map(as_text, names)), "failed")
        self.builder.failed, self.builder.error = bool(error), text if error else None
        if as_dict(info.get("tokens")):
            counts = token_counts(info["tokens"], rules.TOKENS)
            self.builder.add_tokens(**counts, total_tokens=sum(counts.values()))

    def _add_call(self, part_id: str, part: dict[str, Any], message_id: str, at: int) -> None:
        # Not every provider gives each call an id of its own.
        call_id = as_text(part.get("callID"))
        if call_id is None or call_id in self.call_ids:
            call_id = part_id
        self.call_ids.add(call_id)
        state = as_dict(part.get("state"))
        times = as_dict(state.get("time"))
        self.builder.call(
            call_id,
            as_text(part.get("tool")) or "unknown",
            state.get("input") if state.get("input") is not None else {},
            at=milliseconds(times.get("start")) or at,
            message_id=message_id,
        )
        word = as_text(state.get("status"))
        status = rules.STATUSES.get(word or "", "completed" if "output" in state else "running")
        result = {
            name: _without_data_urls(state[name])
            for name in RESULT_FIELDS
            if state.get(name) not in (None, "", [], {})
        }
        child = child_session(state) if str(part.get("tool")) in rules.SUBAGENT_TOOLS else None
        self.builder.result(
            call_id,
            result or None,
            at=milliseconds(times.get("end")),
            status=status,
            error=as_text(state.get("error")) or ("failed" if status == "failed" else None),
            source_status=word,
            spawned=session_label(child) if child else None,
        )
        names = rules.FILE_TOOLS.files(str(part.get("tool")), as_dict(state.get("input")))
        files = [MessageFile(n.kind, path) for n in names if (path := path_of(n.file_path))]
        self.builder.add_files(message_id, files, call_id=call_id)


def _metadata(message: OpencodeMessage) -> dict[str, Any]:
    """What has no column. The bytes of attached files stay in the source record."""
    info = {name: value for name, value in message.info.items() if name not in rules.IN_COLUMNS}
    parts = [
        {"id": part_id}
        | {name: _without_data_urls(part[name]) for name in part if name not in rules.IN_COLUMNS}
        for part_id, part in message.parts
        if str(part.get("type")) not in rules.IN_CONTENT
    ]
    return as_dict(pruned({**info, "parts": parts}))


def _without_data_urls(value: Any, levels: int = DEPTH_MAX) -> Any:
    """The value without the content of data: URLs, and without what is nested too deeply."""
    if isinstance(value, (dict, list)) and not levels:
        return TOO_DEEP
    if isinstance(value, list):
        return [_without_data_urls(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {name: _without_data_urls(item, levels - 1) for name, item in value.items()}
    if isinstance(value, str) and value.startswith("data:") and ";base64," in value[:200]:
        return value[: value.index(",") + 1]
    return value


def _files(message: OpencodeMessage) -> Iterator[MessageFile]:
    for kind, name in _file_names(message):
        path = path_of(name)
        if path:
            yield MessageFile(kind, path)


def _file_names(message: OpencodeMessage) -> Iterator[tuple[FileKind, Any]]:
    for _, part in message.parts:
        kind = part.get("type")
        if kind == "file":
            url = as_text(part.get("url")) or ""
            yield "attached", part.get("filename") if url.startswith("data:") else url
        elif kind == "patch":
            for name in as_list(part.get("files")):
                yield "written", name
    for name in as_list(as_dict(message.info.get("snapshot")).get("files")):
        yield "written", name
