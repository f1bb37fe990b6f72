"""compact: a session's context made smaller, or what that would do."""

from __future__ import annotations

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.explore.show import Page
from agents_ledger.cli.terminal import Output, Span
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.compaction import CompactionPlan
from agents_ledger.model.turns import Turn

WITHOUT_MODEL = ("sliding_window", "selective")
STRATEGIES = ("summary", *WITHOUT_MODEL)


@command
@click.argument("session", shell_complete=complete_target)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="summary",
    show_default=True,
    help="How to choose what stays.",
)
@click.option(
    "--budget",
    type=click.IntRange(1),
    metavar="TOKENS",
    help="Of the context afterwards.  [40 % of now]",
)
@click.option("--engine", "engine_name", metavar="NAME", help="What summarises; else the policy's.")
@click.option("--model", metavar="NAME", help="Of the engine; else the policy's.")
@click.option("--instructions", metavar="TEXT", help="What the summary should heed.")
@click.option("--fallback", type=click.Choice(WITHOUT_MODEL), help="For when summarising fails.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def compact(
    run: Invocation,
    *,
    session: str,
    strategy: str,
    budget: int | None,
    engine_name: str | None,
    model: str | None,
    instructions: str | None,
    fallback: str | None,
    dry_run: bool,
) -> None:
    """Make a session's context smaller; nothing is removed."""
    plan: CompactionPlan | None = None
    turn: Turn | None = None
    if dry_run:
        with run.reading() as ledger:
            plan = ledger.plan_compaction(ledger.lookup(session), strategy=strategy, budget=budget)
    else:
        engine = None
        with run.reading() as ledger:
            ledger.lookup(session)  # a wrong name is told before a missing engine
        if strategy not in WITHOUT_MODEL:
            from agents_ledger.broker.engines.chosen import summariser

            engine, model = summariser(run.address, engine_name, model)
        with run.writing() as ledger:
            turn = _compacted(
                ledger,
                session,
                strategy=strategy,
                budget=budget,
                engine=engine,
                model=model,
                instructions=instructions,
                fallback=fallback,
            )
    if run.as_json:
        run.out.json(plan=plan, turn=turn)
    elif plan is not None:
        _plan(run.out, plan)
    elif turn is not None:
        Page(run.out, full=False).turn(turn, turn.depth, None)


def _compacted(ledger: Ledger, session: str, **asked: object) -> Turn:
    found = ledger.session(ledger.lookup(session))
    return ledger.compact(found.label, **asked)  # type: ignore[arg-type]


def _plan(out: Output, plan: CompactionPlan) -> None:
    stays = str(plan.turns_kept)
    if plan.kept_turn_ids:
        stays += f", {len(plan.kept_turn_ids)} of them picked out"
    rows: list[list[Span]] = [
        ["strategy", plan.strategy],
        ["tokens now", f"{plan.tokens_before:,}"],
        ["tokens then", f"{plan.tokens_after:,}, of {plan.budget:,} at most"],
        ["turns that stay", stays],
        ["turns that do not", str(plan.turns_summarized)],
        ["summarised through", (plan.summarized_through_turn_id, "id")],
        ["first kept turn", (plan.first_kept_turn_id or "none", "id")],
    ]
    if plan.summary_tokens_max:
        rows.append(["summary", f"{plan.summary_tokens_max:,} tokens at most"])
    out.table(["WHAT", "WOULD BE"], rows)
