"""rerun: a turn or a thread asked again of another model, beside what was answered before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import fit, note
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.broker.rerun import Again

FAILED = 1
ANSWER_MAX = 600


@command
@click.argument("target", shell_complete=complete_target)
@click.option("--model", metavar="NAME", help="As the engine names it; else as before.")
@click.option("--engine", metavar="NAME", help="echo or pydantic-ai; else as the policy says.")
@click.option("--prompt", metavar="TEXT", help="Ask this instead of the last query.")
@click.option("--whole", is_flag=True, help="Every turn of the thread, from the first.")
@click.option("--label", help="The new session's label; made up if left out.")
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
    """Ask a turn, or a whole thread, again on a fork; exit with 1 if a turn fails."""
    options = {"model": model, "prompt": prompt, "whole": whole, "label": label}
    made = asyncio.run(_rerun(run, target, engine, options))
    if run.as_json:
        turns = [
            {
                "before": again.before.id,
                "turn_id": again.now.turn_id,
                "error": getattr(again.now, "error", None),
            }
            for again in made
        ]
        run.out.json(session=made[0].session_label if made else None, turns=turns)
    elif made:
        label = made[0].session_label
        note(("compare: ", "dim"), f"agents-ledger compare {target} {label}")
    return FAILED if any(hasattr(again.now, "error") for again in made) else 0


async def _rerun(
    run: Invocation, target: str, engine: str | None, options: dict[str, Any]
) -> list[Again]:
    from agents_ledger.broker.broker import Broker
    from agents_ledger.broker.engines.chosen import choose
    from agents_ledger.broker.rerun import rerun as ask_again

    made: list[Again] = []
    chosen = choose(engine) if engine else None
    async with Broker.open(run.address, engine=chosen, create=False) as broker:
        target = await broker.ledger.lookup(target)
        async for again in ask_again(broker, target, **options):
            made.append(again)
            if not run.as_json:
                _tell(run, again)
    return made


def _tell(run: Invocation, again: Again) -> None:
    before, now = again.before, again.now
    asked = before.query[0].content or "" if before.query else ""
    run.out.line((fit(asked, run.out.width), "title"))
    said = before.response.content or "" if before.response else before.error or ""
    _answer(run, before.model, before.total_tokens, said)
    if hasattr(now, "error"):
        run.out.line(("  now     ", "dim"), ("failed: ", "bad"), now.error)
    else:
        _answer(run, now.model, now.usage.total, now.text, word="now")


def _answer(
    run: Invocation, model: str | None, tokens: int | None, text: str, word: str = "before"
) -> None:
    used = f", {humanize.tokens(tokens)} tokens" if tokens is not None else ""
    run.out.line((f"  {word.ljust(8)}", "dim"), (f"{model or 'unknown'}{used}", "id"))
    run.out.text(text[:ANSWER_MAX] + ("…" if len(text) > ANSWER_MAX else ""), "    ")
