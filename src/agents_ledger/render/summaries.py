"""Tool calls and compactions in a line each, and what a call says as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agents_ledger.model.files.file_tools import changes_of, decoded
from agents_ledger.model.text import humanize
from agents_ledger.model.text.sanitize import one_line
from agents_ledger.model.turns import OPEN_CALL, ToolCall, Turn

# Of a tool's parameters the one worth a line, the most telling first.
TELLING = (
    "command", "cmd", "file_path", "path", "notebook_path", "target_file", "pattern", "query",
    "url", "description", "prompt", "name", "input",
)  # fmt: skip
_DEEPEST = 6


def argument(params_json: str) -> str:
    """The parameter that tells most, or all of them."""
    params = decoded(params_json)
    if not isinstance(params, dict):
        return one_line(params_json)
    for name in TELLING:
        if isinstance(params.get(name), str):
            return one_line(str(params[name]))
    changed = [change.path for change in changes_of(params)]
    if changed:
        return one_line(", ".join(changed))
    return one_line(params_json) if params else ""


def outcome(call: ToolCall) -> str:
    """What came of a call, in few words."""
    took = ""
    if call.completed_at is not None and call.completed_at > call.started_at:
        took = f", {humanize.duration(call.completed_at - call.started_at)}"
    if call.status == "completed":
        return f"→ {humanize.size(len(call.result_json or ''))}{took}"
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
    count = humanize.count(record.turns_summarized, "turn") if record.turns_summarized else "turns"
    parts = [f"compacted {count}" + (" → summary" if record.summary else "")]
    if record.tokens_before is not None and record.tokens_after is not None:
        before, after = humanize.tokens(record.tokens_before), humanize.tokens(record.tokens_after)
        parts.append(f"{before} → {after} tokens")
    if record.compaction_type != "summary":
        parts.append(record.compaction_type)
    if record.trigger:
        parts.append(record.trigger)
    return " · ".join(parts)


# -- parts of a call --------------------------------------------------------------------------


def command_of(params: dict[str, Any]) -> str | None:
    """The command that is to be run."""
    command = params.get("command", params.get("cmd"))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = " ".join(command)
    return command if isinstance(command, str) else None


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
