"""What a model is offered beside the abilities: a few tools whose answers are small, and cite.

Each is an ability, so that it is checked and called as all are. Texts are cut unless more is asked
for; what continues says how to go on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from agents_ledger.bus.ability import Ability
from agents_ledger.bus.inputs import Count, Input, Limit, Name, Target, Time
from agents_ledger.ledger.context.contexts import Context
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.context import ProviderFormat
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import Action, Order
from agents_ledger.model.reports.usage import UsageBy
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, Turn

MODULE = "tool"
Chars = Annotated[int, Meta(ge=20, le=1_000_000, description="Characters of a text at most.")]
Some = Annotated[int, Meta(ge=1, le=200, description="So many at most.")]
Steps = Annotated[
    int, Meta(ge=1, le=10_000, description="Messages, and tool calls, of a turn at most.")
]
PROTECTED = (3, 1, 0)  # last turns of a context that are not cut, as long as the rest fits


def cut(text: str | None, most: int) -> str | None:
    """A text, shortened if it is longer than that, and saying so."""
    if text is None or len(text) <= most:
        return text
    return f"{text[:most]}… [{len(text) - most} characters more]"


class Search(Input):
    """What to look for."""

    text: Annotated[
        str, Meta(min_length=1, max_length=2000, description='Words, "phrases", operators.')
    ]
    order: Order = "newest"
    limit: Some = 10
    after: Annotated[str | None, Meta(description="The `next` of an earlier answer.")] = None
    max_chars: Chars = 300


class FilesOf(Input):
    """A file, by its path or the end of it."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    action: Action | None = None
    limit: Some = 20
    after: Annotated[str | None, Meta(description="The `next` of an earlier answer.")] = None


class Show(Input):
    """A turn, or a session, and how many turns up to it."""

    target: Target
    last: Some = 3
    to_depth: Annotated[Count | None, Meta(description="The `next` of an earlier answer.")] = None
    max_chars: Chars = 400
    max_steps: Steps = 6


class TreeOf(Input):
    """A turn or session, whose tree is drawn."""

    target: Target
    limit: Some = 40


class ContextOf(Input):
    """A turn or session, and how many tokens there is room for."""

    target: Target
    budget: Annotated[Count, Meta(description="So many tokens at most.")] = 8000
    form: ProviderFormat = "anthropic"


class Fork(Input):
    """A turn to go on from."""

    target: Target
    label: Name | None = None
    before: Annotated[bool, Meta(description="At the turn's parent, to ask differently.")] = False


class SessionsOf(Input):
    """How many sessions."""

    limit: Some = 20
    after: Annotated[str | None, Meta(description="The `next` of an earlier answer.")] = None


class UsageOf(Input):
    """How it is added up."""

    by: UsageBy = "day"
    since: Time | None = None
    limit: Limit = 20


class Audit(Input):
    """How many findings."""

    limit: Some = 50


class Answer(Struct):
    """An answer, and how to ask for what follows it."""

    data: Any
    next: str | int | None = None


def _message(message: Message, most: int) -> dict[str, Any]:
    said = {"role": message.role, "text": cut(message.content, most)}
    return said | ({"thinking": cut(message.thinking, most)} if message.thinking else {})


def turn_lines(turn: Turn, most: int, steps: int) -> dict[str, Any]:
    """A turn in short: who said what, and which tools were called. Of many messages the first and
    the last ones, of many calls the last ones."""
    messages = [_message(message, most) for message in turn.messages]
    left_out = max(len(messages) - steps, 0)
    if left_out:
        messages[1 : 1 + left_out] = []
    calls = [
        {
            "tool": call.tool_name,
            "status": call.status,
            "params": cut(call.params_json, most),
            "result": cut(call.error or call.result_json, most),
        }
        for call in turn.tool_calls[-steps:]
    ]
    more = {
        "messages_left_out": left_out,
        "tool_calls_left_out": len(turn.tool_calls) - len(calls),
    }
    return {
        "turn_id": turn.id,
        "depth": turn.depth,
        "status": turn.status,
        "started_at": turn.started_at,
        "model": turn.model,
        "messages": messages,
        "tool_calls": calls,
        **{name: number for name, number in more.items() if number},
    }


def session_line(session: Session) -> dict[str, Any]:
    """A session in short."""
    return {
        "label": session.label,
        "title": session.title,
        "head_turn_id": session.thread_id,
        "updated_at": session.updated_at,
        "origin": session.origin,
    }


def _search(ledger: Ledger, asked: Search) -> Answer:
    found = ledger.search(asked.text, limit=asked.limit, order=asked.order, after=asked.after)
    hits = [
        {
            "turn_id": hit.turn_id,
            "session": hit.session_label,
            "title": hit.session_title,
            "started_at": hit.started_at,
            "query": cut(hit.query, asked.max_chars),
            "found": [
                {
                    "in": snippet.tool_name or snippet.part,
                    "text": cut(snippet.text, asked.max_chars),
                }
                for snippet in hit.snippets
            ],
        }
        for hit in found.hits
    ]
    return Answer({"matched": found.matched, "hits": hits}, found.next)


def _files(ledger: Ledger, asked: FilesOf) -> Answer:
    found = ledger.files(asked.path, action=asked.action, limit=asked.limit, after=asked.after)
    return Answer([to_builtins(touch) for touch in found.touches], found.next)


def _show(ledger: Ledger, asked: Show) -> Answer:
    whole = ledger.thread(asked.target, last=0)
    if whole.turn_id is None:
        return Answer([])
    end = whole.depth if asked.to_depth is None else min(asked.to_depth, whole.depth)
    first = max(1, end - asked.last + 1)
    part = ledger.thread(whole.turn_id, from_depth=first, to_depth=end)
    return Answer(
        [turn_lines(turn, asked.max_chars, asked.max_steps) for turn in part.turns],
        first - 1 if first > 1 else None,
    )


def _tree(ledger: Ledger, asked: TreeOf) -> Answer:
    found = ledger.thread(asked.target, last=0)
    if found.turn_id is None:
        return Answer([])
    root = ledger.ancestor_at(found.turn_id, 1) or found.turn_id
    tree = ledger.tree(root, limit=asked.limit)
    nodes = [
        {
            "turn_id": node.headline.turn.id,
            "below": node.above_id,
            "turns_between": node.folded,
            "text": cut(node.headline.text, 120),
            "sessions": [session.label for session in node.heads],
        }
        for node in tree.nodes
    ]
    return Answer({"turn_count": tree.turn_count, "left_out": tree.left_out, "nodes": nodes})


def _context(ledger: Ledger, asked: ContextOf) -> Answer:
    found = _fitting(ledger, asked)
    return Answer(
        {
            "turn_id": found.turn_id,
            "total_tokens": found.total_tokens,
            "turns_left_out": found.turns_left_out,
            **found.rendered(asked.form),
        }
    )


def _fitting(ledger: Ledger, asked: ContextOf) -> Context:
    for last in PROTECTED[:-1]:
        with suppress(Refused):
            return ledger.context(asked.target, budget=asked.budget, last=last)
    return ledger.context(asked.target, budget=asked.budget, last=PROTECTED[-1])


def _fork(ledger: Ledger, asked: Fork) -> Answer:
    return Answer(session_line(ledger.fork(asked.target, label=asked.label, before=asked.before)))


def _sessions(ledger: Ledger, asked: SessionsOf) -> Answer:
    after = None if asked.after is None else ledger.session(asked.after, exact=True)
    found = ledger.sessions(limit=asked.limit, after=after)
    more = found[-1].label if len(found) == asked.limit else None
    return Answer([session_line(session) for session in found], more)


def _usage(ledger: Ledger, asked: UsageOf) -> Answer:
    report = ledger.usage(asked.by, since=asked.since, limit=asked.limit)
    return Answer(to_builtins(report))


def _audit(ledger: Ledger, asked: Audit) -> Answer:
    findings = ledger.audit()
    shown = [to_builtins(finding) for finding in findings[: asked.limit]]
    return Answer({"sound": not findings, "count": len(findings), "findings": shown})


TOOLS = (
    Ability(
        id="tool:search",
        description="Find what was said or done in past conversations; each hit names its turn.",
        input=Search,
        output=Answer,
        function=_search,
    ),
    Ability(
        id="tool:files",
        description="Which turns read or wrote a file.",
        input=FilesOf,
        output=Answer,
        function=_files,
    ),
    Ability(
        id="tool:sessions",
        description="List conversations of this person's agents, latest first.",
        input=SessionsOf,
        output=Answer,
        function=_sessions,
    ),
    Ability(
        id="tool:show",
        description="Read the last turns of a session, or a turn: messages and tool calls.",
        input=Show,
        output=Answer,
        function=_show,
    ),
    Ability(
        id="tool:tree",
        description="The tree of turns that a session or turn belongs to: forks and heads.",
        input=TreeOf,
        output=Answer,
        function=_tree,
    ),
    Ability(
        id="tool:context",
        description="A conversation as a model would be shown it, within a budget of tokens.",
        input=ContextOf,
        output=Answer,
        function=_context,
    ),
    Ability(
        id="tool:fork",
        description="Make a new session at a turn; nothing is copied or changed.",
        input=Fork,
        output=Answer,
        function=_fork,
        writes=True,
    ),
    Ability(
        id="tool:usage",
        description="Turns, tokens and costs by day, week, month, model, project or session.",
        input=UsageOf,
        output=Answer,
        function=_usage,
    ),
    Ability(
        id="tool:audit",
        description="Check every rule of the ledger.",
        input=Audit,
        output=Answer,
        function=_audit,
    ),
)
