"""Compacting a session: plan which turns stay, summarise the rest, record a compaction turn.

When a compaction is due: due(), with nears_limit() of model/context/compaction.py; for turns that
the broker runs, `compact_at` of its policy. Planning only reads, summarising touches no database,
and recording is one transaction: a failure before that changes nothing. Turns that were recorded
meanwhile are kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, get_args

import msgspec
from msgspec import Struct, structs

from agents_ledger.ledger.context import contexts
from agents_ledger.ledger.context import window as visible
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import live, recording, threads
from agents_ledger.model.agents.config import Config
from agents_ledger.model.agents.engine import Engine, ModelConfig, Request, ask
from agents_ledger.model.context.compaction import (
    NO_MODEL,
    Chosen,
    Compaction,
    CompactionPlan,
    Strategy,
    Trigger,
    VisibleTurn,
    nears_limit,
)
from agents_ledger.model.context.items import TextItem
from agents_ledger.model.errors import (
    EngineError,
    HeadMoved,
    LedgerError,
    NotFound,
    OutcomeUnknown,
    Refused,
)
from agents_ledger.model.ids import now_ms
from agents_ledger.model.text.tokens import Counter, check_counter, estimate_tokens
from agents_ledger.model.turns import Turn, Usage, check_number
from agents_ledger.store.database import Transaction, Work

if TYPE_CHECKING:
    from agents_ledger.context.budget import ContextBlock

T = TypeVar("T")

BUDGET_PART = 0.4  # of the current context: the default budget
SUMMARY_PART = 0.25  # of the budget: the limit of a summary
SUMMARY_MAX = 8000

_added: dict[str, Strategy] = {}


class CompactionRequest(Struct, frozen=True):
    session: str
    strategy: str = "summary"
    budget: int | None = None
    trigger: Trigger = "manual"
    engine: Engine | None = None
    model: str | None = None
    instructions: str | None = None
    fallback: str | None = None
    count: Counter = estimate_tokens
    instead_of: str | None = None  # the strategy that failed, and why


class CompactionDraft(NamedTuple):
    """A plan, with the turns it summarises and the earlier summary."""

    plan: CompactionPlan
    strategy: Strategy
    blocks: tuple[ContextBlock, ...]
    earlier: str
    started_at: int
    piece_tokens: int  # of a transcript in one request to a summariser


class WrittenSummary(Struct, frozen=True):
    text: str
    model: str
    provider: str | None
    usage: Usage
    pieces: int
    cut: bool


# -- strategies -------------------------------------------------------------------------------


def add_strategy(strategy: Strategy) -> None:
    """Register a strategy of your own under its name."""
    if not isinstance(strategy, Strategy):
        raise Refused(
            f"a strategy is a Strategy, not {strategy!r:.80}", "Use Strategy(name, choose)."
        )
    if strategy.name in _strategies():
        raise Refused(f"there is a strategy {strategy.name!r} already", "Choose another name.")
    _added[strategy.name] = strategy


def _strategies() -> dict[str, Strategy]:
    from agents_ledger.context.strategies import BUILT_IN

    return BUILT_IN | _added


def _named(name: str) -> Strategy:
    strategies = _strategies()
    if name not in strategies:
        raise Refused(f"there is no strategy {name!r}", f"Choose one of {', '.join(strategies)}.")
    return strategies[name]


def _summarises(strategy: Strategy, request: CompactionRequest) -> bool:
    return strategy.summarises or (strategy.may_summarise and request.engine is not None)


# -- planning ---------------------------------------------------------------------------------


def draft(tx: Transaction, request: CompactionRequest) -> CompactionDraft:
    """Choose which turns stay. Refused if nothing would be gained."""
    from agents_ledger.context.assembly import assemble, prompt_tokens, summary_overhead

    started_at = now_ms()
    strategy = _named(request.strategy)
    if request.trigger not in get_args(Trigger):
        triggers = ", ".join(get_args(Trigger))
        raise Refused(f"there is no trigger {request.trigger!r}", f"Choose one of {triggers}.")
    if request.budget is not None:
        check_number(request.budget, "budget", 1)
    check_counter(request.count)
    session = heads.get(tx, request.session)
    head = session.thread_id
    if head is None:
        raise Refused(f"session {session.label!r} is empty: there is nothing to compact")
    history, _ = visible.visible(tx, head, head)
    assembled = assemble(history, count=request.count)
    turns = tuple(block for block in assembled.blocks if block.part in ("kept", "since"))
    prompt = prompt_tokens(history.system_prompt, request.count)
    before = prompt + sum(block.tokens for block in assembled.blocks)
    budget = int(before * BUDGET_PART) if request.budget is None else request.budget
    overhead = prompt + sum(block.tokens for block in assembled.blocks if block.part == "summary")
    summary_max = 0
    if _summarises(strategy, request):
        summary_max = max(min(int(budget * SUMMARY_PART), SUMMARY_MAX), 1)
        overhead = prompt + summary_max + summary_overhead(request.count)
    picked_before = {turn.id for turn in history.picked}
    chosen = _chosen(strategy, turns, budget - overhead, picked_before)
    remaining = [turns[n] for n in (*chosen.picked, *range(chosen.first, len(turns)))]
    dropped = tuple(turns[n] for n in range(chosen.first) if n not in chosen.picked)
    if not dropped:
        raise _nothing_to_gain(session.label, before, budget)
    plan = CompactionPlan(
        session=session.label,
        turn_id=head,
        strategy=strategy.name,
        trigger=request.trigger,
        budget=budget,
        tokens_before=before,
        tokens_after=overhead + sum(block.tokens for block in remaining),
        turns_summarized=len(dropped),
        turns_kept=len(remaining),
        summarized_through_turn_id=str(turns[chosen.first - 1].turn_id),
        first_kept_turn_id=turns[chosen.first].turn_id if chosen.first < len(turns) else None,
        kept_turn_ids=tuple(str(turns[n].turn_id) for n in chosen.picked),
        summary_tokens_max=summary_max,
        summary_turn_id=history.summary_turn_id,
    )
    return CompactionDraft(
        plan, strategy, dropped, history.summary, started_at, tx.limits.summary_piece_tokens
    )


def _nothing_to_gain(label: str, before: int, budget: int) -> Refused:
    what = f"there is nothing to compact: the {before} tokens of {label!r}"
    if before <= budget:
        return Refused(f"{what} fit into {budget}", "Pass a smaller budget.")
    return Refused(
        f"{what} are all in turns that stay", "Only a summary can make the last turn smaller."
    )


def _chosen(
    strategy: Strategy, turns: tuple[ContextBlock, ...], room: int, picked_before: set[str]
) -> Chosen:
    """What a strategy chose, checked. Turns that an earlier compaction picked, with hidden turns
    between them, can only be picked one by one."""
    from agents_ledger.context.summary import transcript

    texts = transcript(turns)
    seen = [
        VisibleTurn(str(t.turn_id), t.tokens, text) for t, text in zip(turns, texts, strict=True)
    ]
    chosen = strategy.choose(seen, max(room, 0)) if seen else Chosen(0)
    if not isinstance(chosen, Chosen):
        raise Refused(f"strategy {strategy.name!r} returned {chosen!r:.80}", "Return a Chosen.")
    if not 0 <= chosen.first <= len(turns) or any(not 0 <= n < chosen.first for n in chosen.picked):
        raise Refused(f"strategy {strategy.name!r} chose turns that do not exist: {chosen}")
    first = chosen.first
    while first < len(turns) and turns[first].turn_id in picked_before:
        first += 1
    return Chosen(first, tuple(sorted({*chosen.picked, *range(chosen.first, first)})))


def due(
    tx: Transaction, target: str, *, window: int | None, every: int | None, count: Counter
) -> Trigger | None:
    """Why a thread should be compacted now, or None; see Ledger.compaction_due."""
    for name, number in (("window", window), ("every", every)):
        if number is not None:
            check_number(number, name, 1)
    turn_id = threads.resolve(tx, target)
    if turn_id is None:
        return None
    if window is not None:
        context = contexts.at(tx, turn_id, count=count)
        if nears_limit(context.total_tokens, window):
            return "context_limit"
    place = threads.place_of(tx, turn_id)
    compacted = threads.place_of(tx, place.compaction_turn_id).depth
    return "periodic" if every is not None and place.depth - compacted >= every else None


# -- summarising ------------------------------------------------------------------------------


async def summarise(draft: CompactionDraft, request: CompactionRequest) -> WrittenSummary:
    """Have an engine summarise the turns that do not stay, piece by piece, each with the summary of
    the previous pieces."""
    from agents_ledger.context.summary import PROMPT, pieces, question, transcript

    if request.engine is None:
        raise Refused(
            f"strategy {request.strategy!r} needs an engine to summarise with",
            "Pass one, or choose a strategy that needs none: sliding_window, selective.",
        )
    limit = draft.plan.summary_tokens_max
    config = ModelConfig(request.model, max_tokens=limit)
    text, spent = draft.earlier, []
    for piece in pieces(transcript(draft.blocks), draft.piece_tokens, request.count):
        prompt = question(piece, text, request.instructions, limit)
        reply = await ask(request.engine, Request((TextItem("user", prompt),), PROMPT, config))
        text = reply.text.strip()
        if not text or reply.finished.stop_reason == "refusal":
            raise EngineError(f"engine {request.engine.name!r} gave no summary", "bad_request")
        spent.append(reply.finished)
    last = spent[-1]
    return WrittenSummary(
        text,
        last.model or request.model or request.engine.name,
        last.provider,
        Usage(
            _sum(reply.usage.input_tokens for reply in spent),
            _sum(reply.usage.output_tokens for reply in spent),
        ),
        len(spent),
        last.stop_reason == "max_tokens",
    )


def _sum(tokens: Iterable[int | None]) -> int | None:
    """None: an engine did not report them."""
    reported = [count for count in tokens if count is not None]
    return sum(reported) if reported else None


# -- recording --------------------------------------------------------------------------------


def record(
    tx: Transaction,
    draft: CompactionDraft,
    summary: WrittenSummary | None,
    request: CompactionRequest,
    turn_id: str,
) -> Turn:
    """Record the compaction on the session's head. Turns recorded since the plan are kept too;
    HeadMoved, if the head moved to another thread."""
    plan = _on_head(tx, draft.plan)
    text = summary.text if summary else ""
    held = visible.Held(plan.kept_turn_ids, None if summary else plan.summary_turn_id)
    before, after = _tokens(tx, plan, text, held, request.count)
    # Measured on the thread as it is now: a summary may be longer than the turns it replaces.
    if after >= before:
        raise Refused(
            f"the compaction would leave {after} tokens of {before}: nothing is gained",
            "Pass a smaller budget, or choose another strategy.",
        )
    now = now_ms()
    compaction = Compaction(
        summary=text,
        summarized_through_turn_id=plan.summarized_through_turn_id,
        first_kept_turn_id=plan.first_kept_turn_id,
        turns_summarized=plan.turns_summarized,
        compaction_type=plan.strategy,
        model=summary.model if summary else NO_MODEL,
        provider=summary.provider if summary else None,
        tokens_before=before,
        tokens_after=after,
        summary_tokens=request.count(text),
        summarization_input_tokens=summary.usage.input_tokens if summary else None,
        summarization_output_tokens=summary.usage.output_tokens if summary else None,
        duration_ms=max(now - draft.started_at, 0),
        trigger=plan.trigger,
        metadata_json=_metadata(plan, summary, held, request),
    )
    fields: dict[str, Any] = {
        "id": turn_id,
        "compaction": compaction,
        "parent": plan.turn_id,
        "started_at": draft.started_at,
        "completed_at": now,
        "usage": summary.usage if summary else None,
        "config": Config(),
    }
    return recording.record(tx, recording.recording(plan.session, (), None, fields))


def check(tx: Transaction, compaction: Compaction, parent_id: str | None) -> None:
    """Refuse a compaction record whose turns are not on the thread it compacts, or not in order."""
    if parent_id is None:
        raise Refused("an empty session has nothing to compact")
    through = _depth_on_thread(
        tx, compaction.summarized_through_turn_id, parent_id, "summarized_through_turn_id"
    )
    if compaction.first_kept_turn_id is None:
        return
    first = _depth_on_thread(tx, compaction.first_kept_turn_id, parent_id, "first_kept_turn_id")
    if first <= through:
        raise Refused(
            f"the first kept turn (depth {first}) must come after the last summarised ({through})"
        )


def _depth_on_thread(tx: Transaction, turn_id: str, head: str, field: str) -> int:
    try:
        depth = threads.place_of(tx, turn_id).depth
    except NotFound as error:
        raise Refused(f"{field}: {error}") from error
    if not threads.on_thread(tx, turn_id, head):
        raise Refused(f"{field}: turn {turn_id} is not on the thread of {head}")
    return depth


def _on_head(tx: Transaction, plan: CompactionPlan) -> CompactionPlan:
    head = heads.existing(tx, plan.session).thread_id
    if head == plan.turn_id:
        return plan
    moved = HeadMoved(plan.session, plan.turn_id, head)
    if head is None or not threads.on_thread(tx, plan.turn_id, head):
        raise moved
    planned = threads.place_of(tx, plan.turn_id)
    # Somebody else compacted the thread meanwhile: the turns of this plan are hidden already.
    if threads.place_of(tx, head).compaction_turn_id != planned.compaction_turn_id:
        raise moved
    first = plan.first_kept_turn_id or threads.above(tx, head, planned.depth + 1)
    return structs.replace(plan, turn_id=head, first_kept_turn_id=first)


def _tokens(
    tx: Transaction, plan: CompactionPlan, text: str, held: visible.Held, count: Counter
) -> tuple[int, int]:
    """The tokens of the context before and after."""
    from agents_ledger.context.assembly import assemble, prompt_tokens

    depth = threads.place_of(tx, plan.turn_id).depth + 1
    boundary = visible.boundary_of(
        tx, depth, first=plan.first_kept_turn_id, summary=text, held=held
    )
    totals = []
    for assumed in (None, boundary):
        history, _ = visible.visible(tx, plan.turn_id, plan.turn_id, boundary=assumed)
        blocks = assemble(history, count=count).blocks
        shown_tokens = sum(block.tokens for block in blocks)
        totals.append(shown_tokens + prompt_tokens(history.system_prompt, count))
    return totals[0], totals[1]


def _metadata(
    plan: CompactionPlan,
    summary: WrittenSummary | None,
    held: visible.Held,
    request: CompactionRequest,
) -> str:
    """The strategy's parameters, and what assembling the next context needs."""
    fields: dict[str, Any] = {
        "budget": plan.budget,
        "turns_kept": plan.turns_kept,
        "kept_turn_ids": held.kept_turn_ids or None,
        "summary_turn_id": held.summary_turn_id,
        "instead_of": request.instead_of,
    }
    if summary is not None:
        fields |= {
            "engine": request.engine.name if request.engine else None,
            "summary_tokens_max": plan.summary_tokens_max,
            "pieces": summary.pieces,
            "cut": summary.cut or None,
            "instructions": request.instructions,
        }
    return msgspec.json.encode({k: v for k, v in fields.items() if v is not None}).decode()


# -- compacting -------------------------------------------------------------------------------


class RunWork(Protocol):
    def __call__(self, work: Work[T], /) -> Awaitable[T]: ...


async def compact(request: CompactionRequest, read: RunWork, write: RunWork) -> Turn:
    """Plan, summarise and record. If summarising fails, nothing has changed: the fallback strategy
    is used, or the error suggests one."""
    from agents_ledger.model.ids import new_id

    drafted = await read(partial(draft, request=request))
    summary = None
    if _summarises(drafted.strategy, request):
        try:
            summary = await summarise(drafted, request)
        except Exception as error:
            return await compact(_without_model(request, error), read, write)
    turn_id = new_id()
    try:
        return await write(
            partial(record, draft=drafted, summary=summary, request=request, turn_id=turn_id)
        )
    except OutcomeUnknown as unknown:
        raise OutcomeUnknown(str(unknown), turn_id) from unknown


def _without_model(request: CompactionRequest, error: Exception) -> CompactionRequest:
    """The request with its fallback strategy; without one, the error is raised."""
    ours = isinstance(error, LedgerError) and not isinstance(error, EngineError)
    if request.fallback is not None and not ours:
        why = f"{request.strategy}: {live.reason_of(error)}"
        return structs.replace(
            request, strategy=request.fallback, engine=None, fallback=None, instead_of=why
        )
    if isinstance(error, EngineError):
        raise EngineError(
            f"the summary failed, nothing was changed: {error}",
            error.kind,
            f"{error.hint} Without a model: strategy sliding_window or selective, also as"
            " fallback.",
        ) from error
    raise error


def compact_and_wait(
    request: CompactionRequest, read: Callable[[Work[T]], T], write: Callable[[Work[T]], T]
) -> Turn:
    """compact() for synchronous callers, also for those within a running event loop."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    compacting = compact(request, _awaitable(read), _awaitable(write))
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(compacting)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, compacting).result()


def _awaitable(run: Callable[[Work[T]], T]) -> RunWork:
    async def awaitable(work: Work[Any]) -> Any:
        return run(work)

    return awaitable
