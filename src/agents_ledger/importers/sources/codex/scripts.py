"""Codex: scripts, through which versions since 0.144 call their tools.

A rollout records a script as one call with one output. The calls that the script made appear only
in events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_list,
    as_number,
    as_text,
    parse_json,
)
from agents_ledger.importers.sources.codex import rules
from agents_ledger.importers.sources.codex.records import content_text

NOT_A_WORD = re.compile(r"\W")


class ScriptEnd(NamedTuple):
    error: str | None  # if it failed
    # The first non-zero one of the command results that it printed.
    exit_code: int | None


def script_end(output: Any) -> ScriptEnd | None:
    """How a script ended, from its output; None if this is not the output of a script."""
    blocks = [output] if isinstance(output, str) else map(_block_text, as_list(output))
    first, *rest = [*blocks] or [""]
    header = rules.SCRIPT_HEADER.match(first)
    if header is None:
        return None
    printed = [first[header.end() :], *rest]
    if header[1] == "failed":
        error = "\n".join(printed).rpartition(rules.SCRIPT_ERROR)[2].strip()
        return ScriptEnd(error.split("\n", 1)[0] or "script failed", None)
    codes = [code for text in printed if (code := _exit_code(text)) is not None]
    return ScriptEnd(None, next(filter(None, codes), 0) if codes else None)


def _block_text(block: Any) -> str:
    return as_text(as_dict(block).get("text")) or ""


def _exit_code(text: str) -> int | None:
    """The exit code in the result of a command, as a script printed it."""
    notice = rules.SCRIPT_TRUNCATED.match(text)
    start = notice.end() if notice else 0
    if not text.startswith("{", start):
        return None
    if match := rules.SCRIPT_EXIT_CODE.match(text, start):
        return int(match[1])
    code = as_dict(parse_json(text)).get("exit_code") if '"exit_code"' in text else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None


class ScriptCall(NamedTuple):
    """A call that a script made, as the event at its end reports it."""

    id: str
    tool_name: str
    params: dict[str, Any]
    result: Any
    error: str | None  # if it failed
    written: tuple[str, ...]  # paths
    duration_ms: int


def event_item(payload: dict[str, Any]) -> dict[str, Any]:
    """The item of an event; without one the event itself."""
    return as_dict(payload.get("item")) or payload


def event_call_id(item: dict[str, Any]) -> str | None:
    return as_text(item.get("call_id")) or as_text(item.get("event_id")) or as_text(item.get("id"))


def script_call_tool(item: dict[str, Any]) -> str | None:
    """The tool, if an event reports a call that a script made."""
    kind = item.get("kind") if item.get("type") == "Extension" else item.get("type")
    if not (event_call_id(item) or "").startswith(rules.SCRIPT_CALL) or not isinstance(kind, str):
        return None
    return rules.SCRIPT_CALL_TOOLS.get(kind)


def script_call(item: dict[str, Any]) -> ScriptCall | None:
    """The call that an event reports; None if no script made it."""
    call_id, tool = event_call_id(item), script_call_tool(item)
    if call_id is None or tool is None:
        return None
    params: dict[str, Any] = {}
    written: tuple[str, ...] = ()
    result, error = item.get("results"), None
    if tool == "apply_patch":
        written = tuple(_changed_paths(as_dict(item.get("changes"))))
        params = {"changes": as_dict(item.get("changes"))}
        result = as_text(item.get("stdout"))
    elif tool == "mcp":
        invocation = as_dict(item.get("invocation")) or item
        tool = NOT_A_WORD.sub("_", f"mcp__{invocation.get('server')}__{invocation.get('tool')}")
        params = as_dict(invocation.get("arguments"))
        result, error = _mcp_result(item)
    elif tool == "exec_command":
        params = {field: item[field] for field in ("command", "cwd") if item.get(field)}
        result = as_text(item.get("aggregated_output")) or as_text(item.get("stdout"))
    else:
        params = as_dict(item.get("action")) or {"query": item.get("query")}
    if item.get("success") is False or item.get("status") == "failed":
        error = error or as_text(item.get("stderr")) or "failed"
    return ScriptCall(call_id, tool, params, result, error, written, _duration_ms(item))


def _mcp_result(item: dict[str, Any]) -> tuple[Any, str | None]:
    result = as_dict(item.get("result"))
    answer = result.get("Ok", None if "Err" in result else result or None)
    error = result.get("Err", as_dict(item.get("error")).get("message"))
    if as_dict(answer).get("isError") is True:
        error = error or content_text(as_dict(answer).get("content")) or "failed"
    return answer, as_text(error)


def _changed_paths(changes: dict[str, Any]) -> Iterator[str]:
    for path, change in changes.items():
        yield path
        if new_path := as_text(as_dict(change).get("move_path")):
            yield new_path


def _duration_ms(item: dict[str, Any]) -> int:
    duration = as_dict(item.get("duration"))
    seconds, nanos = as_number(duration.get("secs")), as_number(duration.get("nanos"))
    return (seconds or 0) * 1000 + (nanos or 0) // 1_000_000
