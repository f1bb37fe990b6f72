"""Claude Code: the content of one turn, from its records in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agents_ledger.importers.port.source import Material
from agents_ledger.importers.sources.claude_code import records
from agents_ledger.importers.sources.claude_code.records import text_of
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_number, as_text
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.turns import (
    CallStatus,
    FileKind,
    MessageFile,
    MessageSource,
    Turn,
    TurnStatus,
)

FILE_TOOLS: dict[str, FileKind] = {
    "Edit": "written",
    "MultiEdit": "written",
    "NotebookEdit": "written",
    "NotebookRead": "read",
    "Read": "read",
    "Write": "written",
}
REJECTED = ("The user doesn't want to proceed", "The user doesn't want to take this action")
THINKING = ("thinking", "redacted_thinking")
SHOWN = ("text", "thinking", "tool_use", "tool_result")  # endings of what a message or call shows
TRIGGERS = {"auto": "context_limit", "manual": "manual"}
TOKENS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cached_input_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}
OF_AGENTS = ("<teammate-message", records.PEER)
QUEUED_NOTICES = (*records.NOTICES, '{"task_id":')
ASKED = {"prompt", "command"}
BESIDE = {"notice", "printed", "other", "failure"}  # what neither asks nor answers
KEPT_FIELDS = ("requestId", "permissionMode", "promptSource", "origin", "isApiErrorMessage")


class Kept(NamedTuple):
    """What a compaction left as it was: the turns from the first on."""

    first: str
    through: str  # the last one that it summarised


class Beside(NamedTuple):
    """What belongs to a turn and does not stand in its records."""

    spawned: dict[str, str]  # the sessions of subagents, by the call
    spills: dict[str, SourceFile]  # outputs that were too large, as records name them
    kept: Kept | None = None


class Said(NamedTuple):
    """The records of a turn in order: their ids, their kinds, and what they say."""

    uuids: Sequence[str]
    kinds: Sequence[str]
    records: Sequence[dict[str, Any]]


def build_turn(material: Material, builder: TurnBuilder, said: Said, beside: Beside) -> Turn:
    """The turn of some records."""
    return _Turn(material, builder, said, beside).built()


class _Turn:
    def __init__(
        self, material: Material, builder: TurnBuilder, said: Said, beside: Beside
    ) -> None:
        self.material = material
        self.builder = builder
        self.said = said
        self.spawned, self.spills, self.kept = beside
        self.summarises = False
        self.local = _local(said)
        self.firsts: dict[str, int] = {}  # by the API response, the first record of it,
        self.more: dict[int, list[int]] = {}  # and by that the others
        self.made: dict[str, int] = {}  # by which record each call is

    def built(self) -> Turn:
        uuids, kinds, said = self.said
        begins = (at for at, kind in enumerate(kinds) if kind not in BESIDE)
        first = next(begins, 0)
        asks = next((at for at in (first, *begins) if uuids[at] not in self.local), first)
        self.builder.started_at = milliseconds(said[asks].get("timestamp"))
        self._look_ahead()
        for at, record in _results_after_calls(self.said, self.made):
            uuid, kind = uuids[at], kinds[at]
            if kind == "assistant":
                self._assistant(at, record)
            elif kind == "result":
                self._results(uuid, record)
            elif kind in ("boundary", "summary"):
                self._compaction(uuid, kind, record)
            elif kind != "other":
                ended_at = self.builder.ended_at
                self._input(uuid, kind, record)
                if uuid in self.local or (kind in BESIDE and kind != "failure"):
                    self.builder.ended_at = ended_at  # nobody works on it any more
            self.builder.workspace_path = self.builder.workspace_path or as_text(record.get("cwd"))
        return self.builder.build(status=self._end())

    def _end(self) -> TurnStatus | None:
        """How a turn ended that nobody answered; None: as any other."""
        if self.builder.answered or self.builder.compaction:
            return None
        printed = "printed" in self.said.kinds and "queued" not in self.said.kinds
        if (self.local or printed) and self.local.issuperset(self._asked()):
            return "completed"  # nobody else was asked anything
        # Of a compaction whose past is not there only the summary is known.
        return "completed" if self.summarises else None

    def _asked(self) -> Iterator[str]:
        uuids, kinds, _ = self.said
        return (uuid for uuid, kind in zip(uuids, kinds, strict=True) if kind in ASKED)

    def _look_ahead(self) -> None:
        """Which records are of one API response, and which make calls."""
        uuids, kinds, said = self.said
        for at, kind in enumerate(kinds):
            if kind == "assistant":
                record = said[at]
                first = self.firsts.setdefault(_message_id(uuids[at], record), at)
                if first != at:
                    self.more.setdefault(first, []).append(at)
                for call in _ids(record, "id"):
                    self.made.setdefault(call, at)

    # -- what was asked -----------------------------------------------------------------------

    def _input(self, uuid: str, kind: str, record: dict[str, Any]) -> None:
        at = milliseconds(record.get("timestamp"))
        message = as_dict(record.get("message"))
        content = message.get("content")
        metadata = {name: record[name] for name in KEPT_FIELDS if record.get(name)}
        said_by = _said_by(record)
        typed = (
            kind in ASKED
            and uuid not in self.local
            and said_by == "human"
            and not record.get("planContent")
            and not record.get("isMeta")
        )
        source: MessageSource = "human" if typed else "event"
        if kind in ASKED and uuid not in self.local:  # what was refused before was another's
            self.builder.failed, self.builder.error = False, None
        if kind == "queued":
            attached = as_dict(record.get("attachment"))
            content = attached.get("prompt") if attached else record.get("content")
            told = attached.get("commandMode") == "task-notification" or said_by != "human"
            told = told or text_of(content).startswith(QUEUED_NOTICES)
            source = "event" if told else "human"
            metadata["queued"] = True
        elif record.get("type") == "system":
            self._notice(uuid, kind, record, at)
            return
        text = text_of(content)
        self._heed(kind, text)
        if record.get("isMeta"):
            metadata["meta"] = True
        if text.startswith(OF_AGENTS) or said_by == "peer" or record.get("isSidechain"):
            source = "agent"
        others = _other_blocks(content)
        if others:
            metadata["blocks"] = others
        self.builder.message(uuid, "user", text, at=at, source=source, metadata=metadata)

    def _heed(self, kind: str, words: str | None) -> None:
        """A prompt that was not answered failed, if it was interrupted or given up."""
        if kind == "failure" and not self.builder.answered:
            self.builder.failed, self.builder.error = True, words or "failed"

    def _notice(self, uuid: str, kind: str, record: dict[str, Any], at: int) -> None:
        words = as_text(record.get("content"))
        if record.get("subtype") == "api_error":
            words = words or _refusal(record)
        self._heed(kind, words)
        detail = {
            name: record[name]
            for name in ("subtype", "level", "error", "retryAttempt", "durationMs")
            if record.get(name)
        }
        self.builder.message(uuid, "system", words, at=at, source="event", metadata=detail)

    # -- what the agent did -------------------------------------------------------------------

    def _assistant(self, number: int, record: dict[str, Any]) -> None:
        """A record of an API response. With the first of them all that is said there is told."""
        at = milliseconds(record.get("timestamp"))
        uuids, _, said = self.said
        first = self.firsts[_message_id(uuids[number], record)]
        first_uuid = uuids[first]
        message = as_dict(record.get("message"))
        if number == first:
            pieces = (first, *self.more.get(first, ()))
            self._say(first_uuid, at, [(uuids[each], said[each]) for each in pieces])
        for block in _blocks(message.get("content")):
            kind = _kind(block)
            if kind.endswith("tool_use"):
                self._call(block, at, first_uuid)
            elif kind.endswith("tool_result"):  # of a tool of the provider's
                status, error = _status(block, block.get("content"))
                call_id = as_text(block.get("tool_use_id")) or ""
                self.builder.result(
                    call_id,
                    _without_images(block.get("content")),
                    at=at,
                    status=status,
                    error=error,
                )

    def _say(self, uuid: str, at: int, pieces: list[tuple[str, dict[str, Any]]]) -> None:
        """One API response, however many records it was written in."""
        blocks = [
            block
            for _, record in pieces
            for block in _blocks(as_dict(record.get("message")).get("content"))
        ]
        said = (b.get("text") for b in blocks if b.get("type") == "text")
        thought = [b.get("thinking") for b in blocks if b.get("type") in THINKING]
        words = dict.fromkeys(word for word in said if isinstance(word, str))  # repeats said once
        thoughts = [word for word in thought if isinstance(word, str) and word]
        _, told = max(reversed(pieces), key=lambda piece: _told_of_usage(piece[1]))
        last = as_dict(told.get("message"))
        metadata: dict[str, Any] = {
            name: record[name] for _, record in pieces for name in KEPT_FIELDS if record.get(name)
        }
        metadata |= {
            "stop_reason": last.get("stop_reason"),
            "message_id": last.get("id"),
            "uuids": [piece for piece, _ in pieces] if len(pieces) > 1 else None,
            "thinking_withheld": len(thoughts) < len(thought),
            "others_usage": _usage_of_others(last),
            "blocks": [_without_images(b) for b in blocks if not _kind(b).endswith(SHOWN)],
        }
        self._count(last, told)
        self.builder.message(
            uuid,
            "assistant",
            "\n\n".join(words),
            at=at,
            thinking="\n\n".join(thoughts) or None,
            metadata={name: value for name, value in metadata.items() if value},
        )

    def _count(self, message: dict[str, Any], record: dict[str, Any]) -> None:
        model = message.get("model")
        if record.get("isApiErrorMessage"):
            self.builder.failed = True
            self.builder.error = text_of(message.get("content")) or "API error"
            return
        if model == "<synthetic>":
            return
        self.builder.failed, self.builder.error = False, None
        if isinstance(model, str):
            self.builder.model = model
            self.builder.provider = "anthropic" if "claude" in model else None
        tokens = _tokens(record)
        if tokens:
            self.builder.add_tokens(**tokens, total_tokens=sum(tokens.values()))

    def _call(self, block: dict[str, Any], at: int, message_id: str) -> None:
        name, call_id = as_text(block.get("name")) or "unknown", as_text(block.get("id"))
        if not call_id:
            return
        params = as_dict(block.get("input"))
        self.builder.call(call_id, name, block.get("input") or {}, at=at, message_id=message_id)
        if call_id in self.spawned:
            self.builder.spawned(call_id, self.spawned[call_id])
        path = params.get("file_path") or params.get("notebook_path")
        if name in FILE_TOOLS and isinstance(path, str):
            self.builder.add_files(message_id, [MessageFile(FILE_TOOLS[name], path)])

    def _results(self, uuid: str, record: dict[str, Any]) -> None:
        at = milliseconds(record.get("timestamp"))
        agent_id = records.agent_of(record.get("toolUseResult"))
        words: list[Any] = []
        for block in _blocks(as_dict(record.get("message")).get("content")):
            if block.get("type") != "tool_result":
                words.append(block)
                continue
            said = block.get("content")
            status, error = _status(block, said)
            if status == "failed" and record.get("toolDenialKind"):
                status = "rejected"  # by a rule or a classifier: it never ran
            spawned = f"claude-code:agent-{agent_id}" if agent_id else None
            call_id = as_text(block.get("tool_use_id")) or ""
            spilled = self._spilled(said) if self.spills else None
            known = self.builder.result(
                call_id,
                _without_images(said) if spilled is None else spilled,
                at=at,
                status=status,
                error=error,
                spawned=spawned,
            )
            if not known:
                words.append(block)
            elif spilled is not None:  # what the agent was shown of it
                self.builder.message(
                    uuid, "tool", text_of(said), at=at, source="event", tool_call_id=call_id
                )
        if words:
            text = text_of(words)
            self.builder.message(
                uuid, "user", text, at=at, source="event", metadata={"blocks": _other_blocks(words)}
            )

    def _spilled(self, said: Any) -> str | None:
        """The whole of an output that was too large for its record."""
        file = self.spills.get(records.saved_as(text_of(said)) or "")
        return self.material.document(file).decode(errors="replace") if file is not None else None

    def _compaction(self, uuid: str, kind: str, record: dict[str, Any]) -> None:
        at = milliseconds(record.get("timestamp"))
        message = as_dict(record.get("message"))
        summary = text_of(message.get("content"))
        said = as_dict(record.get("compactMetadata"))
        words = summary or as_text(record.get("content"))
        self.builder.message(uuid, "system", words, at=at, source="event", metadata=said)
        self.summarises = True
        if self.builder.parent_id is None:
            return
        known = self.builder.compaction
        self.builder.compaction = Compaction(
            summary or (known.summary if known else ""),
            self.kept.through if self.kept else self.builder.parent_id,
            self.kept.first if self.kept else None,
            tokens_before=as_number(said.get("preTokens"))
            or (known.tokens_before if known else None),
            tokens_after=as_number(said.get("postTokens"))
            or (known.tokens_after if known else None),
            duration_ms=as_number(said.get("durationMs")) or (known.duration_ms if known else None),
            trigger=TRIGGERS.get(str(said.get("trigger"))) or (known.trigger if known else None),
        )


def _refusal(record: dict[str, Any]) -> str:
    """What the provider said instead of an answer, and how often it was asked."""
    error: Any = record.get("error")
    words = [str(status)] if (status := as_number(as_dict(error).get("status"))) else []
    said = as_text(error)
    while isinstance(error, dict):
        said = as_text(error.get("message")) or said
        error = error.get("error")
    words += [said] if said else []
    tried, most = as_number(record.get("retryAttempt")), as_number(record.get("maxRetries"))
    if tried:
        words.append(f"(attempt {tried} of {most})" if most else f"(attempt {tried})")
    return " ".join(words) or "API error"


def _tokens(record: dict[str, Any]) -> dict[str, int]:
    usage = as_dict(as_dict(record.get("message")).get("usage"))
    return {
        ours: n for name, ours in TOKENS.items() if (n := as_number(usage.get(name))) is not None
    }


def _usage_of_others(message: dict[str, Any]) -> list[Any]:
    """What other models took that the provider asked on the way, as an advisor: it is not in the
    usage of the answer."""
    told = as_list(as_dict(message.get("usage")).get("iterations"))
    return [each for each in told if as_dict(each).get("type", "message") != "message"]


def _told_of_usage(record: dict[str, Any]) -> tuple[int, bool, bool]:
    """How much a record of an answer knows of its usage. The last mostly tells the whole; but the
    first of some providers guesses, and behind the last there may be some that say nothing."""
    tokens = _tokens(record)
    ended = bool(as_dict(record.get("message")).get("stop_reason"))
    return tokens.get("output_tokens", 0), any(tokens.values()), ended


def _said_by(record: dict[str, Any]) -> Any:
    """Who a prompt is from, as new versions say of it or of what waited in the queue."""
    origin = record.get("origin") or as_dict(record.get("attachment")).get("origin")
    return as_dict(origin).get("kind", "human")


def _message_id(uuid: str, record: dict[str, Any]) -> str:
    return as_text(as_dict(record.get("message")).get("id")) or uuid


def _local(said: Said) -> set[str]:
    """The commands that the program itself answered: they were said to nobody else."""
    found: set[str] = set()
    last: str | None = None
    for at, (uuid, kind) in enumerate(zip(said.uuids, said.kinds, strict=True)):
        if kind == "printed" and last is not None:
            found.add(last)
        if kind == "command":
            last = uuid
        elif last is not None and (kind not in BESIDE or said.records[at].get("isMeta")):
            last = None  # what a command stands for was given to the agent
    return found


def _results_after_calls(said: Said, made: dict[str, int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records in their order, but a result behind its call: of parallel calls the result of one
    may be written before the call is. `made`: by which record each call is."""
    late: list[int] = []
    for at, (kind, record) in enumerate(zip(said.kinds, said.records, strict=True)):
        is_early = kind == "result" and any(
            made.get(call, at) > at for call in _ids(record, "tool_use_id")
        )
        if is_early:
            late.append(at)
        else:
            yield at, record
    for at in late:
        yield at, said.records[at]


def _ids(record: dict[str, Any], name: str) -> list[str]:
    blocks = _blocks(as_dict(record.get("message")).get("content"))
    return [found for block in blocks if (found := as_text(block.get(name)))]


def _kind(block: dict[str, Any]) -> str:
    return as_text(block.get("type")) or ""


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def _other_blocks(content: Any) -> list[Any]:
    """Blocks that are not text; images by what they are, their bytes stay in the source record."""
    return [_without_images(b) for b in _blocks(content) if b.get("type") != "text"]


def _without_images(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_images(each) for each in value]
    if isinstance(value, dict):
        source = value.get("source")
        if isinstance(source, dict) and isinstance(source.get("data"), str):
            kept = {name: each for name, each in source.items() if name != "data"}
            return {**value, "source": {**kept, "bytes": len(source["data"]) * 3 // 4}}
        if isinstance(value.get("content"), list):
            return {**value, "content": _without_images(value["content"])}
    return value


def _status(block: dict[str, Any], said: Any) -> tuple[CallStatus, str | None]:
    failed = _kind(as_dict(said)).endswith("_error")  # as tools of the provider's say it
    if not (block.get("is_error") or failed):
        return "completed", None
    if failed:
        return "failed", as_text(as_dict(said).get("error_code")) or "failed"
    words = text_of(said) or "failed"
    return ("rejected" if words.startswith(REJECTED) else "failed"), words
