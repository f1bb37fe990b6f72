"""MCP tools with short answers that name every turn by its id.

Each tool is an ability, so it is checked and called like one. Long texts are truncated; `next`
of an answer is the cursor of the next page. A target is what the command line accepts too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from agents_ledger.bus.ability import Ability, Count, Input, Limit, Name, Next, Target, Time
from agents_ledger.ledger.context.contexts import Context
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.context.items import ProviderFormat
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import Action, Found, Order
from agents_ledger.model.reports.usage import UsageBy
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, Turn

MODULE = "tool"
Chars = Annotated[
    int, Meta(ge=20, le=1_000_000, description="Maximum number of characters of a text.")
]
Results = Annotated[int, Meta(ge=1, le=200, description="Maximum number of results.")]
Few = Annotated[int, Meta(ge=1, le=50, description="Maximum number of results.")]
Budget = Annotated[int, Meta(ge=100, le=100_000)]
Steps = Annotated[
    int,
    Meta(ge=1, le=10_000, description="Maximum number of messages, and of tool calls, of a turn."),
]
# Numbers of final turns that are not shortened, tried in order until the context fits.
PROTECTED = (3, 1, 0)


def truncated(text: str | None, chars: int) -> str | None:
    """The first characters of a text, with a note of how many follow."""
    if text is None or len(text) <= chars:
        return text
    return f"{text[:chars]}… [{len(text) - chars} characters more]"


class SearchArguments(Input):
    text: Annotated[
        str, Meta(min_length=1, max_length=2000, description='Words, "phrases" and filters.')
    ]
    order: Order = "relevance"
    limit: Results = 10
    after: Next = None
    max_chars: Chars = 300


class RecallArguments(Input):
    question: Annotated[
        str, Meta(min_length=1, max_length=2000, description="A question, or words and filters.")
    ]
    budget: Annotated[Budget, Meta(description="Maximum number of tokens.")] = 2000
    after: Next = None


class FixArguments(Input):
    error: Annotated[
        str, Meta(min_length=1, max_length=100_000, description="The text of the error.")
    ]
    limit: Few = 3
    after: Next = None


class HowArguments(Input):
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1000,
            description="A tool, or the first words of a command: `git rebase`.",
        ),
    ]
    limit: Few = 5
    after: Next = None


class FilesArguments(Input):
    path: Annotated[
        str, Meta(min_length=1, max_length=4096, description="A path, or the end of one.")
    ]
    action: Action | None = None
    limit: Results = 20
    after: Next = None


class ShowArguments(Input):
    target: Target
    last: Results = 3
    to_depth: Annotated[Count | None, Meta(description="The `next` of the previous page.")] = None
    max_chars: Chars = 400
    max_steps: Steps = 6


class TreeArguments(Input):
    target: Target
    limit: Results = 40


class ContextArguments(Input):
    target: Target
    budget: Annotated[Count, Meta(description="Maximum number of tokens.")] = 8000
    form: ProviderFormat = "anthropic"


class ForkArguments(Input):
    target: Target
    label: Name | None = None
    before: Annotated[bool, Meta(description="Fork at the parent of the turn.")] = False


class SessionsArguments(Input):
    limit: Results = 20
    after: Next = None


class UsageArguments(Input):
    by: UsageBy = "day"
    since: Time | None = None
    limit: Limit = 20


class ToolAnswer(Struct):
    data: Any
    next: str | int | None = None


def _message(message: Message, chars: int) -> dict[str, Any]:
    fields = {"role": message.role, "text": truncated(message.content, chars)}
    if message.thinking:
        fields["thinking"] = truncated(message.thinking, chars)
    return fields


def turn_summary(turn: Turn, chars: int, steps: int) -> dict[str, Any]:
    """A turn with truncated texts: the first and the last messages, and the last tool calls."""
    messages = [_message(message, chars) for message in turn.messages]
    left_out = max(len(messages) - steps, 0)
    if left_out:
        messages[1 : 1 + left_out] = []
    calls = [
        {
            "tool": call.tool_name,
            "status": call.status,
            "params": truncated(call.params_json, chars),
            "result": truncated(call.error or call.result_json, chars),
        }
        for call in turn.tool_calls[-steps:]
    ]
    omitted = {
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
        **{name: number for name, number in omitted.items() if number},
    }


def session_summary(session: Session) -> dict[str, Any]:
    return {
        "label": session.label,
        "title": session.title,
        "head_turn_id": session.thread_id,
        "updated_at": session.updated_at,
        "origin": session.origin,
    }


def search_results(ledger: Ledger, args: SearchArguments) -> Found:
    return ledger.search(args.text, limit=args.limit, order=args.order, after=args.after)


def _search(ledger: Ledger, args: SearchArguments) -> ToolAnswer:
    results = search_results(ledger, args)
    hits = [
        {
            "turn_id": hit.turn_id,
            "session": hit.session_label,
            "title": hit.session_title,
            "started_at": hit.started_at,
            "query": truncated(hit.query, args.max_chars),
            "found": [
                {
                    "in": snippet.tool_name or snippet.part,
                    "text": truncated(snippet.text, args.max_chars),
                }
                for snippet in hit.snippets
            ],
        }
        for hit in results.hits
    ]
    return ToolAnswer({"matched": results.matched, "hits": hits}, results.next)


def _recall(ledger: Ledger, args: RecallArguments) -> ToolAnswer:
    recalled = ledger.recall(args.question, budget=args.budget, after=args.after)
    return ToolAnswer(to_builtins(recalled.passages), recalled.next)


def _fix(ledger: Ledger, args: FixArguments) -> ToolAnswer:
    fixes = ledger.fix(args.error, limit=args.limit, after=args.after)
    return ToolAnswer(to_builtins(fixes.fixes), fixes.next)


def _how(ledger: Ledger, args: HowArguments) -> ToolAnswer:
    examples = ledger.how(args.name, limit=args.limit, after=args.after)
    return ToolAnswer(to_builtins(examples.examples), examples.next)


def _files(ledger: Ledger, args: FilesArguments) -> ToolAnswer:
    results = ledger.files(args.path, action=args.action, limit=args.limit, after=args.after)
    return ToolAnswer(to_builtins(results.touches), results.next)


def shown(ledger: Ledger, typed: str) -> str:
    """The target that somebody typed, unless it is marked as deleted."""
    target = ledger.lookup(typed)
    ledger.check_shown(target)
    return target


def _show(ledger: Ledger, args: ShowArguments) -> ToolAnswer:
    thread = ledger.thread(shown(ledger, args.target), last=0)
    if thread.turn_id is None:
        return ToolAnswer([])
    end = thread.depth if args.to_depth is None else min(args.to_depth, thread.depth)
    first = max(1, end - args.last + 1)
    turns = ledger.thread(thread.turn_id, from_depth=first, to_depth=end).turns
    return ToolAnswer(
        [turn_summary(turn, args.max_chars, args.max_steps) for turn in turns],
        first - 1 if first > 1 else None,
    )


def _tree(ledger: Ledger, args: TreeArguments) -> ToolAnswer:
    thread = ledger.thread(shown(ledger, args.target), last=0)
    if thread.turn_id is None:
        return ToolAnswer([])
    root = ledger.ancestor_at(thread.turn_id, 1) or thread.turn_id
    tree = ledger.tree(root, limit=args.limit)
    nodes = [
        {
            "turn_id": node.headline.turn.id,
            "below": node.above_id,
            "turns_between": node.folded,
            "text": truncated(node.headline.text, 120),
            "sessions": [session.label for session in node.heads],
        }
        for node in tree.nodes
    ]
    return ToolAnswer({"turn_count": tree.turn_count, "left_out": tree.left_out, "nodes": nodes})


def _context(ledger: Ledger, args: ContextArguments) -> ToolAnswer:
    context = _fitting_context(ledger, args)
    return ToolAnswer(
        {
            "turn_id": context.turn_id,
            "total_tokens": context.total_tokens,
            "turns_left_out": context.turns_left_out,
            **context.rendered(args.form),
        }
    )


def _fitting_context(ledger: Ledger, args: ContextArguments) -> Context:
    target = shown(ledger, args.target)
    for last in PROTECTED[:-1]:
        with suppress(Refused):
            return ledger.context(target, budget=args.budget, last=last)
    return ledger.context(target, budget=args.budget, last=PROTECTED[-1])


def _fork(ledger: Ledger, args: ForkArguments) -> ToolAnswer:
    target = shown(ledger, args.target)
    return ToolAnswer(session_summary(ledger.fork(target, label=args.label, before=args.before)))


def _sessions(ledger: Ledger, args: SessionsArguments) -> ToolAnswer:
    after = None if args.after is None else ledger.session(args.after, exact=True)
    sessions = ledger.sessions(limit=args.limit, after=after)
    cursor = sessions[-1].label if len(sessions) == args.limit else None
    return ToolAnswer([session_summary(session) for session in sessions], cursor)


def _usage(ledger: Ledger, args: UsageArguments) -> ToolAnswer:
    report = ledger.usage(args.by, since=args.since, limit=args.limit)
    return ToolAnswer(to_builtins(report))


TOOLS = (
    Ability(
        id="tool:recall",
        description="Answer a question about past work: the best passages of past conversations,"
        " with context, within a token budget.",
        input=RecallArguments,
        output=ToolAnswer,
        function=_recall,
    ),
    Ability(
        id="tool:fix",
        description="Find what ended an error like this one before: the failed call, the calls"
        " between, and the call that succeeded.",
        input=FixArguments,
        output=ToolAnswer,
        function=_fix,
    ),
    Ability(
        id="tool:how",
        description="Show how a tool or a command was used here with success.",
        input=HowArguments,
        output=ToolAnswer,
        function=_how,
    ),
    Ability(
        id="tool:search",
        description="List the turns that match words and filters, page by page.",
        input=SearchArguments,
        output=ToolAnswer,
        function=_search,
    ),
    Ability(
        id="tool:files",
        description="List the turns that read or wrote a file.",
        input=FilesArguments,
        output=ToolAnswer,
        function=_files,
    ),
    Ability(
        id="tool:sessions",
        description="List the conversations of this person's agents, most recent first.",
        input=SessionsArguments,
        output=ToolAnswer,
        function=_sessions,
    ),
    Ability(
        id="tool:show",
        description="Read the last turns of a session, or a turn: messages and tool calls.",
        input=ShowArguments,
        output=ToolAnswer,
        function=_show,
    ),
    Ability(
        id="tool:tree",
        description="Get the tree of turns that contains a session or turn: forks and heads.",
        input=TreeArguments,
        output=ToolAnswer,
        function=_tree,
    ),
    Ability(
        id="tool:context",
        description="Get a conversation as the context of a model, within a token budget.",
        input=ContextArguments,
        output=ToolAnswer,
        function=_context,
    ),
    Ability(
        id="tool:fork",
        description="Create a session at a turn. No turn is copied or changed.",
        input=ForkArguments,
        output=ToolAnswer,
        function=_fork,
        writes=True,
    ),
    Ability(
        id="tool:usage",
        description="Report turns, tokens and costs by period, model, project or session.",
        input=UsageArguments,
        output=ToolAnswer,
        function=_usage,
    ),
)
