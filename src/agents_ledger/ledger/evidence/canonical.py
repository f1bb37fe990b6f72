"""The canonical form of what evidence covers (docs/explanation/evidence.md). Whoever changes it
raises the version in its first line, and keeps this one for what is hashed already.

What is plain, such as ids and times, is written out. Every other value is represented by a
commitment: the hash of a salt and the value as it is stored. Without its salt, nobody can find out
by trying which value it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agents_ledger.model.evidence.merkle import leaf_hash
from agents_ledger.store.database import Row
from agents_ledger.store.text import escape_row

SEED_BYTES = 16
_CONTENT = "agents-ledger turn 1\n"
_TURN = "agents-ledger turn leaf 1\n"
_MOVE = "agents-ledger move leaf 1\n"
_SOURCE = "agents-ledger source leaf 1\n"
_ENTRY = "agents-ledger entry leaf 1\n"
IMPORTED = "*"  # in place of a turn that is derived from source records, and may become another
# Longer values are hashed in pieces: for them Python lets other threads run, which costs more than
# the hashing.
_PIECE = 2047

NOTHING_REMOVED: Mapping[str, str] = {}
Commit = Callable[[str, bytes], str]
"""The commitment of a value by its label, in hexadecimal digits."""


class Columns(NamedTuple):
    """The columns of one table that are covered, in their order."""

    plain: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return self.plain + self.values


TURN = Columns(
    (
        *("id", "turn_type", "status", "started_at", "completed_at", "role", "input_tokens"),
        *("output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens"),
        *("total_tokens", "long_cache_write_tokens", "query_message_ids", "response_message_id"),
        "tool_call_count",
    ),
    (
        *("model", "provider", "toolset_name", "tools_available", "permissions_granted"),
        *("permissions_used", "source_event_id", "workspace_path", "effective_config_json"),
        "error",
    ),
)
MESSAGE = Columns(
    ("id", "role", "source", "sequence", "created_at", "tool_call_id"),
    ("content", "thinking", "context_json", "metadata_json"),
)
FILE = Columns(("kind", "line_start", "line_end"), ("file_path",))
LINT = Columns(
    ("lint_source", "start_line", "start_col", "end_line", "end_col", "severity"),
    ("file_path", "message"),
)
CODEBLOCK = Columns(("idx", "language", "line_start", "line_end"), ("content", "file_path"))
CALL = Columns(
    (
        *("id", "message_id", "tool_number", "status", "source_status", "spawned_session_label"),
        *("started_at", "completed_at", "sequence"),
    ),
    ("tool_name", "params_json", "result_json", "error"),
)
COMPACTION = Columns(
    (
        *("summarized_through_turn_id", "first_kept_turn_id", "turns_summarized"),
        *("compaction_type", "model", "provider", "tokens_before", "tokens_after"),
        *("summary_tokens", "summarization_input_tokens", "summarization_output_tokens"),
        *("duration_ms", "trigger"),
    ),
    ("summary", "metadata_json"),
)
_SEQUENCE_OF_MESSAGE = MESSAGE.plain.index("sequence")
_SEQUENCE_OF_CALL = CALL.plain.index("sequence")


class MessageDetails(NamedTuple):
    """What hangs on one message, each in the order of its rows."""

    files: Sequence[Row] = ()
    lints: Sequence[Row] = ()
    codeblocks: Sequence[Row] = ()


class TurnContent(NamedTuple):
    """A turn as rows of what is covered, in stored form. Messages and calls are in order."""

    turn: Row
    messages: Sequence[Row]
    calls: Sequence[Row]
    details: Mapping[str, MessageDetails] = {}  # by message id
    compaction: Row | None = None


class Place(NamedTuple):
    """What of a turn's place and of its first move is covered with it."""

    parent_turn_id: str | None
    system_prompt_hash: str | None
    persona_id: str | None
    thread_key: str | None
    session_label: str | None = None  # that moved to it when it was sealed; None: none did
    moved_at: int | None = None


def digest(*parts: bytes) -> bytes:
    from hashlib import sha256  # it loads OpenSSL, which commands that only read do not need

    hashed = sha256(parts[0])
    for part in parts[1:]:
        if len(part) <= _PIECE:
            hashed.update(part)
        else:
            for start in range(0, len(part), _PIECE):
                hashed.update(part[start : start + _PIECE])
    return hashed.digest()


def salt(seed: bytes, label: str) -> bytes:
    return digest(seed + label.encode())


def commitment(salt_of_value: bytes, value: bytes) -> str:
    return digest(salt_of_value, value).hex()


def seeded(seed: bytes) -> Commit:
    """Commitments by salts that are derived from one seed."""

    def commit(label: str, value: bytes) -> str:
        return commitment(salt(seed, label), value)

    return commit


def item(value: object) -> str:
    """A plain value: its length in bytes, and the value; a number by its decimal digits."""
    if value is None:
        return "-;"
    text = value if value.__class__ is str else str(value)
    length = len(text) if text.isascii() else len(text.encode())
    return f"{length}:{text};"


class _Writer:
    """Writes rows in canonical form."""

    def __init__(self, version: str, commit: Commit, removed: Mapping[str, str]) -> None:
        self.parts = [version]
        self._commit = commit
        self._removed = removed

    def write(self, columns: Columns, row: Sequence[Any], prefix: str) -> None:
        plain, parts = len(columns.plain), self.parts
        parts += map(item, row[:plain])
        for name, value in zip(columns.values, row[plain:], strict=True):
            if self._removed and prefix + name in self._removed:
                parts.append(f"{self._removed[prefix + name]};")
            elif value is None:
                parts.append("-;")
            else:
                parts.append(f"{self._commit(prefix + name, _encoded(value))};")

    def write_details(self, details: MessageDetails, prefix: str) -> None:
        for word, columns, rows in (
            ("f", FILE, details.files),
            ("l", LINT, details.lints),
            ("b", CODEBLOCK, details.codeblocks),
        ):
            for number, row in enumerate(rows):
                self.parts.append(word)
                self.write(columns, row, f"{prefix}{word}{number}.")

    def text(self) -> str:
        return "".join(self.parts)


def _encoded(value: object) -> bytes:
    """A value as bytes. In a damaged file even a column of texts may hold something else."""
    return value.encode() if isinstance(value, str) else b"\xff" + repr(value).encode()


def content_hash(
    content: TurnContent, commit: Commit, removed: Mapping[str, str] = NOTHING_REMOVED
) -> str:
    """The hash of a turn's content, in hexadecimal digits. `removed`: the commitments that are left
    of values."""
    return hash_of_text(content_text(content, commit, removed))


def hash_of_text(text: str) -> str:
    return digest(text.encode()).hex()


def content_text(
    content: TurnContent, commit: Commit, removed: Mapping[str, str] = NOTHING_REMOVED
) -> str:
    """A turn's content in canonical form."""
    writer = _Writer(_CONTENT, commit, removed)
    writer.write(TURN, content.turn, "")
    for message in content.messages:
        prefix = f"m{message[_SEQUENCE_OF_MESSAGE]}."
        writer.parts.append("m")
        writer.write(MESSAGE, message, prefix)
        details = content.details.get(message[0])
        if details is not None:
            writer.write_details(details, prefix)
    for call in content.calls:
        writer.parts.append("c")
        writer.write(CALL, call, f"c{call[_SEQUENCE_OF_CALL]}.")
    if content.compaction is not None:
        writer.parts.append("k")
        writer.write(COMPACTION, content.compaction, "k.")
    return writer.text()


def turn_data(content: str, place: Place) -> bytes:
    """What a turn's leaf is the hash of."""
    return _data(_TURN, content, *place)


def move_data(
    label: str, thread_id: str | None, changed_at: int, reason: str, former: str | None = None
) -> bytes:
    """`former`: the label before, if the session was renamed."""
    return _data(_MOVE, label, thread_id, changed_at, reason, former)


def entry_data(kind: str, subject: str, payload: str) -> bytes:
    """Of what has no other row."""
    return _data(_ENTRY, kind, subject, payload)


def source_data(path: str, generation: int, start: int, commitments: Sequence[str]) -> bytes:
    """Of a block of source records: `path` is a commitment, too."""
    content = digest("".join(commitments).encode()).hex()
    return _data(_SOURCE, path, generation, start, len(commitments), content)


def _data(version: str, *values: object) -> bytes:
    return (version + "".join(map(item, values))).encode()


def leaf_of_turn(content: str, place: Place) -> bytes:
    return leaf_hash(turn_data(content, place))


def stored(values: tuple[Any, ...]) -> Row:
    """The values as the database stores them."""
    return escape_row(values)


def pieces(data: bytes) -> list[bytes]:
    """A block of source records by its lines, each with its line feed."""
    parts = data.split(b"\n")
    last = parts.pop()
    lines = [part + b"\n" for part in parts]
    return [*lines, last] if last else lines
