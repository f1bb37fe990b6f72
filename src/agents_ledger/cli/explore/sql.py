"""sql: any question, in SQL."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import Span, note
from agents_ledger.model.errors import Refused
from agents_ledger.model.text import humanize


@command
@click.argument("query")
@click.option("--csv", "as_csv", is_flag=True, help="Answer in comma-separated values.")
def sql(run: Invocation, *, query: str, as_csv: bool) -> None:
    """Run one SQL statement that only reads; - takes it from standard input."""
    if as_csv and run.as_json:
        raise click.UsageError("--csv and --json exclude each other")
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise Refused("the query is empty", "Give one statement that only reads.")
    with run.reading() as ledger:
        columns, rows = ledger.query(text)
    if run.as_json:
        run.out.json(columns=columns, rows=[[_plain(value) for value in row] for row in rows])
    elif as_csv:
        run.out.csv(columns, ([_plain(value) for value in row] for row in rows))
    elif columns:
        shown = [[_cell(value) for value in row] for row in rows]
        if run.out.has_room_for(columns, shown):
            run.out.table(columns, shown, right=_numeric(columns, rows))
        else:
            run.out.records(columns, shown)
        note((humanize.count(len(rows), "row"), "dim"))


def _plain(value: Any) -> Any:
    """A value that JSON knows: bytes as hex, what a server adds as its text."""
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float, list, dict)):
        return value
    return str(value)


def _cell(value: Any) -> Span:
    return ("NULL", "dim") if value is None else str(_plain(value))


def _numeric(columns: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """The columns that hold numbers only; they stand to the right."""
    return [
        name
        for at, name in enumerate(columns)
        if all(row[at] is None or isinstance(row[at], (int, float)) for row in rows)
    ]
