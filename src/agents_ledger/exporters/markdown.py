"""A thread as Markdown. Messages keep their own Markdown, but cannot contain HTML, load images or
end the block they are quoted in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agents_ledger.exporters.exported_thread import ExportedThread
from agents_ledger.model.files.file_contents import difference, edits_of
from agents_ledger.model.files.file_tools import decoded
from agents_ledger.model.secrets.masking import review
from agents_ledger.model.sessions import NATIVE
from agents_ledger.model.text import humanize
from agents_ledger.model.text.sanitize import one_line, visible, visible_lines
from agents_ledger.model.turns import Message, ToolCall, Turn
from agents_ledger.render import summaries

TITLE_MAX = 90
TEXT_MAX = 4000  # characters of one result, unless `full`
_HEADINGS_MAX = 6
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"(`+)(?:.*?[^`])\1(?!`)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])(?!https?://[^\s<>]+>)")
_HEADING = re.compile(r"^( {0,3})(#{1,6})(?=\s|$)")
_UNDERLINE = re.compile(r"^ {0,3}(?:=+|-+)\s*$")
_SCRIPT = re.compile(r"\]\(\s*<?\s*(?:javascript|vbscript|data):", re.IGNORECASE)


def as_markdown(exported: ExportedThread, *, full: bool = False) -> Iterator[str]:
    yield from _conversation(exported, 1, full=full)
    counts = review(exported.masked)
    if counts:
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        yield f"\n---\n\nMasked in this copy: {kinds}.\n"


def _conversation(exported: ExportedThread, level: int, *, full: bool) -> Iterator[str]:
    thread, session = exported.thread, exported.session
    facts = [
        f"session {code(session.label)}" if session else "",
        f"from {line(session.origin)}" if session and session.origin != NATIVE else "",
        humanize.count(thread.depth, "turn"),
        f"{humanize.tokens(thread.total_tokens)} tokens",
        line(thread.model or ""),
    ]
    yield f"{_heading(level)} {line(exported.title)}\n\n"
    yield " · ".join(fact for fact in facts if fact) + "\n"
    if session and session.note:
        yield f"\n{quote(session.note)}\n"
    if exported.first_depth > 1:
        yield f"\nThe {humanize.count(exported.first_depth - 1, 'turn')} above are not included.\n"
    for turn in exported.turns():
        yield from _turn(exported, turn, level + 1, full=full)


def _turn(exported: ExportedThread, turn: Turn, level: int, *, full: bool) -> Iterator[str]:
    prompt = next((m.content for m in turn.messages if m.content and m.role != "system"), "")
    title = "Compaction" if turn.compaction else prompt or "no message"
    yield f"\n{_heading(level)} {turn.depth}. {line(title, TITLE_MAX)}\n\n"
    yield " · ".join(_facts(turn)) + "\n"
    for other in exported.siblings(turn):
        verb = "Forked" if other.turn.status == "completed" else other.turn.status.capitalize()
        yield f"\n{verb} here: {code(other.short_id)} {line(other.text or '', TITLE_MAX)}\n"
    if turn.compaction is not None:
        yield f"\n{line(summaries.compacted(turn))}\n\n{prose(turn.compaction.summary)}\n"
    for step in turn.steps:
        if isinstance(step, Message):
            yield from _message(step, full=full)
            continue
        yield from _call(step, full=full)
        subagent = exported.subagent(step)
        if subagent is not None:
            yield "\n"
            yield from _conversation(subagent, level + 1, full=full)
    if turn.error is not None:
        yield f"\n**failed**\n\n{fenced(turn.error)}\n"


def _facts(turn: Turn) -> list[str]:
    took = ""
    if turn.completed_at is not None and turn.completed_at > turn.started_at:
        took = f" in {humanize.duration(turn.completed_at - turn.started_at)}"
    spent = f"{humanize.tokens(turn.total_tokens)} tokens" if turn.total_tokens is not None else ""
    facts = [code(turn.id), f"{turn.status}{took}", line(turn.model or ""), spent]
    return [fact for fact in (*facts, humanize.moment(turn.started_at)) if fact]


def _message(message: Message, *, full: bool) -> Iterator[str]:
    if message.thinking:
        yield f"\n**thinking**\n\n{quote(message.thinking)}\n"
    if message.content:
        source = "" if message.source in (None, "human") else f" ({message.source})"
        is_spoken = message.role == "assistant" or (message.role == "user" and not source)
        text = message.content if is_spoken else _cut(message.content, full=full)
        yield f"\n**{message.role}**{source}\n\n"
        yield (prose(text) if message.role == "assistant" else quote(text)) + "\n"
    for file in message.files:
        yield f"\n{file.kind} {code(file.file_path)}\n"


def _call(call: ToolCall, *, full: bool) -> Iterator[str]:
    argument = line(summaries.argument(call.params_json), TITLE_MAX)
    outcome = line(summaries.outcome(call, most=TITLE_MAX), TITLE_MAX)
    yield f"\n**{line(call.tool_name)}** {argument} → {outcome}\n"
    yield f"\n{_parameters(call.params_json, full=full)}\n"
    result = "\n".join(summaries.texts_of(decoded(call.result_json)))
    for text in (result or summaries.pretty(call.result_json or ""), call.error):
        if text:
            yield f"\n{fenced(_cut(text, full=full))}\n"
    if call.spawned_session_label:
        yield f"\nspawned {code(call.spawned_session_label)}\n"


def _parameters(params_json: str, *, full: bool) -> str:
    """The parameters of a call: an edit as a diff, a command as a command."""
    params = decoded(params_json)
    if isinstance(params, dict):
        changes = "\n".join(difference(old, new) for old, new in edits_of(params))
        if changes:
            return fenced(_cut(changes, full=full), "diff")
        command = summaries.command_of(params)
        if command is not None:
            return fenced(_cut(command, full=full), "sh")
    return fenced(_cut(summaries.pretty(params_json), full=full), "json")


def _cut(text: str, *, full: bool) -> str:
    if full or len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}\n… {len(text) - TEXT_MAX:,} more characters"


# -- text -------------------------------------------------------------------------------------


def _heading(level: int) -> str:
    return "#" * min(level, _HEADINGS_MAX)


def line(text: str, most: int = 400) -> str:
    """Text on one line with every Markdown character escaped."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", summaries.fit_line(text, most))


def code(text: str) -> str:
    text = visible(one_line(text))
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def fenced(text: str, language: str = "") -> str:
    """A code block with a fence that the text cannot close."""
    text = visible_lines(text).rstrip("\n")
    # Longer than any run of backticks in the text.
    ticks = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def quote(text: str) -> str:
    return "\n".join(f"> {row}".rstrip() for row in prose(text).split("\n"))


def prose(text: str) -> str:
    """Markdown without HTML and images, with every code block closed."""
    rows: list[str] = []
    open_fence = ""
    for row in visible_lines(text).rstrip("\n").split("\n"):
        fence = _FENCE.match(row)
        if open_fence:
            rows.append(row)
            closes = fence and fence[1][0] == open_fence[0] and len(fence[1]) >= len(open_fence)
            if closes and not row.strip().strip(open_fence[0]):
                open_fence = ""
        elif fence:
            open_fence = fence[1]
            rows.append(row)
        else:
            rows.append(_sanitized(row))
    return "\n".join([*rows, open_fence] if open_fence else rows)


def _sanitized(text: str) -> str:
    """A line outside of code blocks. Headings and rules are escaped: the document has its own."""
    text = _HEADING.sub(r"\1\\\2", text)
    if _UNDERLINE.match(text):
        text = "\\" + text.lstrip()
    spans, at = [], 0
    for span in _CODE_SPAN.finditer(text):
        spans += [_escaped(text[at : span.start()]), span[0]]
        at = span.end()
    return "".join([*spans, _escaped(text[at:])])


def _escaped(text: str) -> str:
    text = _SCRIPT.sub("](unsafe:", text)
    return _TAG.sub(r"\\<", text).replace("![", "\\![")
