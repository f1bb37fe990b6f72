"""A turn as a search document: its text by part, and its facets."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from agents_ledger.model.files.file_tools import touched
from agents_ledger.model.limits import LIMITS, LedgerLimits
from agents_ledger.model.reports.search import PARTS, TextPart
from agents_ledger.model.turns import (
    UNSUCCESSFUL_CALL,
    CallStatus,
    Message,
    Turn,
    TurnStatus,
    TurnType,
)
from agents_ledger.store.database import Transaction

VALUE_MAX = 20_000  # characters of a value
VALUE_MIN = 500
# A value this long without a space is not text but an image, a key or a hash.
OPAQUE_MIN = 400

_decode = msgspec.json.Decoder().decode


class IndexedPiece(NamedTuple):
    """Text of one message or call."""

    part: TextPart
    text: str
    tool_name: str | None = None
    sequence: int | None = None  # of the message or call in its turn
    message_id: str | None = None


class IndexedCall(NamedTuple):
    """What a search document needs of a tool call."""

    tool_name: str
    status: CallStatus
    params_json: str
    result_json: str | None
    error: str | None
    sequence: int


class IndexedFile(NamedTuple):
    """A file that a turn read or wrote, and by which tool."""

    path: str
    written: bool
    tool_name: str | None


class SearchDocument(msgspec.Struct):
    turn_id: str
    started_at: int
    turn_type: TurnType
    status: TurnStatus
    model: str | None
    workspace_path: str | None
    call_count: int
    limits: LedgerLimits = LIMITS
    pieces: list[IndexedPiece] = msgspec.field(default_factory=list)
    files: list[IndexedFile] = msgspec.field(default_factory=list)
    tools: list[str] = msgspec.field(default_factory=list)
    letters: int = 0  # of its texts
    touched: set[tuple[str, bool]] = msgspec.field(default_factory=set)  # its files, and how

    def say(self, part: TextPart, text: str) -> None:
        self.add(IndexedPiece(part, text))

    def add(self, piece: IndexedPiece) -> None:
        text = piece.text[: self.limits.indexed_turn_chars - self.letters]
        self.letters += len(text)
        self.pieces.append(piece._replace(text=text))

    def add_message(
        self, role: str, content: str | None, thinking: str | None, *place: Any
    ) -> None:
        """`place`: the sequence and the id of the message."""
        most = self.limits.indexed_message_chars
        if thinking:
            self.add(IndexedPiece("thinking", _ends(thinking, most), None, *place))
        if content:
            part: Any = "tool_result" if role == "tool" else role
            self.add(IndexedPiece(part, _ends(content, most), None, *place))

    def touch(self, path: str, kind: str, tool_name: str | None = None) -> None:
        """Add a file that was read or written; a tool's entry is preferred to a message's."""
        written = kind == "written"
        if tool_name is not None or (path, written) not in self.touched:
            self.touched.add((path, written))
            self.files.append(IndexedFile(path, written, tool_name))

    @property
    def value_max(self) -> int:
        share = self.limits.indexed_values_chars // max(1, self.call_count)
        return max(VALUE_MIN, min(VALUE_MAX, share))

    def part(self, part: str) -> str:
        return "\n".join([piece.text for piece in self.pieces if piece.part == part])

    def texts(self) -> dict[str, str]:
        """The text of every column of the index."""
        by_part: dict[str, list[str]] = {part: [] for part in PARTS}
        for piece in self.pieces:
            by_part[piece.part].append(piece.text)
        columns = {part: "\n".join(texts) for part, texts in by_part.items()}
        columns["project"] = project_of(self.workspace_path)
        columns["model"] = self.model or ""
        columns["tool"] = "\n".join(dict.fromkeys(self.tools))
        columns["file"] = "\n".join(dict.fromkeys(file.path for file in self.files))
        columns["state"] = f"turn {self.status} {self.turn_type}"
        return columns


def project_of(workspace_path: str | None) -> str:
    return re.split(r"[/\\]", (workspace_path or "").rstrip("/\\"))[-1]


def of_turn(turn: Turn, limits: LedgerLimits = LIMITS) -> SearchDocument:
    """The document of a turn that is in memory."""
    document = SearchDocument(
        turn.id,
        turn.started_at,
        turn.turn_type,
        turn.status,
        turn.model,
        turn.workspace_path,
        turn.tool_call_count or len(turn.tool_calls),
        limits,
    )
    if turn.error:
        document.say("system", turn.error)
    for message in turn.messages:
        document.add_message(
            message.role, message.content, message.thinking, message.sequence, message.id
        )
    for call in turn.tool_calls:
        indexed = IndexedCall(
            call.tool_name,
            call.status,
            call.params_json,
            call.result_json,
            call.error,
            call.sequence,
        )
        _add_call(document, indexed)
    for message in turn.messages:
        _add_details(document, message)
    if turn.compaction is not None:
        document.say("assistant", turn.compaction.summary)
    return document


def _add_details(document: SearchDocument, message: Message) -> None:
    for file in message.files:
        if file.kind in ("read", "written"):
            document.touch(file.file_path, file.kind)
    for block in message.codeblocks:
        document.say("assistant", block.content)


def documents(tx: Transaction, ids: str) -> dict[str, SearchDocument]:
    """The documents of turns by id; `ids` is a JSON array. Unknown ids are left out."""
    by_id: dict[str, SearchDocument] = {}
    calls = 0
    rows = tx.run("document_turns", ids=ids)
    for turn_id, started_at, turn_type, status, model, path, error, count in rows:
        by_id[turn_id] = document = SearchDocument(
            turn_id, started_at, turn_type, status, model, path, count, tx.limits
        )
        if error:
            document.say("system", error)
        calls += count
    if by_id:
        _add_steps(tx, ids, by_id, has_calls=calls > 0)
        _add_rare(tx, ids, by_id)
    return by_id


def _add_steps(
    tx: Transaction, ids: str, by_id: dict[str, SearchDocument], *, has_calls: bool
) -> None:
    def add_message(turn_id: str, has_details: int, *message: Any) -> int:
        by_id[turn_id].add_message(*message)
        return has_details

    def add_call(turn_id: str, *call: Any) -> None:
        _add_call(by_id[turn_id], IndexedCall(*call))

    # Row by row: a turn may be far larger than the part of it that is indexed.
    detailed = any(tx.read_as("document_messages", add_message, ids=ids))
    if has_calls:
        tx.read_as("document_calls", add_call, ids=ids)
    if detailed:
        for turn_id, kind, path in tx.run("document_files", ids=ids):
            by_id[turn_id].touch(path, kind)
        for turn_id, content in tx.run("document_codeblocks", ids=ids):
            by_id[turn_id].say("assistant", content)


def _add_rare(tx: Transaction, ids: str, by_id: dict[str, SearchDocument]) -> None:
    """Add the summaries of compactions and the partial text of live turns."""
    kinds = {word for document in by_id.values() for word in (document.turn_type, document.status)}
    statements = []
    if "compaction" in kinds:
        statements.append("document_summaries")
    if kinds & {"pending", "streaming"}:
        statements.append("document_partials")
    for statement in statements:
        for turn_id, content in tx.run(statement, ids=ids):
            by_id[turn_id].say("assistant", content)


def _add_call(document: SearchDocument, call: IndexedCall) -> None:
    most, tool_name = document.value_max, call.tool_name
    document.tools.append(tool_name)
    params = readable(_value(call.params_json), most)

    def add(part: TextPart, text: str) -> None:
        document.add(IndexedPiece(part, text, tool_name, call.sequence))

    add("tool_call", f"{tool_name}\n{params}")
    if call.result_json is not None:
        add("tool_result", readable(_value(call.result_json), most))
    if call.error:
        add("tool_result", _ends(call.error, most))
    if call.status not in UNSUCCESSFUL_CALL:
        for kind, path in touched(tool_name, call.params_json):
            document.touch(path, kind, tool_name)


# -- values -----------------------------------------------------------------------------------


def _value(text: str) -> object:
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


def readable(value: object, most: int = VALUE_MAX) -> str:
    """The texts and numbers in a value, a line item, without the names of its fields."""
    if type(value) is str:
        return _trimmed(value, most)
    lines: list[str] = []
    left = [value]
    while left:
        item = left.pop()
        kind = type(item)
        if kind is str:
            if item:
                lines.append(_trimmed(item, most))  # type: ignore[arg-type]
        elif kind is dict:
            left += reversed(item.values())  # type: ignore[attr-defined]
        elif kind is list:
            left += reversed(item)  # type: ignore[call-overload]
        elif kind is int or kind is float:
            lines.append(str(item))
    return "\n".join(lines)


def _trimmed(text: str, most: int) -> str:
    if len(text) < OPAQUE_MIN:
        return text
    if " " not in text and "\n" not in text:
        return ""
    return _ends(text, most)


def _ends(text: str, most: int) -> str:
    """A text; of a longer one the first `most` characters and a fifth as many from its end."""
    if len(text) <= most:
        return text
    end = most // 5
    return f"{text[: most - end]}\n{text[-end:]}"
