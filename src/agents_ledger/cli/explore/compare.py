"""compare: two branches since their common ancestor."""

from __future__ import annotations

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.explore.usage import cost
from agents_ledger.cli.terminal import Output, Span, fit
from agents_ledger.model.files.file_contents import difference
from agents_ledger.model.reports.comparison import Branch, Comparison, WrittenFile
from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.text import humanize

TURNS = 10
TEXT_MAX = 400
FILES_MAX = 20


@command
@click.argument("a", shell_complete=complete_target)
@click.argument("b", shell_complete=complete_target)
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    default=TURNS,
    show_default=True,
    help="Number of final turns to show per branch.",
)
@click.option("--diff", is_flag=True, help="Show how the files differ, from A to B.")
def compare(run: Invocation, *, a: str, b: str, limit: int, diff: bool) -> None:
    """Compare two sessions or turns since their common ancestor."""
    with run.reading() as ledger:
        a, b = ledger.lookup(a), ledger.lookup(b)
        comparison = ledger.compare(a, b, limit=limit)
        written = ledger.compare_files(a, b) if diff else ()
    if run.as_json:
        run.out.json(comparison=comparison, **({"written": written} if diff else {}))
        return
    out = run.out
    if not (comparison.a.turn_count or comparison.b.turn_count) and comparison.ancestor:
        out.line(("Both are at the same turn.", "title"))
        out.line(*_headline(out, comparison.ancestor, 0))
        return
    if comparison.ancestor is None:
        out.line(("No common turn.", "title"))
    else:
        out.line(("common ", "dim"), *_headline(out, comparison.ancestor, 7))
    for name, branch in ((a, comparison.a), (b, comparison.b)):
        out.line()
        _branch(out, name, branch)
    out.line()
    _files(out, comparison)
    for file in written:
        out.line()
        _written(out, file)


def _written(out: Output, file: WrittenFile) -> None:
    by = "both" if len(file.by) > 1 else file.by[0].upper()
    out.line((file.file_path, "label"), "  ", (f"written by {by}", "dim"))
    if file.diff is not None:
        out.text(file.diff or "identical", "  ")
        return
    for name, changes in (("A", file.a), ("B", file.b)):
        for change in changes:
            out.line("  ", (f"{name} changed", "dim"))
            out.text(difference(change.old, change.new), "  ")


def _headline(out: Output, headline: Headline, used: int) -> list[Span]:
    room = max(16, out.width - used - len(headline.short_id) - 1)
    text = headline.text or ("compaction" if headline.turn.compaction else "")
    return [(headline.short_id, "id"), " ", fit(text, room)]


def _branch(out: Output, name: str, branch: Branch) -> None:
    spent = branch.spent
    facts = [
        humanize.count(branch.turn_count, "turn"),
        f"{spent.failed} failed" if spent.failed else "",
        f"{humanize.tokens(spent.total_tokens)} tokens",
        cost(spent),
        ", ".join(dict.fromkeys(usage.model for usage in branch.models if usage.model)),
    ]
    out.wrapped("", (name, "label"), "  ", (" · ".join(filter(None, facts)), "dim"))
    if not branch.turn_count:
        out.line("  ", ("no turns since: the other branch continues from here", "dim"))
        return
    if branch.turn_count > len(branch.turns):
        more = humanize.count(branch.turn_count - len(branch.turns), "turn")
        out.line("  ", (f"┆ {more}", "dim"))
    for headline in branch.turns:
        out.line("  ", *_headline(out, headline, 2))
    if branch.tools:
        used = ", ".join(
            f"{tool.tool_name} {tool.calls:,}" + (f" ({tool.failed} failed)" if tool.failed else "")
            for tool in branch.tools
        )
        out.line(
            "  ", ("tools  ", "dim"), fit(used, out.width - 9 if out.is_terminal else TEXT_MAX)
        )
    if branch.answer:
        out.line("  ", ("answer", "dim"))
        out.text(fit(branch.answer, TEXT_MAX), "    ")


def _files(out: Output, comparison: Comparison) -> None:
    rows: list[list[Span]] = []
    branches = comparison.a, comparison.b
    a, b = ({file.file_path: file.kinds for file in branch.files} for branch in branches)
    for path in sorted({**a, **b}):
        where = "both" if path in a and path in b else "A" if path in a else "B"
        kinds = dict.fromkeys((*a.get(path, ()), *b.get(path, ())))
        rows.append([where, (", ".join(kinds), "dim"), path])
    if not rows:
        out.line(("No files were read or written.", "dim"))
        return
    out.table(["IN", "FILES", "PATH"], rows[:FILES_MAX])
    if len(rows) > FILES_MAX:
        out.line(
            (f"… {humanize.count(len(rows) - FILES_MAX, 'file')} more (--json lists all)", "dim")
        )
