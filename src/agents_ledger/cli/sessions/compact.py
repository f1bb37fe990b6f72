"""compact: compact a session's context, or show the plan."""

from __future__ import annotations

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.explore.turn_printer import TurnPrinter
from agents_ledger.cli.terminal import Output, Span
from agents_ledger.model.context.compaction import CompactionPlan
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
    help="How to choose the turns to keep.",
)
@click.option(
    "--budget",
    type=click.IntRange(1),
    metavar="TOKENS",
    help="Size of the context afterwards.  [default: 40 % of its size]",
)
@click.option(
    "--engine", "engine_name", metavar="NAME", help="Engine that summarises.  [default: policy]"
)
@click.option("--model", metavar="NAME", help="Model that summarises.  [default: policy]")
@click.option("--instructions", metavar="TEXT", help="Instructions for the summary.")
@click.option(
    "--fallback", type=click.Choice(WITHOUT_MODEL), help="Strategy to use if summarising fails."
)
@click.option("--dry-run", is_flag=True, help="Show the plan; change nothing.")
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
    """Compact a session's context. No turn is removed."""
    plan: CompactionPlan | None = None
    turn: Turn | None = None
    if dry_run:
        with run.reading() as ledger:
            plan = ledger.plan_compaction(ledger.lookup(session), strategy=strategy, budget=budget)
    else:
        engine = None
        with run.reading() as ledger:
            # Report a wrong name before a missing engine.
            ledger.lookup(session)
        # Selected turns need no summary of the others, but get one from a model that is named.
        if strategy == "summary" or (strategy == "selective" and (engine_name or model)):
            from agents_ledger.broker.engines.registry import summariser

            engine, model = summariser(run.address, engine_name, model)
        with run.writing() as ledger:
            turn = ledger.compact(
                ledger.session(ledger.lookup(session)).label,
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
        _print_plan(run.out, plan)
    elif turn is not None:
        TurnPrinter(run.out, full=False).turn(turn, turn.depth, None)


def _print_plan(out: Output, plan: CompactionPlan) -> None:
    turns_kept = str(plan.turns_kept)
    if plan.kept_turn_ids:
        turns_kept += f", {len(plan.kept_turn_ids)} of them selected"
    rows: list[list[Span]] = [
        ["strategy", plan.strategy],
        ["tokens now", f"{plan.tokens_before:,}"],
        ["tokens after", f"{plan.tokens_after:,} of at most {plan.budget:,}"],
        ["turns kept", turns_kept],
        ["turns summarised", str(plan.turns_summarized)],
        ["summarised through", (plan.summarized_through_turn_id, "id")],
        ["first kept turn", (plan.first_kept_turn_id or "none", "id")],
    ]
    if plan.summary_tokens_max:
        rows.append(["summary", f"at most {plan.summary_tokens_max:,} tokens"])
    out.table(["PLAN", "VALUE"], rows)
