"""Abilities that read across the ledger: search, routes, contexts, comparisons, usage."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from agents_ledger.bus.ability import Ability, Count, Input, Limit, Next, Target, Time
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.agents.config import Decider, Setting
from agents_ledger.model.agents.permissions import PermissionReview
from agents_ledger.model.context.items import ProviderFormat
from agents_ledger.model.reports.comparison import Comparison
from agents_ledger.model.reports.events import Event
from agents_ledger.model.reports.routing import Route
from agents_ledger.model.reports.search import Action, Found, Order, Touched
from agents_ledger.model.reports.usage import ToolUsage, UsageBy, UsageReport


class SearchInput(Input):
    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2000,
            description="Words and filters, as in docs/reference/search.md.",
        ),
    ]
    order: Order = "relevance"
    limit: Limit = 20
    after: Next = None


class FilesInput(Input):
    path: Annotated[
        str, Meta(min_length=1, max_length=4096, description="A path, or the end of one.")
    ]
    action: Action | None = None
    limit: Limit = 50
    after: Next = None


class RouteInput(Input):
    target: Annotated[
        Annotated[str, Meta(min_length=1, max_length=2000)] | None,
        Meta(description="A session, a turn, a key, `persona:ID` or `smart:TEXT`."),
    ] = None
    persona_id: Annotated[str, Meta(min_length=1, max_length=512)] = "main"


class ContextInput(Input):
    target: Target
    query: Annotated[str | None, Meta(description="A query to add at the end.")] = None
    budget: Annotated[Count | None, Meta(description="Maximum number of tokens.")] = None
    last: Annotated[Count, Meta(description="Number of final turns that are never shortened.")] = 3
    before: Annotated[bool, Meta(description="The context that the turn itself was given.")] = False
    form: Annotated[ProviderFormat, Meta(description="Message format.")] = "anthropic"


class CompareInput(Input):
    a: Target
    b: Target
    limit: Limit = 50


class UsageInput(Input):
    by: UsageBy = "day"
    since: Time | None = None
    until: Time | None = None
    project: str | None = None
    model: str | None = None
    limit: Limit = 100


class ToolsInput(Input):
    since: Time | None = None
    until: Time | None = None
    limit: Limit = 100


class EventsInput(Input):
    target: Target
    last: Annotated[Limit, Meta(description="Number of final turns.")] = 20


class ConfigTarget(Input):
    target: Target


class PermissionsInput(Input):
    persona_id: str | None = None
    since: Time | None = None
    until: Time | None = None


class ContextOutput(Struct):
    context: dict[str, Any]
    turn_id: str | None
    total_tokens: int
    turns_left_out: int


class RouteOutput(Struct):
    route: Route


class CompareOutput(Struct):
    comparison: Comparison


class UsageOutput(Struct):
    usage: UsageReport


class ToolsOutput(Struct):
    tools: tuple[ToolUsage, ...]


class EventsOutput(Struct):
    events: tuple[Event, ...]


class OverriddenSetting(Struct, frozen=True):
    """What would be set if no permission had overridden it."""

    value: Any
    by: Decider
    turn_id: str | None = None


class ConfigSetting(OverriddenSetting, frozen=True):
    """A value of a configuration, the layer that set it, and the turn it is inherited from."""

    instead_of: OverriddenSetting | None = None


class ConfigOutput(Struct):
    config: dict[str, ConfigSetting]


def _search(ledger: Ledger, params: SearchInput) -> Found:
    return ledger.search(params.text, limit=params.limit, order=params.order, after=params.after)


def _files(ledger: Ledger, params: FilesInput) -> Touched:
    return ledger.files(params.path, action=params.action, limit=params.limit, after=params.after)


def _route(ledger: Ledger, params: RouteInput) -> RouteOutput:
    return RouteOutput(ledger.route(params.target, persona_id=params.persona_id))


def _context(ledger: Ledger, params: ContextInput) -> ContextOutput:
    context = ledger.context(
        params.target, params.query, params.budget, last=params.last, before=params.before
    )
    return ContextOutput(
        context.rendered(params.form),
        context.turn_id,
        context.total_tokens,
        context.turns_left_out,
    )


def _compare(ledger: Ledger, params: CompareInput) -> CompareOutput:
    return CompareOutput(ledger.compare(params.a, params.b, limit=params.limit))


def _usage(ledger: Ledger, params: UsageInput) -> UsageOutput:
    return UsageOutput(
        ledger.usage(
            params.by,
            since=params.since,
            until=params.until,
            project=params.project,
            model=params.model,
            limit=params.limit,
        )
    )


def _tools(ledger: Ledger, params: ToolsInput) -> ToolsOutput:
    return ToolsOutput(ledger.tools(since=params.since, until=params.until, limit=params.limit))


def _events(ledger: Ledger, params: EventsInput) -> EventsOutput:
    return EventsOutput(ledger.events(params.target, last=params.last))


def _config(ledger: Ledger, params: ConfigTarget) -> ConfigOutput:
    return ConfigOutput(config_at(ledger, params.target))


def config_at(ledger: Ledger, target: str) -> dict[str, ConfigSetting]:
    """The effective configuration of a turn, as objects with names."""
    config = ledger.effective_config(target)
    return {name: _setting(setting) for name, setting in config.items()}


def _setting(setting: Setting) -> ConfigSetting:
    other = setting.instead_of
    overridden = None if other is None else OverriddenSetting(other.value, other.by, other.turn_id)
    return ConfigSetting(setting.value, setting.by, setting.turn_id, overridden)


def _permissions(ledger: Ledger, params: PermissionsInput) -> PermissionReview:
    return ledger.review_permissions(
        persona_id=params.persona_id, since=params.since, until=params.until
    )


ABILITIES = (
    Ability(
        id="ldg:turn:search",
        description="Search turns by their messages and tool calls.",
        input=SearchInput,
        output=Found,
        function=_search,
    ),
    Ability(
        id="ldg:file:list",
        description="List the turns that read or wrote a file, newest first.",
        input=FilesInput,
        output=Touched,
        function=_files,
    ),
    Ability(
        id="ldg:session:route",
        description="Resolve a target to a turn, or find the turns whose context fits a text.",
        input=RouteInput,
        output=RouteOutput,
        function=_route,
    ),
    Ability(
        id="ldg:context:get",
        description="Get the context of a model at a turn, in a provider's message format.",
        input=ContextInput,
        output=ContextOutput,
        function=_context,
    ),
    Ability(
        id="ldg:event:list",
        description="List the messages of a thread's last turns without tool calls, oldest first.",
        input=EventsInput,
        output=EventsOutput,
        function=_events,
    ),
    Ability(
        id="ldg:config:get",
        description="Get the configuration that a turn ran with, and which layer set each value.",
        input=ConfigTarget,
        output=ConfigOutput,
        function=_config,
    ),
    Ability(
        id="ldg:permission:review",
        description="Report which tools each persona called, and which calls lacked permission.",
        input=PermissionsInput,
        output=PermissionReview,
        function=_permissions,
    ),
    Ability(
        id="ldg:thread:compare",
        description="Compare two threads since their common ancestor.",
        input=CompareInput,
        output=CompareOutput,
        function=_compare,
    ),
    Ability(
        id="ldg:usage:get",
        description="Report turns, tokens and costs by period, model, project or session.",
        input=UsageInput,
        output=UsageOutput,
        function=_usage,
    ),
    Ability(
        id="ldg:tool:list",
        description="Report the calls, failures and durations of every tool, most used first.",
        input=ToolsInput,
        output=ToolsOutput,
        function=_tools,
    ),
)
