"""sql: run a read-only SQL query."""

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
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def sql(run: Invocation, *, query: str, as_csv: bool) -> None:
    """Run one read-only SQL statement; - reads it from standard input."""
    if as_csv and run.as_json:
        raise click.UsageError("--csv and --json cannot be combined")
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise Refused("the query is empty", "Give one read-only statement.")
    with run.reading() as ledger:
        columns, rows = ledger.query(text)
    if run.as_json:
        run.out.json(columns=columns, rows=[[_plain(value) for value in row] for row in rows])
    elif as_csv:
        run.out.csv(columns, ([_plain(value) for value in row] for row in rows))
    elif columns:
        cells = [[_cell(value) for value in row] for row in rows]
        if run.out.has_room_for(columns, cells):
            run.out.table(columns, cells, right=_numeric(columns, rows))
        else:
            run.out.records(columns, cells)
        note((humanize.count(len(rows), "row"), "dim"))


def _plain(value: Any) -> Any:
    """A JSON value: bytes as hex, types that only PostgreSQL has as text."""
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
    """The columns that contain only numbers; they are right-aligned."""
    return [
        name
        for index, name in enumerate(columns)
        if all(row[index] is None or isinstance(row[index], (int, float)) for row in rows)
    ]
