"""The turns of an HTML export: each a card with its steps, and the threads of subagents inside."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from agents_ledger.exporters.exported_thread import ExportedThread
from agents_ledger.model.text import humanize
from agents_ledger.model.text.humanize import count
from agents_ledger.model.text.sanitize import visible_lines
from agents_ledger.model.turns import Message, ToolCall, Turn
from agents_ledger.render import bodies, conversation
from agents_ledger.render.elements import element, lines
from agents_ledger.render.summaries import compacted, fit_line
from agents_ledger.render.turn_status import turn_status

LABEL_MAX = 240  # characters
# Files that an agent read or wrote are shown with its calls.
PROMPT_FILES = ("attached", "referenced")

_MARKS = {"compaction": "▬", "failed": "✕", "turn": "●"}
_SIBLINGS = {"completed": "◆ Forked", "failed": "✕ Failed"}


def label(text: str | None) -> str:
    return fit_line(text, LABEL_MAX)


def card(turn: Turn, thread: ExportedThread, most: int) -> Markup:
    """A turn of a thread; at most `most` characters of each text."""
    kind = "compaction" if turn.compaction else "failed" if turn.status == "failed" else "turn"
    anchor = f"t-{turn.id}"
    number = element(
        "a",
        f"{_MARKS[kind]} {turn.depth}",
        class_="number",
        href=f"#{anchor}",
        aria_label=f"Turn {turn.depth}",
    )
    return element(
        "article",
        element("header", lines((number, *_facts(turn)))),
        "\n",
        lines(_content(turn, thread, most)),
        class_=f"card {kind}",
        id=anchor,
    )


def _facts(turn: Turn) -> Iterator[Markup]:
    yield element("span", humanize.moment(turn.started_at), title=turn.id)
    if turn.status != "completed":
        status = turn_status(turn)
        yield element("b", status, class_="failed" if status == "failed" else "unfinished")
    if turn.completed_at and turn.completed_at > turn.started_at:
        yield element("span", humanize.duration(turn.completed_at - turn.started_at))
    if turn.model:
        yield element("span", label(turn.model))
    if turn.total_tokens:
        yield element("span", f"{humanize.tokens(turn.total_tokens)} tokens")
    if turn.tool_calls:
        yield element("span", count(len(turn.tool_calls), "tool call"))


def _content(turn: Turn, thread: ExportedThread, most: int) -> Iterator[Markup]:
    for sibling in thread.siblings(turn):
        what = _SIBLINGS.get(sibling.turn.status, "◌ Started")
        short_id = element("code", sibling.short_id)
        yield element("p", f"{what} here: ", short_id, f" {label(sibling.text)}", class_="fork")
    if turn.compaction:
        yield element("p", label(compacted(turn)), class_="seam")
        yield element("div", bodies.markdown(turn.compaction.summary), class_="prose")
    for step in turn.steps:
        if isinstance(step, Message):
            yield from _message(step, most)
        else:
            yield from _call(step, thread, most)
    if turn.error:
        yield _error(turn.error)


def _error(text: str) -> Markup:
    return element("pre", visible_lines(text), class_="text bad")


def _message(message: Message, most: int) -> Iterator[Markup]:
    if message.thinking:
        yield conversation.thinking(message.thinking)
    if message.content:
        yield conversation.message(message, len(message.content))
    kinds = [file for file in message.files if file.kind in PROMPT_FILES]
    files = message.files if message.role == "user" else kinds
    if files:
        names = []
        for file in files:
            line = "" if file.line_start is None else f":{file.line_start}"
            path = element("code", f"{label(file.file_path)}{line}")
            names.append(element("span", f"{file.kind} ", path))
        yield element("p", lines(names), class_="files")
    for block in message.codeblocks:
        name = element("span", label(block.file_path or block.language), class_="arg")
        summary = element("summary", element("span", "Code", class_="tool"), " ", name)
        body = element("div", bodies.code(block.content[:most]), class_="body")
        yield element("details", summary, body, class_="call")


def _call(call: ToolCall, thread: ExportedThread, most: int) -> Iterator[Markup]:
    body = element(
        "div",
        bodies.parameters(call.params_json, most),
        _error(call.error) if call.error else None,
        bodies.result(call.result_json, most=most),
        class_="body",
    )
    summary = conversation.call_summary(call)
    yield element("details", summary, body, class_=f"call {call.status}")
    if call.spawned_session_label is None:
        return
    subagent = thread.subagent(call)
    if subagent is None:
        name = element("code", label(call.spawned_session_label))
        yield element("p", "Subagent ", name, class_="muted")
        return
    cards = lines(card(turn, subagent, most) for turn in subagent.turns())
    yield element("details", _subagent_summary(subagent), cards, class_="subagent")


def _subagent_summary(subagent: ExportedThread) -> Markup:
    facts = [
        count(subagent.thread.depth, "turn"),
        f"{humanize.tokens(subagent.thread.total_tokens)} tokens",
    ]
    if subagent.session and subagent.session.task_status:
        facts.append(subagent.session.task_status)
    about = element("span", " · ".join(facts), class_="muted")
    return element("summary", element("b", "Subagent"), f" {label(subagent.title)} ", about)
