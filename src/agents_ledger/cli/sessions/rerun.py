"""rerun: run a turn or a thread again on a fork, and print both answers."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import fit, note
from agents_ledger.model.installation import program
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.broker.rerun import Rerun

FAILED = 1
ANSWER_MAX = 600


@command
@click.argument("target", shell_complete=complete_target)
@click.option(
    "--model",
    metavar="NAME",
    help="Model, such as anthropic:claude-opus-5.  [default: as for the original turn]",
)
@click.option("--engine", metavar="NAME", help="Engine: echo or pydantic-ai.  [default: policy]")
@click.option("--prompt", metavar="TEXT", help="Replace the last query by this text.")
@click.option("--whole", is_flag=True, help="Run every turn of the thread again.")
@click.option("--label", help="Label of the new session.  [default: generated]")
def rerun(
    run: Invocation,
    *,
    target: str,
    model: str | None,
    engine: str | None,
    prompt: str | None,
    whole: bool,
    label: str | None,
) -> int:
    """Run a turn, or a whole thread, again on a fork. Exits with 1 if a turn fails."""
    options = {"model": model, "prompt": prompt, "whole": whole, "label": label}
    reruns = asyncio.run(_rerun(run, target, engine, options))
    if run.as_json:
        turns = [
            {
                "before": turn.before.id,
                "turn_id": turn.now.turn_id,
                "error": getattr(turn.now, "error", None),
            }
            for turn in reruns
        ]
        run.out.json(session=reruns[0].session_label if reruns else None, turns=turns)
    elif reruns:
        label = reruns[0].session_label
        compared = shlex.join(["compare", target, label])
        note(("compare: ", "dim"), f"{program.command()} {compared}")
    return FAILED if any(hasattr(turn.now, "error") for turn in reruns) else 0


async def _rerun(
    run: Invocation, target: str, engine: str | None, options: dict[str, Any]
) -> list[Rerun]:
    from agents_ledger.broker.broker import Broker
    from agents_ledger.broker.engines.registry import requested
    from agents_ledger.broker.rerun import rerun as run_again

    reruns: list[Rerun] = []
    chosen = requested(engine, options["model"])
    async with Broker.open(run.address, engine=chosen, create=False) as broker:
        target = await broker.ledger.lookup(target)
        async for turn in run_again(broker, target, **options):
            reruns.append(turn)
            if not run.as_json:
                _print(run, turn)
    return reruns


def _print(run: Invocation, turn: Rerun) -> None:
    before, now = turn.before, turn.now
    query = before.query[0].content or "" if before.query else ""
    run.out.line((fit(query, run.out.width), "title"))
    answer = before.response.content or "" if before.response else before.error or ""
    _print_answer(run, "before", before.model, before.total_tokens, answer)
    if hasattr(now, "error"):
        run.out.line(("  now     ", "dim"), ("failed: ", "bad"), now.error)
    else:
        _print_answer(run, "now", now.model, now.usage.total, now.text)


def _print_answer(
    run: Invocation, when: str, model: str | None, tokens: int | None, text: str
) -> None:
    used = f", {humanize.tokens(tokens)} tokens" if tokens is not None else ""
    run.out.line((f"  {when.ljust(8)}", "dim"), (f"{model or 'unknown'}{used}", "id"))
    run.out.text(text[:ANSWER_MAX] + ("…" if len(text) > ANSWER_MAX else ""), "    ")
