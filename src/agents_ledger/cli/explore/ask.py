"""fix, how and recall: ask the ledger what is known from past conversations."""

from __future__ import annotations

import sys

import click
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation, command, limit_option
from agents_ledger.cli.terminal import fit, note
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.ask import CallStep, Fix, Passage, ToolExample
from agents_ledger.model.text import humanize

_AFTER = click.option("--after", metavar="CURSOR", help="Continue after a previous page.")


@command
@click.argument("error", metavar="ERROR")
@limit_option(3, "fixes", 50)
@_AFTER
def fix(run: Invocation, *, error: str, limit: int, after: str | None) -> int | None:
    """Find what ended an error before: the calls between it and the next success.

    ERROR is the text of the error; - reads it from standard input. Exits with 1 if nothing is
    found.
    """
    text = sys.stdin.read() if error == "-" else error
    with run.reading() as ledger:
        fixes = ledger.fix(text, limit=limit, after=after)
    if run.as_json:
        run.out.json(**to_builtins(fixes))
        return None
    if not fixes.fixes:
        note("No error like this one ended in a success.")
        return 1
    for one in fixes:
        _print_fix(run, one)
    _note_next(fixes.next)
    return None


def _print_fix(run: Invocation, one: Fix) -> None:
    times = f" · {one.times} times" if one.times > 1 else ""
    facts = f"  {humanize.age(one.started_at, now_ms())} · {one.likeness:.0%} alike{times}"
    run.out.wrapped("", (one.turn_id, "id"), (facts, "dim"))
    _print_session(run, one.session_label, one.session_title)
    run.out.line("  ", (fit(one.error, run.out.width - 2), "dim"))
    _print_step(run, "failed", one.failed)
    for step in one.steps:
        if step != one.fixed_by:
            _print_step(run, "then", step)
    _print_step(run, "fixed by", one.fixed_by)
    if one.succeeded != one.fixed_by:
        _print_step(run, "success", one.succeeded)
    run.out.line()


def _print_step(run: Invocation, what: str, step: CallStep) -> None:
    line = fit(f"{step.tool_name}  {step.command}", run.out.width - 12)
    run.out.line("  ", (what.ljust(10), "tool"), line)


def _print_session(run: Invocation, label: str | None, title: str | None) -> None:
    heading = f"  {fit(title, 60)}" if title else ""
    run.out.wrapped("  ", (fit(label or "no session", 60), "label"), heading)


def _note_next(cursor: str | None) -> None:
    if cursor:
        note((f"More results: --after {cursor}", "dim"))


@command
@click.argument("name", nargs=-1, required=True, metavar="TOOL|COMMAND...")
@limit_option(5, "examples", 50)
@_AFTER
def how(run: Invocation, *, name: tuple[str, ...], limit: int, after: str | None) -> int | None:
    """Show how a tool or a command was used with success, most frequent first.

    Pass the name of a tool, or the first words of a command: git rebase. Exits with 1 if nothing is
    found.
    """
    text = " ".join(name)
    with run.reading() as ledger:
        examples = ledger.how(text, limit=limit, after=after)
    if run.as_json:
        run.out.json(**to_builtins(examples))
        return None
    if not examples.examples:
        note(f"No successful call of {text}.")
        return 1
    for one in examples:
        _print_example(run, one)
    _note_next(examples.next)
    return None


def _print_example(run: Invocation, one: ToolExample) -> None:
    failed = f", {one.failed} failed" if one.failed else ""
    facts = f"  {humanize.age(one.started_at, now_ms())} · {one.succeeded} succeeded{failed}"
    run.out.wrapped("", (one.call.turn_id, "id"), (facts, "dim"))
    _print_step(run, "call", one.call)
    if one.output.strip():
        run.out.line("  ", (fit(one.output, run.out.width - 2), "dim"))
    run.out.line()


@command
@click.argument("question", nargs=-1, required=True)
@click.option(
    "--budget",
    type=click.IntRange(100, 100_000),
    metavar="TOKENS",
    default=2000,
    show_default=True,
    help="Maximum number of tokens.",
)
@_AFTER
def recall(
    run: Invocation, *, question: tuple[str, ...], budget: int, after: str | None
) -> int | None:
    """Print the passages that answer a question best, with their context.

    The filters of `agents-ledger search` may be added. Exits with 1 if nothing is found.
    """
    with run.reading() as ledger:
        recalled = ledger.recall(" ".join(question), budget=budget, after=after)
    if run.as_json:
        run.out.json(**to_builtins(recalled))
        return None
    if not recalled.passages:
        note("Nothing found.")
        return 1
    for one in recalled:
        _print_passage(run, one)
    _note_next(recalled.next)
    return None


def _print_passage(run: Invocation, one: Passage) -> None:
    run.out.wrapped("", (one.turn_id, "id"), (f"  {humanize.age(one.started_at, now_ms())}", "dim"))
    _print_session(run, one.session_label, one.session_title)
    for what, text in (("asked", one.prompt), ("", one.text), ("answered", one.answer)):
        if text:
            run.out.wrapped("  ", (f"{what}: " if what else "", "tool"), " ".join(text.split()))
    run.out.line()
