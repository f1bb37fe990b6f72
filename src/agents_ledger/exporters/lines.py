"""Tool calls and compactions in a line each, and what a call says as text."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

import msgspec

from agents_ledger.model import amounts
from agents_ledger.model.harmless import one_line
from agents_ledger.model.turns import OPEN_CALL, ToolCall, Turn

# Of a tool's parameters the one worth a line, the most telling first.
TELLING = (
    "command", "cmd", "file_path", "path", "notebook_path", "target_file", "pattern", "query",
    "url", "description", "prompt", "name",
)  # fmt: skip
DIFF_LINES_MAX = 2000
_DEEPEST = 6
_decoder = msgspec.json.Decoder()


def decoded(text: str | None) -> Any:
    """The value of a JSON text; a text that is none is its own value."""
    if text is None:
        return None
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def argument(params_json: str) -> str:
    """The parameter that tells most, or all of them."""
    params = decoded(params_json)
    if not isinstance(params, dict):
        return one_line(params_json)
    for name in TELLING:
        if isinstance(params.get(name), str):
            return one_line(str(params[name]))
    return one_line(params_json) if params else ""


def outcome(call: ToolCall) -> str:
    """What came of a call, in few words."""
    took = ""
    if call.completed_at is not None and call.completed_at > call.started_at:
        took = f", {amounts.duration(call.completed_at - call.started_at)}"
    if call.status == "completed":
        return f"→ {amounts.size(len(call.result_json or ''))}{took}"
    if call.status in OPEN_CALL:
        return call.status
    return f"{call.status}: {one_line(call.error or 'no reason given')}"


def pretty(text: str) -> str:
    """JSON with its nesting shown; other text as it is."""
    value = decoded(text)
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return text


def compacted(turn: Turn) -> str:
    """What a compaction did, in a line."""
    record = turn.compaction
    if record is None:
        return ""
    count = amounts.count(record.turns_summarized, "turn") if record.turns_summarized else "turns"
    parts = [f"compacted {count}" + (" → summary" if record.summary else "")]
    if record.tokens_before is not None and record.tokens_after is not None:
        before, after = amounts.tokens(record.tokens_before), amounts.tokens(record.tokens_after)
        parts.append(f"{before} → {after} tokens")
    if record.compaction_type != "summary":
        parts.append(record.compaction_type)
    if record.trigger:
        parts.append(record.trigger)
    return " · ".join(parts)


# -- parts of a call --------------------------------------------------------------------------


def first_text(params: dict[str, Any], *names: str) -> str | None:
    """The first of these parameters that is a text."""
    return next((params[name] for name in names if isinstance(params.get(name), str)), None)


def path_of(params: dict[str, Any]) -> str:
    """The file a call is about."""
    return first_text(params, "file_path", "path", "filePath", "target_file", "notebook_path") or ""


def command_of(params: dict[str, Any]) -> str | None:
    """The command that is to be run."""
    command = params.get("command", params.get("cmd"))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = " ".join(command)
    return command if isinstance(command, str) else None


def edits_of(params: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is to be replaced, and by what."""
    edits = params.get("edits")
    for pair in [params, *edits] if isinstance(edits, list) else [params]:
        if isinstance(pair, dict):
            old = first_text(pair, "old_string", "old", "oldText", "old_str", "oldString")
            new = first_text(pair, "new_string", "new", "newText", "new_str", "newString")
            if old is not None and new is not None:
                yield old, new


def difference(old: str, new: str) -> str:
    """The lines taken away and put in their place, each with its sign."""
    lines = list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3))[2:]
    if len(lines) > DIFF_LINES_MAX:
        left = len(lines) - DIFF_LINES_MAX
        lines = [*lines[:DIFF_LINES_MAX], f"@@ {left} more lines @@"]
    return "\n".join(lines)


_TEXT_KEYS = ("stdout", "stderr", "output", "text", "content", "result", "message")


def texts_of(value: Any, depth: int = 0) -> Iterator[str]:
    """The texts of a result, if it is made of such."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _DEEPEST:
        for each in value:
            if isinstance(each, dict) and each.get("type") in ("text", "input_text", "output_text"):
                yield from texts_of(each.get("text"), depth + 1)
    elif isinstance(value, dict) and set(value) & set(_TEXT_KEYS):
        known = [value[key] for key in _TEXT_KEYS if key in value]
        if len(value) <= len(known) + 3 and all(isinstance(each, str | list) for each in known):
            for each in known:
                yield from texts_of(each, depth + 1)
