"""Abilities that look over the ledger: search, routes, contexts, branches, what was used."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from agents_ledger.bus.ability import Ability
from agents_ledger.bus.inputs import Count, Input, Limit, Target, Time
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.context import ProviderFormat
from agents_ledger.model.reports.comparison import Comparison
from agents_ledger.model.reports.routing import Route
from agents_ledger.model.reports.search import Action, Found, Order, Touched
from agents_ledger.model.reports.usage import ToolUsage, UsageBy, UsageReport


class Search(Input):
    """What to look for, and which page of it."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2000,
            description="Words and operators: docs/reference/search.md.",
        ),
    ]
    order: Order = "newest"
    limit: Limit = 20
    after: Annotated[str | None, Meta(description="The `next` of an earlier answer.")] = None


class FilesOf(Input):
    """A file, by its path or the end of it."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    action: Action | None = None
    limit: Limit = 50
    after: Annotated[str | None, Meta(description="The `next` of an earlier answer.")] = None


class RouteOf(Input):
    """Where something shall go."""

    target: Annotated[
        Annotated[str, Meta(min_length=1, max_length=2000)] | None,
        Meta(description="A session, a turn, a key, `persona:ID` or `smart:TEXT`."),
    ] = None
    persona_id: Annotated[str, Meta(min_length=1, max_length=512)] = "main"


class ContextOf(Input):
    """A turn, and how much of what came before it."""

    target: Target
    query: Annotated[str | None, Meta(description="What is to be asked next.")] = None
    budget: Annotated[Count | None, Meta(description="So many tokens at most.")] = None
    last: Annotated[Count, Meta(description="So many turns are never cut.")] = 3
    before: Annotated[bool, Meta(description="As the turn itself was asked.")] = False
    form: Annotated[ProviderFormat, Meta(description="Whose messages.")] = "anthropic"


class Compare(Input):
    """Two turns or sessions."""

    a: Target
    b: Target
    limit: Limit = 50


class UsageOf(Input):
    """Which turns count, and how they are added up."""

    by: UsageBy = "day"
    since: Time | None = None
    until: Time | None = None
    project: str | None = None
    model: str | None = None
    limit: Limit = 100


class ToolsOf(Input):
    """Which calls count."""

    since: Time | None = None
    until: Time | None = None
    limit: Limit = 100


class Shown(Struct):
    """What a model is shown, in a provider's form, and what it costs."""

    context: dict[str, Any]
    turn_id: str | None
    total_tokens: int
    turns_left_out: int


class Routed(Struct):
    """The turn a target leads to."""

    route: Route


class Compared(Struct):
    """Two branches side by side."""

    comparison: Comparison


class Used(Struct):
    """What was used."""

    usage: UsageReport


class Tools(Struct):
    """Tools, most used first."""

    tools: tuple[ToolUsage, ...]


def _search(ledger: Ledger, asked: Search) -> Found:
    return ledger.search(asked.text, limit=asked.limit, order=asked.order, after=asked.after)


def _files(ledger: Ledger, asked: FilesOf) -> Touched:
    return ledger.files(asked.path, action=asked.action, limit=asked.limit, after=asked.after)


def _route(ledger: Ledger, asked: RouteOf) -> Routed:
    return Routed(ledger.route(asked.target, persona_id=asked.persona_id))


def _context(ledger: Ledger, asked: ContextOf) -> Shown:
    found = ledger.context(
        asked.target, asked.query, asked.budget, last=asked.last, before=asked.before
    )
    return Shown(
        found.rendered(asked.form), found.turn_id, found.total_tokens, found.turns_left_out
    )


def _compare(ledger: Ledger, asked: Compare) -> Compared:
    return Compared(ledger.compare(asked.a, asked.b, limit=asked.limit))


def _usage(ledger: Ledger, asked: UsageOf) -> Used:
    return Used(
        ledger.usage(
            asked.by,
            since=asked.since,
            until=asked.until,
            project=asked.project,
            model=asked.model,
            limit=asked.limit,
        )
    )


def _tools(ledger: Ledger, asked: ToolsOf) -> Tools:
    return Tools(ledger.tools(since=asked.since, until=asked.until, limit=asked.limit))


ABILITIES = (
    Ability(
        id="ldg:turn:search",
        description="Find turns by what they say or do.",
        input=Search,
        output=Found,
        function=_search,
    ),
    Ability(
        id="ldg:file:list",
        description="The turns that read or wrote a file, newest first.",
        input=FilesOf,
        output=Touched,
        function=_files,
    ),
    Ability(
        id="ldg:session:route",
        description="The turn a target leads to, or turns whose context fits a text.",
        input=RouteOf,
        output=Routed,
        function=_route,
    ),
    Ability(
        id="ldg:context:get",
        description="What a model is shown at a turn, ready to be sent.",
        input=ContextOf,
        output=Shown,
        function=_context,
    ),
    Ability(
        id="ldg:thread:compare",
        description="Where two threads part, and what each did since.",
        input=Compare,
        output=Compared,
        function=_compare,
    ),
    Ability(
        id="ldg:usage:get",
        description="Turns, tokens and costs by day, week, month, model, project or session.",
        input=UsageOf,
        output=Used,
        function=_usage,
    ),
    Ability(
        id="ldg:tool:list",
        description="Uses, failures and durations of every tool, most used first.",
        input=ToolsOf,
        output=Tools,
        function=_tools,
    ),
)
