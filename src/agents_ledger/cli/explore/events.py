"""show --events: what was said, and the digest of a day."""

from __future__ import annotations

import click
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation
from agents_ledger.cli.terminal import note
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.events import Event
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import day_of

LAST = 20


def show(run: Invocation, target: str | None, *, last: int | None, day: str | None) -> None:
    """What was said on a thread, or on a day."""
    if (target is None) is (day is None):
        raise click.UsageError("Name a TARGET or a --day, one of the two.")
    if target is not None:
        with run.reading() as ledger:
            events = ledger.events(ledger.lookup(target), last=last or LAST)
        if run.as_json:
            run.out.json(events=to_builtins(events))
            return
        _print(run, events)
        return
    since, until = day_of(str(day), now_ms())
    with run.reading() as ledger:
        digest = ledger.digest(since=since, until=until)
    if run.as_json:
        run.out.json(**to_builtins(digest))
        return
    if not digest.sessions:
        note("Nothing was discussed that day.")
    for part in digest.sessions:
        title = f"  {part.title}" if part.title else ""
        run.out.line((part.label or "in no session", "label"), (title, "title"))
        run.out.line()
        _print(run, part.events)
    if digest.left_out:
        note(("There was more; only the first turns are shown.", "dim"))


def _print(run: Invocation, events: tuple[Event, ...]) -> None:
    now = now_ms()
    for event in events:
        asked = event.direction == "inbound"
        who = "asked" if asked else "answered"
        run.out.line(
            (who, "title" if asked else "tool"),
            (f"  {humanize.age(event.timestamp, now)} · {event.channel} · ", "dim"),
            (event.thread_id, "id"),
        )
        run.out.text(event.content, "  ")
        run.out.line()
