"""Abilities of turns, threads, trees and compactions; import, audit and recovery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from agents_ledger.bus import turn_inputs
from agents_ledger.bus.ability import (
    Ability,
    Count,
    Input,
    Limit,
    Name,
    NoInput,
    Target,
    schema_of,
)
from agents_ledger.bus.turn_inputs import CompactionFields, RecordInput
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.access import Scope
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.imports.requests import ImportChunk, ImportRequest
from agents_ledger.model.reports.trees import Tree
from agents_ledger.model.sessions import DEFAULT_PERSONA, Finding, Thread
from agents_ledger.model.turns import Turn

TURNS_PER_READ = 50


class TargetInput(Input):
    target: Target


class ThreadInput(Input):
    target: Target
    last: Annotated[Limit | None, Meta(description="Number of final turns.")] = 20
    from_depth: Count | None = None
    to_depth: Count | None = None


class TreeInput(Input):
    target: Target
    limit: Limit = 200


class CompactionInput(CompactionFields, kw_only=True):
    session: Name


ModelFreeStrategy = Literal["sliding_window", "selective"]


class CompactInput(Input):
    session: Name
    strategy: Literal["summary", "sliding_window", "selective"] = "sliding_window"
    budget: Annotated[Count | None, Meta(description="Maximum number of tokens.")] = None
    model: Annotated[Name | None, Meta(description="Model that summarises.")] = None
    instructions: Annotated[
        Annotated[str, Meta(max_length=10_000)] | None,
        Meta(description="Instructions for the summary."),
    ] = None
    fallback: Annotated[
        ModelFreeStrategy | None, Meta(description="Strategy if summarising fails.")
    ] = None


class ImportInput(Input):
    # A dict, because an item that is invalid must not fail the others.
    request: Annotated[
        dict[str, Any],
        Meta(
            description="A `sessions.import` request, or a chunk of one; its fields are in"
            " docs/sources/request.md.",
            extra_json_schema={"anyOf": [schema_of(ImportRequest), schema_of(ImportChunk)]},
        ),
    ]


class TurnOutput(Struct):
    turn: Turn


class ThreadOutput(Struct):
    thread: Thread


class TreeOutput(Struct):
    tree: Tree


class CompactionsOutput(Struct):
    compactions: tuple[Compaction, ...]


class ImportOutput(Struct):
    response: dict[str, Any]


class FindingsOutput(Struct):
    findings: tuple[Finding, ...]


class RecoverOutput(Struct):
    turn_ids: tuple[str, ...]


def _get(ledger: Ledger, params: TargetInput) -> TurnOutput:
    return TurnOutput(ledger.get_turn(params.target))


def _record(ledger: Ledger, params: RecordInput) -> TurnOutput:
    return TurnOutput(turn_inputs.record(ledger, params))


def _thread(ledger: Ledger, params: ThreadInput) -> ThreadOutput:
    by_depth = params.from_depth is not None or params.to_depth is not None
    return ThreadOutput(
        ledger.thread(
            params.target,
            last=None if by_depth else params.last,
            from_depth=params.from_depth or 1,
            to_depth=params.to_depth,
        )
    )


def _stream(ledger: Ledger, params: TargetInput) -> Iterator[TurnOutput]:
    whole = ledger.thread(params.target, last=0)
    if whole.turn_id is None:
        return
    for first in range(1, whole.depth + 1, TURNS_PER_READ):
        part = ledger.thread(whole.turn_id, from_depth=first, to_depth=first + TURNS_PER_READ - 1)
        yield from map(TurnOutput, part.turns)


def _tree(ledger: Ledger, params: TreeInput) -> TreeOutput:
    return TreeOutput(ledger.tree(params.target, limit=params.limit))


def _compactions(ledger: Ledger, params: TargetInput) -> CompactionsOutput:
    return CompactionsOutput(ledger.compactions(params.target))


def _record_compaction(ledger: Ledger, params: CompactionInput) -> TurnOutput:
    compaction = turn_inputs.compaction_of(params)
    return TurnOutput(ledger.record(params.session, compaction=compaction))


def _run_compaction(ledger: Ledger, params: CompactInput) -> TurnOutput:
    engine, model = None, params.model
    if _summarises(params):
        from agents_ledger.broker.engines.registry import summariser

        engine, model = summariser(ledger.address, model=params.model)
    turn = ledger.compact(
        params.session,
        strategy=params.strategy,
        budget=params.budget,
        engine=engine,
        model=model,
        instructions=params.instructions,
        fallback=params.fallback,
    )
    return TurnOutput(turn)


def _compact_scope(_: Ledger, params: CompactInput) -> Scope:
    # A summary runs the engine of the policy.
    return "chat" if _summarises(params) else "write"


def _summarises(params: CompactInput) -> bool:
    return params.strategy == "summary" or (
        params.strategy == "selective" and params.model is not None
    )


def _import_scope(_: Ledger, params: ImportInput) -> Scope:
    from agents_ledger.importers.requests import persona_of

    return "import" if persona_of(params.request) == DEFAULT_PERSONA else "admin"


def _import(ledger: Ledger, params: ImportInput) -> ImportOutput:
    from agents_ledger.importers.requests import import_request

    return ImportOutput(import_request(ledger, params.request))


def _audit(ledger: Ledger, _: NoInput) -> FindingsOutput:
    return FindingsOutput(ledger.audit())


def _recover(ledger: Ledger, _: NoInput) -> RecoverOutput:
    return RecoverOutput(ledger.recover())


ABILITIES = (
    Ability(
        id="ldg:turn:get",
        description="Get a turn with its messages and tool calls.",
        input=TargetInput,
        output=TurnOutput,
        function=_get,
    ),
    Ability(
        id="ldg:turn:record",
        description="Record a finished turn and move its session to it, atomically.",
        input=RecordInput,
        output=TurnOutput,
        function=_record,
        writes=True,
        scope_of=turn_inputs.scope_of,
    ),
    Ability(
        id="ldg:thread:get",
        description="Get a thread: metrics of all its turns, and the selected turns.",
        input=ThreadInput,
        output=ThreadOutput,
        function=_thread,
    ),
    Ability(
        id="ldg:thread:stream",
        description="Stream all turns of a thread, root first.",
        input=TargetInput,
        output=TurnOutput,
        function=_stream,
        is_stream=True,
    ),
    Ability(
        id="ldg:tree:get",
        description="Get a turn and its descendants, with long runs folded.",
        input=TreeInput,
        output=TreeOutput,
        function=_tree,
    ),
    Ability(
        id="ldg:compaction:list",
        description="List the compactions of a thread, most recent first.",
        input=TargetInput,
        output=CompactionsOutput,
        function=_compactions,
    ),
    Ability(
        id="ldg:compaction:record",
        description="Record a compaction with a summary of your own.",
        input=CompactionInput,
        output=TurnOutput,
        function=_record_compaction,
        writes=True,
    ),
    Ability(
        id="ldg:compaction:run",
        description="Compact a session to a token budget, with or without a model.",
        input=CompactInput,
        output=TurnOutput,
        function=_run_compaction,
        writes=True,
        scope_of=_compact_scope,
    ),
    Ability(
        id="ldg:session:import",
        description="Import sessions from another program, whole or in chunks.",
        input=ImportInput,
        output=ImportOutput,
        function=_import,
        writes=True,
        scope="import",
        scope_of=_import_scope,
    ),
    Ability(
        id="ldg:ledger:audit",
        description="Check every rule of the ledger.",
        input=NoInput,
        output=FindingsOutput,
        function=_audit,
    ),
    Ability(
        id="ldg:ledger:recover",
        description="Mark turns and calls as failed whose writer has died.",
        input=NoInput,
        output=RecoverOutput,
        function=_recover,
        writes=True,
    ),
)
