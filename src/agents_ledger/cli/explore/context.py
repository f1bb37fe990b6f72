"""context: what a model is shown at a turn."""

from __future__ import annotations

from itertools import groupby

import click
import msgspec
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import Output, Span, fit, lines_of
from agents_ledger.ledger.context.contexts import Context
from agents_ledger.model.context import (
    PROVIDER_FORMATS,
    CallItem,
    CutKind,
    ImageItem,
    Item,
    ResultItem,
    TextItem,
    ThinkingItem,
)
from agents_ledger.model.text import humanize
from agents_ledger.model.text.tokens import LAST_TURNS, item_tokens

PARTS = {
    "system": "system prompt",
    "summary": "summary",
    "kept": "kept turns",
    "since": "turns since",
    "query": "query",
}
CUT: dict[CutKind, str] = {
    "result": "results shortened",
    "image": "images in words",
    "step": "steps left out",
}
LINES_MAX = 3  # of one text, unless all is asked for


@command
@click.argument("target", shell_complete=complete_target)
@click.option("--query", metavar="TEXT", help="What would be asked next.")
@click.option("--before", is_flag=True, help="As it was when the turn was asked.")
@click.option("--budget", type=click.IntRange(1), metavar="TOKENS", help="Cut it to fit.")
@click.option(
    "--last",
    type=click.IntRange(0),
    metavar="N",
    default=LAST_TURNS,
    show_default=True,
    help="Turns at the end that are never cut.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(PROVIDER_FORMATS),
    help="Print the JSON that this provider takes.",
)
@click.option("--full", is_flag=True, help="Whole texts, parameters and results.")
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
    """Show what a model is shown at a turn, with token counts."""
    with run.reading() as ledger:
        shown = ledger.context(ledger.lookup(target), query, budget, last=last, before=before)
    if run.as_json:
        run.out.json(**_as_json(shown, form))
    elif form is not None:
        run.out.plain_json(shown.rendered(form))
    else:
        _page(run.out, shown, full=full)


def _as_json(shown: Context, form: str | None) -> dict[str, object]:
    plain = to_builtins(shown)
    items = [{**to_builtins(item), "tokens": item_tokens(item)} for item in shown.items]
    rendered = {"request": shown.rendered(form)} if form else {}
    return {**plain, "items": items, "total_tokens": shown.total_tokens, **rendered}


def _page(out: Output, shown: Context, *, full: bool) -> None:
    _parts(out, shown)
    if shown.system_prompt:
        _head(out, "system prompt", "", shown.tokens["system"])
        _body(out, shown.system_prompt, full=full)
        out.line()
    for (part, turn_id), items in groupby(shown.items, lambda item: (item.part, item.turn_id)):
        out.line((_words(shown, part), "seam"), "  ", (turn_id or "", "id"))
        for item in items:
            _item(out, item, full=full)
        out.line()


def _words(shown: Context, part: str) -> str:
    """A part's name; without a compaction there is nothing to be since."""
    return "turns" if part == "since" and shown.compaction_turn_id is None else PARTS[part]


def _parts(out: Output, shown: Context) -> None:
    rows: list[list[Span]] = []
    for part in PARTS:
        if shown.tokens.get(part):
            turns = shown.turns.get(part, 0) if part in ("kept", "since") else 0
            rows.append([_words(shown, part), str(turns or ""), f"{shown.tokens[part]:,}"])
    rows.append([("all", "title"), "", (f"{shown.total_tokens:,}", "title")])
    out.table(["PART", "TURNS", "TOKENS"], rows, right=("TURNS", "TOKENS"))
    for said in _notes(shown):
        out.line((said, "dim"))
    out.line()


def _notes(shown: Context) -> list[str]:
    """What was left out and put right, in a line each."""
    notes = []
    if shown.budget is not None:
        found = [each.kind for each in shown.cuts]
        cut = [
            f"{words} in {humanize.count(found.count(kind), 'turn')}"
            for kind, words in CUT.items()
            if kind in found
        ]
        if shown.turns_left_out:
            cut.append(f"{humanize.count(shown.turns_left_out, 'turn')} left out")
        if "summary" in found:
            cut.append("summary left out")
        notes.append(f"budget {shown.budget:,}: {', '.join(cut) or 'nothing cut'}")
    for what in dict.fromkeys(repair.what for repair in shown.repairs):
        number = sum(repair.what == what for repair in shown.repairs)
        notes.append(f"repaired: {what}" + (f" ({number})" if number > 1 else ""))
    return notes


def _head(out: Output, who: str, what: str, tokens: int, style: str = "title") -> None:
    spans: list[Span] = ["  ", (who, style)]
    if what:
        room = out.width - len(who) - 20 if out.is_terminal else 10_000
        spans += [" ", fit(what, max(room, 8))]
    out.line(*spans, (f"  {humanize.tokens(tokens)} tokens", "dim"))


def _item(out: Output, item: Item, *, full: bool) -> None:
    tokens = item_tokens(item)
    if isinstance(item, CallItem):
        _head(out, f"▸ {item.tool_name}", "" if full else item.params_json, tokens, "tool")
        if full:
            _body(out, _indented(item.params_json), full=True)
    elif isinstance(item, ImageItem):
        _head(out, "image", fit(item.reference, 200), tokens)
    elif isinstance(item, ResultItem):
        _head(out, "error" if item.is_error else "result", "", tokens, _result_style(item))
        _body(out, item.text, full=full)
    else:
        _head(out, _speaker(item), "", tokens)
        _body(out, item.text, full=full)


def _result_style(item: ResultItem) -> str:
    return "bad" if item.is_error else "tool"


def _speaker(item: TextItem | ThinkingItem) -> str:
    return item.role if isinstance(item, TextItem) else "thinking"


def _indented(text: str) -> str:
    return msgspec.json.format(text, indent=2)


def _body(out: Output, text: str, *, full: bool) -> None:
    lines = lines_of(text)
    if full or not out.is_terminal:
        out.text(text if full else "\n".join(lines[:LINES_MAX]), "    ")
    else:
        for line in lines[:LINES_MAX]:
            out.line("    ", fit(line, out.width - 4))
    if not full and len(lines) > LINES_MAX:
        out.line("    ", (f"… {len(lines) - LINES_MAX} more lines; --full shows all", "dim"))
