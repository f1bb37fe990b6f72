"""Codex: scripts, by which newer versions call their tools: what they called, and how they ended.

The log has a script as one call with one output. What it called itself stands only in events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from agents_ledger.importers.sources.codex.prompts import content_text
from agents_ledger.importers.transcript.turn_tree import (
    as_dict,
    as_list,
    as_number,
    as_text,
    parsed,
)

SCRIPT = "exec"  # the tool that runs one
SCRIPTS = (SCRIPT, "wait")  # tools whose outputs are those of scripts
CALLED = f"{SCRIPT}-"  # how the ids of calls begin that a script made
TOLD_BY = {  # kinds of events and of their items, and the tools whose calls they tell
    "CommandExecution": "exec_command",
    "FileChange": "apply_patch",
    "McpToolCall": "mcp",
    "WebSearch": "web_search",
    "exec_command_end": "exec_command",
    "mcp_tool_call_end": "mcp",
    "patch_apply_end": "apply_patch",
    "web.search": "web_search",
    "web_search_end": "web_search",
}
NO_NAME = re.compile(r"\W")
HEADER = re.compile(r"Script (\w{1,32})(?!\w)[^\n]{0,200}\nWall time [\d.]+ seconds\nOutput:\n")
ERROR = "Script error:\n"
CUT = re.compile(r"\s*(?:Warning: truncated output [^\n]*\n(?:Total output lines: \d+\n)?\s*)?")
# How a command's result begins as a script prints it; the rest may be cut off.
CODE = re.compile(r'\{\s*(?:"\w+":\s*(?:[\w.+-]+|"[^"\\]*"),\s*)*"exit_code":\s*(-?\d{1,9})\b')


class Ended(NamedTuple):
    """How a script ended."""

    error: str | None  # if it failed
    code: int | None  # of the commands whose results it printed: the first that is not 0


def ended(output: Any) -> Ended | None:
    """What the output of a script says of its end; None if it is no such output."""
    blocks = [output] if isinstance(output, str) else map(_words, as_list(output))
    first, *others = [*blocks] or [""]
    header = HEADER.match(first)
    if header is None:
        return None
    printed = [first[header.end() :], *others]
    if header[1] == "failed":
        words = "\n".join(printed).rpartition(ERROR)[2].strip()
        return Ended(words.split("\n", 1)[0] or "script failed", None)
    codes = [code for text in printed if (code := _code(text)) is not None]
    return Ended(None, next(filter(None, codes), 0) if codes else None)


def _words(block: Any) -> str:
    return as_text(as_dict(block).get("text")) or ""


def _code(text: str) -> int | None:
    """The exit code in a command's result."""
    begin = CUT.match(text)
    at = begin.end() if begin else 0
    if not text.startswith("{", at):
        return None
    if found := CODE.match(text, at):
        return int(found[1])
    code = as_dict(parsed(text)).get("exit_code") if '"exit_code"' in text else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None


class Called(NamedTuple):
    """A call that a script made, as an event tells it once it ended."""

    id: str
    tool_name: str
    params: dict[str, Any]
    result: Any
    error: str | None  # if it failed
    written: tuple[str, ...]  # paths
    took_ms: int


def told(payload: dict[str, Any]) -> dict[str, Any]:
    """What an event tells of: its item, or itself."""
    return as_dict(payload.get("item")) or payload


def id_of(said: dict[str, Any]) -> str | None:
    """The call that this tells of."""
    return as_text(said.get("call_id")) or as_text(said.get("event_id")) or as_text(said.get("id"))


def tool_called(said: dict[str, Any]) -> str | None:
    """The tool, if this tells of a call that a script made."""
    kind = said.get("kind") if said.get("type") == "Extension" else said.get("type")
    if not (id_of(said) or "").startswith(CALLED) or not isinstance(kind, str):
        return None
    return TOLD_BY.get(kind)


def called(said: dict[str, Any]) -> Called | None:
    """The call that an event tells of; None if no script made it."""
    call_id, name = id_of(said), tool_called(said)
    if call_id is None or name is None:
        return None
    params: dict[str, Any] = {}
    written: tuple[str, ...] = ()
    result, wrong = said.get("results"), None
    if name == "apply_patch":
        written = tuple(_paths(as_dict(said.get("changes"))))
        params = {"changes": as_dict(said.get("changes"))}
        result = as_text(said.get("stdout"))
    elif name == "mcp":
        named = as_dict(said.get("invocation")) or said
        name = NO_NAME.sub("_", f"mcp__{named.get('server')}__{named.get('tool')}")
        params = as_dict(named.get("arguments"))
        result, wrong = _answer(said)
    elif name == "exec_command":
        params = {field: said[field] for field in ("command", "cwd") if said.get(field)}
        result = as_text(said.get("aggregated_output")) or as_text(said.get("stdout"))
    else:
        params = as_dict(said.get("action")) or {"query": said.get("query")}
    if said.get("success") is False or said.get("status") == "failed":
        wrong = wrong or as_text(said.get("stderr")) or "failed"
    return Called(call_id, name, params, result, wrong, written, _took(said))


def _answer(said: dict[str, Any]) -> tuple[Any, str | None]:
    """What a server answered, and what was wrong."""
    result = as_dict(said.get("result"))
    answer = result.get("Ok", None if "Err" in result else result or None)
    failure = result.get("Err", as_dict(said.get("error")).get("message"))
    if as_dict(answer).get("isError") is True:
        failure = failure or content_text(as_dict(answer).get("content")) or "failed"
    return answer, as_text(failure)


def _paths(changes: dict[str, Any]) -> Iterator[str]:
    for path, change in changes.items():
        yield path
        if moved := as_text(as_dict(change).get("move_path")):
            yield moved


def _took(said: dict[str, Any]) -> int:
    duration = as_dict(said.get("duration"))
    seconds, nanos = as_number(duration.get("secs")), as_number(duration.get("nanos"))
    return (seconds or 0) * 1000 + (nanos or 0) // 1_000_000
