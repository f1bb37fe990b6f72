"""context: the context that a model gets at a turn."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import click
import msgspec
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import Output, Span, fit, lines_of
from agents_ledger.ledger.context.contexts import Context
from agents_ledger.model.context.items import (
    PROVIDER_FORMATS,
    CallItem,
    CutKind,
    ImageItem,
    Item,
    ResultItem,
    TextItem,
    item_tokens,
)
from agents_ledger.model.text import humanize
from agents_ledger.model.text.tokens import LAST_TURNS

PART_NAMES = {
    "system": "system prompt",
    "summary": "summary",
    "kept": "kept turns",
    "since": "turns since",
    "query": "query",
}
CUT_NAMES: dict[CutKind, str] = {
    "result": "results shortened",
    "image": "images replaced by text",
    "step": "steps omitted",
}
LINES_MAX = 3  # per text without --full


@command
@click.argument("target", shell_complete=complete_target)
@click.option("--query", metavar="TEXT", help="Query to add at the end.")
@click.option("--before", is_flag=True, help="The context that the turn itself was given.")
@click.option(
    "--budget",
    type=click.IntRange(1),
    metavar="TOKENS",
    help="Shorten the context to this number of tokens.",
)
@click.option(
    "--last",
    type=click.IntRange(0),
    metavar="N",
    default=LAST_TURNS,
    show_default=True,
    help="Number of final turns that are never shortened.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(PROVIDER_FORMATS),
    help="Print the request in this message format, as JSON.",
)
@click.option("--full", is_flag=True, help="Show complete texts, parameters and results.")
def context(
    run: Invocation,
    *,
    target: str,
    query: str | None,
    before: bool,
    budget: int | None,
    last: int,
    form: str | None,
    full: bool,
) -> None:
    """Show the context that a model gets at a turn, with token counts."""
    with run.reading() as ledger:
        assembled = ledger.context(ledger.lookup(target), query, budget, last=last, before=before)
    if run.as_json:
        run.out.json(**_as_json(assembled, form))
    elif form is not None:
        run.out.plain_json(assembled.rendered(form))
    else:
        _print(run.out, assembled, full=full)


def _as_json(context: Context, form: str | None) -> dict[str, object]:
    plain = to_builtins(context)
    items = [{**to_builtins(item), "tokens": item_tokens(item)} for item in context.items]
    rendered = {"request": context.rendered(form)} if form else {}
    return {**plain, "items": items, "total_tokens": context.total_tokens, **rendered}


def _print(out: Output, context: Context, *, full: bool) -> None:
    _print_parts(out, context)
    if context.system_prompt:
        _head(out, "system prompt", "", context.tokens["system"])
        _body(out, context.system_prompt, full=full)
        out.line()
    for (part, turn_id), items in groupby(context.items, lambda item: (item.part, item.turn_id)):
        out.line((_part_name(context, part), "seam"), "  ", (turn_id or "", "id"))
        for item in items:
            _item(out, item, full=full)
        out.line()


def _part_name(context: Context, part: str) -> str:
    if part == "since" and context.compaction_turn_id is None:
        return "turns"
    return PART_NAMES[part]


def _print_parts(out: Output, context: Context) -> None:
    rows: list[list[Span]] = []
    for part in PART_NAMES:
        if context.tokens.get(part):
            turns = context.turns.get(part, 0) if part in ("kept", "since") else 0
            rows.append([_part_name(context, part), str(turns or ""), f"{context.tokens[part]:,}"])
    rows.append([("total", "title"), "", (f"{context.total_tokens:,}", "title")])
    out.table(["PART", "TURNS", "TOKENS"], rows, right=("TURNS", "TOKENS"))
    for text in _notes(context):
        out.line((text, "dim"))
    out.line()


def _notes(context: Context) -> list[str]:
    """What was shortened and repaired, one line each."""
    notes = []
    if context.budget is not None:
        kinds = Counter(cut.kind for cut in context.cuts)
        cuts = [
            f"{name} in {humanize.count(kinds[kind], 'turn')}"
            for kind, name in CUT_NAMES.items()
            if kind in kinds
        ]
        if context.turns_left_out:
            cuts.append(f"{humanize.count(context.turns_left_out, 'turn')} omitted")
        if "summary" in kinds:
            cuts.append("summary omitted")
        notes.append(f"budget {context.budget:,}: {', '.join(cuts) or 'nothing shortened'}")
    for what, number in Counter(repair.what for repair in context.repairs).items():
        notes.append(f"repaired: {what}" + (f" ({number})" if number > 1 else ""))
    return notes


def _head(out: Output, kind: str, detail: str, tokens: int, style: str = "title") -> None:
    spans: list[Span] = ["  ", (kind, style)]
    if detail:
        room = out.width - len(kind) - 20 if out.is_terminal else 10_000
        spans += [" ", fit(detail, max(room, 8))]
    out.line(*spans, (f"  {humanize.tokens(tokens)} tokens", "dim"))


def _item(out: Output, item: Item, *, full: bool) -> None:
    tokens = item_tokens(item)
    if isinstance(item, CallItem):
        _head(out, f"▸ {item.tool_name}", "" if full else item.params_json, tokens, "tool")
        if full:
            _body(out, msgspec.json.format(item.params_json, indent=2), full=True)
    elif isinstance(item, ImageItem):
        _head(out, "image", fit(item.reference, 200), tokens)
    elif isinstance(item, ResultItem):
        kind, style = ("error", "bad") if item.is_error else ("result", "tool")
        _head(out, kind, "", tokens, style)
        _body(out, item.text, full=full)
    else:
        _head(out, item.role if isinstance(item, TextItem) else "thinking", "", tokens)
        _body(out, item.text, full=full)


def _body(out: Output, text: str, *, full: bool) -> None:
    lines = lines_of(text)
    if full or not out.is_terminal:
        out.text(text if full else "\n".join(lines[:LINES_MAX]), "    ")
    else:
        for line in lines[:LINES_MAX]:
            out.line("    ", fit(line, out.width - 4))
    if not full and len(lines) > LINES_MAX:
        out.line("    ", (f"… {len(lines) - LINES_MAX} more lines (--full)", "dim"))
