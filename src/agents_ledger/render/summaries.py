"""Tool calls and compactions in one line each, as plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from agents_ledger.model.files.file_contents import edits_of, first_text
from agents_ledger.model.files.file_tools import changes_of, decoded, path_of, touched
from agents_ledger.model.text import humanize
from agents_ledger.model.text.sanitize import is_plain_line, one_line, visible
from agents_ledger.model.turns import OPEN_CALL, ToolCall, Turn

# Characters. Counting the lines of larger edits would delay a page.
DIFF_MAX = 50_000
RESULT_DEPTH_MAX = 6
PARAMETERS_MAX = 6  # named in a summary when no single one says enough

# The parameter that says most about a call, the best first. `subject` is of Claude Code's
# TaskCreate, `summary` of its SendMessage, `message` of Codex's spawn_agent, `chars` of its
# write_stdin, `text` of browser tools.
_SUBJECTS = (
    "url", "subject", "summary", "description", "question", "prompt", "message", "skill",
    "plan", "name", "input", "text", "chars", "action",
)  # fmt: skip
# `glob_pattern` and `target_directory` are Cursor's names, `query` that of its search tools.
_PATTERNS = ("pattern", "glob_pattern", "regex", "query")
_FOLDERS = ("path", "target_directory", "glob", "include")
# Claude Code and Gemini write `content`, Cursor `contents`, Copilot `file_text`, notebooks
# `new_source`.
_WHOLE_FILE = ("content", "contents", "file_text", "new_source")
# Codex 0.1 sends apply_patch in its own format, others send unified diffs.
_PATCH_STARTS = ("*** Begin Patch", "--- ", "diff --git")
_CODEX_PATCH = re.compile(r"^(?![-+ ]).*\*\*\* Begin Patch", re.MULTILINE)
_HUNK_SIZES = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")
_COUNTS = re.compile(r"(?: [+-]\d+)+$")
_MEMBER = re.compile(r'\s*[{,]\s*(?="|\})')
_VALUE = re.compile(r"\s*:\s*")
_CUT_ESCAPE = re.compile(r"\\+(?:u[0-9a-fA-F]{0,3})?$")
_WORD_BOUNDARY = re.compile(r"[_\s]+|(?<=[a-z0-9])(?=[A-Z])")
_decode_member = json.JSONDecoder().raw_decode


class LineCounts(NamedTuple):
    added: int = 0
    removed: int = 0

    def __str__(self) -> str:
        counts = (
            f"+{self.added}" if self.added else "",
            f"-{self.removed}" if self.removed else "",
        )
        return " ".join(filter(None, counts))


def fit_line(text: str | None, most: int = 160) -> str:
    """Text on one line without control characters, shortened with an ellipsis."""
    text = text or ""
    if not is_plain_line(text):
        text = visible(one_line(text))
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


# -- calls ------------------------------------------------------------------------------------


def argument(params_json: str) -> str:
    """What a call was about: its description and command, its pattern, its files or its subject."""
    params, is_whole = parameters_of(params_json)
    if not isinstance(params, dict):
        return one_line(params_json)
    texts = (
        summarise(params)
        for summarise in (_command, _pattern, _files, _checklist, _subject, _running, _members)
    )
    text = one_line(next(filter(None, texts), ""))
    return text if is_whole else _COUNTS.sub("", text)


def parameters_of(params_json: str) -> tuple[Any, bool]:
    """The parameters of a call, and whether that is all of them.

    Pages read only the beginning of long parameters. Its members are returned, the last one up to
    where the text ends.
    """
    value = decoded(params_json)
    if isinstance(value, str) and params_json.startswith("{"):
        members = _leading_members(params_json)
        return (members, False) if members else (value, True)
    return value, True


def _leading_members(text: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    at = 0
    try:
        while (start := _MEMBER.match(text, at)) is not None:
            name, colon = _decode_member(text, start.end())
            at = _VALUE.match(text, colon).end()  # type: ignore[union-attr]
            try:
                members[name], at = _decode_member(text, at)
            except ValueError:
                members[name], _ = _decode_member(_CUT_ESCAPE.sub("", text[at:]) + '"')
                break
    except (ValueError, AttributeError, RecursionError):  # the text ends within a name or a list
        pass
    return members


def _command(params: dict[str, Any]) -> str:
    command = command_of(params)
    if command is None:
        return ""
    # Codex also runs apply_patch as a shell command with a here-document.
    patched = touched("apply_patch", json.dumps(command)) if "*** Begin Patch" in command else ()
    if patched:
        return _with_counts([path for _, path in patched], count_signs(command))
    about = first_text(params, "description")
    return f"{about} · {command}" if about else command


def _pattern(params: dict[str, Any]) -> str:
    pattern = first_text(params, *_PATTERNS)
    if not pattern:
        return ""
    folder = first_text(params, *_FOLDERS)
    return f"{pattern} in {folder}" if folder else pattern


def _files(params: dict[str, Any]) -> str:
    changes = changes_of(params)
    if changes:
        counts = [
            count_signs(change.diff) if change.diff is not None else count_lines(change.content)
            for change in changes
        ]
        paths = [change.moved_to or change.path for change in changes]
        return _with_counts(paths, _total(counts))
    patch = first_text(params, "patch", "diff", "input")
    if patch is not None and patch.lstrip().startswith(_PATCH_STARTS):
        paths = [path for _, path in touched("apply_patch", json.dumps(patch))]
        return _with_counts(paths or [path_of(params)], count_signs(patch))
    path = path_of(params)
    if not path:
        return ""
    edits = list(edits_of(params))
    if edits:
        return _with_counts([path], _total(count_edit(old, new) for old, new in edits))
    content = first_text(params, *_WHOLE_FILE)
    return _with_counts([path], count_lines(content)) if content else path


def _with_counts(paths: list[str], counts: LineCounts | None) -> str:
    return f"{', '.join(dict.fromkeys(paths))} {counts or ''}".strip()


def _total(counts: Iterable[LineCounts | None]) -> LineCounts | None:
    """All counts together; None if one is not known."""
    added = removed = 0
    for pair in counts:
        if pair is None:
            return None
        added, removed = added + pair.added, removed + pair.removed
    return LineCounts(added, removed)


def count_edit(old: str, new: str) -> LineCounts | None:
    """The lines that a replacement adds and removes; None for one too large to compare."""
    if len(old) + len(new) > DIFF_MAX:
        return None
    before, after = old.splitlines(), new.splitlines()
    from difflib import SequenceMatcher

    blocks = SequenceMatcher(None, before, after).get_matching_blocks()
    common = sum(block.size for block in blocks)
    return LineCounts(len(after) - common, len(before) - common)


def count_signs(diff: str) -> LineCounts:
    lines = diff.split("\n")
    signs = [line[:1] for line in (lines if _CODEX_PATCH.search(diff) else _without_headers(lines))]
    return LineCounts(signs.count("+"), signs.count("-"))


def _without_headers(lines: list[str]) -> Iterator[str]:
    """The lines of a patch but `--- a` and `+++ b`: within a hunk these are lines of the file."""
    is_header = next(filter(None, lines), "").startswith("--- ")
    old_left = new_left = 0  # lines that follow in the hunk, if it says how many
    for at, line in enumerate(lines):
        if line.startswith("@@"):
            sizes = _HUNK_SIZES.match(line)
            old_left, new_left = (int(sizes[1] or 1), int(sizes[2] or 1)) if sizes else (0, 0)
            is_header = False
        elif line.startswith("diff --git "):
            old_left = new_left = 0
            is_header = True
        elif old_left <= 0 >= new_left and _begins_file(lines[at : at + 3]):
            is_header = True
        elif not is_header:
            old_left -= line[:1] in ("-", " ", "")
            new_left -= line[:1] in ("+", " ", "")
        if not is_header or not line.startswith(("--- ", "+++ ")):
            yield line
        elif line.startswith("+++ "):
            is_header = False


def _begins_file(lines: list[str]) -> bool:
    starts = ("--- ", "+++ ", "@@")
    return len(lines) == len(starts) and all(map(str.startswith, lines, starts))


def count_lines(content: str) -> LineCounts:
    """The lines of a file that is written whole."""
    return LineCounts(len(content.splitlines()))


def _checklist(params: dict[str, Any]) -> str:
    """How far a list of tasks is, and the task that is being done; or the first question."""
    tasks = _objects(params.get("todos", params.get("plan")))
    if tasks:
        done = sum(task.get("status") == "completed" for task in tasks)
        current = next((task for task in tasks if task.get("status") == "in_progress"), {})
        now = task_text(current)
        return f"{done} of {len(tasks)} done" + (f" · {now}" if now else "")
    questions = _objects(params.get("questions"))
    return next(filter(None, (first_text(entry, "question") for entry in questions)), "")


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def task_text(task: dict[str, Any]) -> str:
    return str(task.get("content") or task.get("step") or task.get("title") or "")


def _subject(params: dict[str, Any]) -> str:
    texts = (params.get(name) for name in _SUBJECTS)
    text = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    extra = first_text(params, "args") if text == params.get("skill") else None
    return f"{text} {extra}" if extra else text


def _running(params: dict[str, Any]) -> str:
    """A task or a program that runs: `task 4 completed`, `waiting for session 9245`."""
    task = params.get("taskId", params.get("task_id"))
    if task is not None and params.get("status"):
        return f"task {task} {_words(str(params['status']))}"
    # Codex 0.1 polls a program by writing nothing to it.
    running = params.get("session_id")
    is_poll = running is not None and not params.get("chars") and "yield_time_ms" in params
    return f"waiting for session {running}" if is_poll else ""


def _members(params: dict[str, Any]) -> str:
    """Names and values of a few parameters: `task id 3, status completed`."""
    members = [
        f"{_words(name)} {_value(value)}"
        for name, value in params.items()
        if value not in (None, "", [], {})
    ]
    more = "…" if len(members) > PARAMETERS_MAX else ""
    return ", ".join(members[:PARAMETERS_MAX]) + more


def _words(name: str) -> str:
    return _WORD_BOUNDARY.sub(" ", name).strip().lower()


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return humanize.count(len(value), "field")
    if isinstance(value, list):
        is_flat = not any(isinstance(item, dict | list) for item in value)
        return " ".join(map(str, value)) if is_flat else humanize.count(len(value), "item")
    return str(value)


def outcome(call: ToolCall, result_size: int | None = None, most: int = 0) -> str:
    """How a call ended. `result_size` replaces a result that was not read.

    An error is shortened, so that the duration after it is within the first `most` characters.
    """
    if call.status in OPEN_CALL:
        return call.status
    took = ""
    if call.completed_at is not None and call.completed_at > call.started_at:
        took = f" · {humanize.duration(call.completed_at - call.started_at)}"
    if call.status == "completed":
        size = len(call.result_json or "") if result_size is None else result_size
        return (humanize.size(size) if size else "done") + took
    ending = f"{call.status}: {one_line(call.error)}" if call.error else call.status
    return (fit_line(ending, most - len(took)) if most else ending) + took


def compacted(turn: Turn) -> str:
    record = turn.compaction
    if record is None:
        return ""
    count = humanize.count(record.turns_summarized, "turn") if record.turns_summarized else "turns"
    facts = [f"compacted {count}" + (" → summary" if record.summary else "")]
    if record.tokens_before is not None and record.tokens_after is not None:
        before, after = humanize.tokens(record.tokens_before), humanize.tokens(record.tokens_after)
        facts.append(f"{before} → {after} tokens")
    if record.compaction_type != "summary":
        facts.append(record.compaction_type)
    if record.trigger:
        facts.append(record.trigger.replace("_", " "))
    return " · ".join(facts)


# -- values of parameters and results ---------------------------------------------------------


def pretty(text: str) -> str:
    """JSON indented; other text unchanged."""
    value = decoded(text)
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return text


def command_of(params: dict[str, Any]) -> str | None:
    command = params.get("command", params.get("cmd"))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = " ".join(command)
    return command if isinstance(command, str) else None


_TEXT_MEMBER = re.compile(r'"(?:text|output|content)"\s*:\s*(?=")')


def leading_text(result_json: str | None) -> str:
    """The text of a result, of which only the beginning may have been read."""
    value = decoded(result_json)
    texts = list(texts_of(value))
    if texts and value != result_json:
        return "\n".join(texts)
    # The JSON ends within a text.
    member = _TEXT_MEMBER.search(result_json or "")
    cut = (result_json or "")[member.end() :] if member else result_json or ""
    try:
        return str(_decode_member(_CUT_ESCAPE.sub("", cut) + '"')[0])
    except ValueError:
        return ""


# Shells return `stdout` and `stderr`, Codex `output`, MCP servers a list of `content` blocks.
_TEXT_KEYS = ("stdout", "stderr", "output", "text", "content", "result", "message")
_TEXT_BLOCKS = ("text", "input_text", "output_text")


def texts_of(value: Any, depth: int = 0) -> Iterator[str]:
    """The texts of a result that consists of texts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < RESULT_DEPTH_MAX:
        for block in value:
            if isinstance(block, dict) and block.get("type") in _TEXT_BLOCKS:
                yield from texts_of(block.get("text"), depth + 1)
    elif isinstance(value, dict) and set(value) & set(_TEXT_KEYS):
        texts = [value[key] for key in _TEXT_KEYS if key in value]
        # A result with many other members is a record, and is shown as JSON.
        if len(value) <= len(texts) + 3 and all(isinstance(text, str | list) for text in texts):
            for text in texts:
                yield from texts_of(text, depth + 1)
