"""Abilities about turns: threads, trees, compactions; what is imported; whether all holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple

from agents_ledger.bus.ability import Ability
from agents_ledger.bus.inputs import Count, Input, Limit, Name, Target
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.access import Scope
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.reports.trees import Tree
from agents_ledger.model.sessions import DEFAULT_PERSONA, Finding, Thread
from agents_ledger.model.turns import ToolCall, Turn, Usage, to_json

PIECE = 50  # turns read at once while a thread streams


class OfTarget(Input):
    """A turn, or the head of a session."""

    target: Target


class ThreadPart(Input):
    """A thread, and which of its turns: the last ones, or those between two depths."""

    target: Target
    last: Annotated[Limit | None, Meta(description="So many turns at its end.")] = 20
    from_depth: Count | None = None
    to_depth: Count | None = None


class TreeOf(Input):
    """A turn, and how much of what stands below it."""

    target: Target
    limit: Limit = 200


class Outcome(Input):
    """A finished tool call, with plain values."""

    tool_name: Name
    params: Any = None
    result: Any = None
    error: str | None = None


class Tokens(Input):
    """Tokens of a turn, as far as they are known."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached_input_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_tokens: Count | None = None


class Record(Input):
    """A finished turn."""

    session: Annotated[Name, Meta(description="A label or alias; created if it is new.")]
    query: str
    response: str | None = None
    tool_calls: tuple[Outcome, ...] = ()
    usage: Tokens | None = None
    model: str | None = None
    provider: str | None = None
    error: Annotated[str | None, Meta(description="Why the turn failed.")] = None
    id: Annotated[Name | None, Meta(description="Chosen by you, it makes a retry safe.")] = None
    parent: Annotated[
        str | UnsetType | None, Meta(description="The head you saw: refused if it moved meanwhile.")
    ] = UNSET


class Summary(Input):
    """A compaction: what it summarised and kept."""

    session: Name
    summary: Annotated[str, Meta(min_length=1)]
    summarized_through_turn_id: Name
    first_kept_turn_id: Name | None = None
    model: Name = "none"
    tokens_before: Count | None = None
    tokens_after: Count | None = None


WithoutModel = Literal["sliding_window", "selective"]


class Compact(Input):
    """A session to be compacted: without a model, or with a summary by the engine of the policy."""

    session: Name
    strategy: Literal["summary", "sliding_window", "selective"] = "sliding_window"
    budget: Annotated[Count | None, Meta(description="So many tokens at most.")] = None
    model: Annotated[Name | None, Meta(description="That summarises; else the policy's.")] = None
    instructions: Annotated[
        Annotated[str, Meta(max_length=10_000)] | None,
        Meta(description="What a summary should heed."),
    ] = None
    fallback: Annotated[WithoutModel | None, Meta(description="For when summarising fails.")] = None


class Request(Input):
    """A request of sessions.import, as it is handed over."""

    request: Annotated[dict[str, Any], Meta(description="source, mode, items and the rest.")]


class Nothing(Input):
    """No input."""


class OneTurn(Struct):
    """A turn."""

    turn: Turn


class OneThread(Struct):
    """A thread, with the turns asked for."""

    thread: Thread


class OneTree(Struct):
    """A tree."""

    tree: Tree


class Compactions(Struct):
    """Compactions, latest first."""

    compactions: tuple[Compaction, ...]


class Imported(Struct):
    """What became of a request."""

    response: dict[str, Any]


class Findings(Struct):
    """Every broken rule; none when all hold."""

    findings: tuple[Finding, ...]


class Recovered(Struct):
    """The turns that were failed because their writer died."""

    turn_ids: tuple[str, ...]


def _get(ledger: Ledger, asked: OfTarget) -> OneTurn:
    return OneTurn(ledger.get_turn(asked.target))


def _call(said: Outcome) -> ToolCall:
    params = {} if said.params is None else said.params
    # A text is a value here, not JSON to be taken as it is.
    result = None if said.result is None else to_json([said.result])[1:-1]
    return ToolCall.of(said.tool_name, to_json([params])[1:-1], result, said.error)


def _record(ledger: Ledger, asked: Record) -> OneTurn:
    usage = None if asked.usage is None else Usage(*astuple(asked.usage))
    chosen: dict[str, Any] = {} if asked.id is None else {"id": asked.id}
    if asked.parent is not UNSET:
        chosen["parent"] = asked.parent
    turn = ledger.record(
        asked.session,
        asked.query,
        asked.response,
        steps=[_call(c) for c in asked.tool_calls],
        usage=usage,
        status="completed" if asked.error is None else "failed",
        error=asked.error,
        model=asked.model,
        provider=asked.provider,
        **chosen,
    )
    return OneTurn(turn)


def _thread(ledger: Ledger, asked: ThreadPart) -> OneThread:
    between = asked.from_depth is not None or asked.to_depth is not None
    return OneThread(
        ledger.thread(
            asked.target,
            last=None if between else asked.last,
            from_depth=asked.from_depth or 1,
            to_depth=asked.to_depth,
        )
    )


def _stream(ledger: Ledger, asked: OfTarget) -> Iterator[OneTurn]:
    whole = ledger.thread(asked.target, last=0)
    if whole.turn_id is None:
        return
    for first in range(1, whole.depth + 1, PIECE):
        part = ledger.thread(whole.turn_id, from_depth=first, to_depth=first + PIECE - 1)
        yield from map(OneTurn, part.turns)


def _tree(ledger: Ledger, asked: TreeOf) -> OneTree:
    return OneTree(ledger.tree(asked.target, limit=asked.limit))


def _compactions(ledger: Ledger, asked: OfTarget) -> Compactions:
    return Compactions(ledger.compactions(asked.target))


def _compact(ledger: Ledger, asked: Summary) -> OneTurn:
    said = {name: getattr(asked, name) for name in Summary.__struct_fields__ if name != "session"}
    return OneTurn(ledger.record(asked.session, compaction=Compaction(**said)))


def _compact_now(ledger: Ledger, asked: Compact) -> OneTurn:
    engine, model = None, asked.model
    if asked.strategy == "summary":
        from agents_ledger.broker.engines.chosen import summariser

        engine, model = summariser(ledger.address, model=asked.model)
    turn = ledger.compact(
        asked.session,
        strategy=asked.strategy,
        budget=asked.budget,
        engine=engine,
        model=model,
        instructions=asked.instructions,
        fallback=asked.fallback,
    )
    return OneTurn(turn)


def _compact_scope(_: Ledger, asked: Compact) -> Scope:
    """A summary runs the engine of the policy."""
    return "chat" if asked.strategy == "summary" else "write"


def _import_scope(_: Ledger, asked: Request) -> Scope:
    from agents_ledger.importers.requests import persona_of

    return "import" if persona_of(asked.request) == DEFAULT_PERSONA else "admin"


def _import(ledger: Ledger, asked: Request) -> Imported:
    from agents_ledger.importers.requests import import_request

    return Imported(import_request(ledger, asked.request))


def _audit(ledger: Ledger, _: Nothing) -> Findings:
    return Findings(ledger.audit())


def _recover(ledger: Ledger, _: Nothing) -> Recovered:
    return Recovered(ledger.recover())


ABILITIES = (
    Ability(
        id="ldg:turn:get",
        description="One turn with all it consists of.",
        input=OfTarget,
        output=OneTurn,
        function=_get,
    ),
    Ability(
        id="ldg:turn:record",
        description="Record a finished turn and move its session to it: all of it, or nothing.",
        input=Record,
        output=OneTurn,
        function=_record,
        writes=True,
    ),
    Ability(
        id="ldg:thread:get",
        description="A turn with its ancestors: metrics of the whole, the turns asked for.",
        input=ThreadPart,
        output=OneThread,
        function=_thread,
    ),
    Ability(
        id="ldg:thread:stream",
        description="All turns of a thread, one by one, root first.",
        input=OfTarget,
        output=OneTurn,
        function=_stream,
        is_stream=True,
    ),
    Ability(
        id="ldg:tree:get",
        description="A turn and what stands below it, with long runs folded.",
        input=TreeOf,
        output=OneTree,
        function=_tree,
    ),
    Ability(
        id="ldg:compaction:list",
        description="The compactions on a thread, latest first.",
        input=OfTarget,
        output=Compactions,
        function=_compactions,
    ),
    Ability(
        id="ldg:compaction:record",
        description="Record a compaction: a summary that stands for the turns before it.",
        input=Summary,
        output=OneTurn,
        function=_compact,
        writes=True,
    ),
    Ability(
        id="ldg:compaction:run",
        description="Compact a session to a budget of tokens, with or without a summary.",
        input=Compact,
        output=OneTurn,
        function=_compact_now,
        writes=True,
        scope_of=_compact_scope,
    ),
    Ability(
        id="ldg:session:import",
        description="Import sessions that another program hands over.",
        input=Request,
        output=Imported,
        function=_import,
        writes=True,
        scope="import",
        scope_of=_import_scope,
    ),
    Ability(
        id="ldg:ledger:audit",
        description="Check every rule of the ledger.",
        input=Nothing,
        output=Findings,
        function=_audit,
    ),
    Ability(
        id="ldg:ledger:recover",
        description="Fail the turns and calls whose writer died.",
        input=Nothing,
        output=Recovered,
        function=_recover,
        writes=True,
    ),
)
