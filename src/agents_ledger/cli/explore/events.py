"""show --events: the messages of a thread or of a day, without tools."""

from __future__ import annotations

import click
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation, latest_session
from agents_ledger.cli.terminal import note
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.events import Event
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import day_of

EVENTS = 20


def show_events(run: Invocation, target: str | None, *, last: int | None, day: int | None) -> None:
    if target is not None and day is not None:
        raise click.UsageError("TARGET and --day cannot be combined.")
    if day is None:
        with run.reading() as ledger:
            target = ledger.lookup(target) if target is not None else latest_session(ledger)
            events = ledger.events(target, last=last or EVENTS)
        if run.as_json:
            run.out.json(events=to_builtins(events))
            return
        with run.out.paged():
            _print(run, events)
        return
    _show_day(run, day)


def _show_day(run: Invocation, day: int) -> None:
    since, until = day_of(day)
    with run.reading() as ledger:
        digest = ledger.digest(since=since, until=until)
    if run.as_json:
        run.out.json(**to_builtins(digest))
        return
    if not digest.sessions:
        note("No messages on that day.")
    with run.out.paged():
        for part in digest.sessions:
            title = f"  {part.title}" if part.title else ""
            run.out.line((part.label or "no session", "label"), (title, "title"))
            run.out.line()
            _print(run, part.events)
    if digest.left_out:
        note(("Only the first turns of the day are shown.", "dim"))


def _print(run: Invocation, events: tuple[Event, ...]) -> None:
    now = now_ms()
    for event in events:
        inbound = event.direction == "inbound"
        run.out.line(
            ("asked", "title") if inbound else ("answered", "tool"),
            (f"  {humanize.age(event.timestamp, now)} · {event.channel} · ", "dim"),
            (event.thread_id, "id"),
        )
        run.out.text(event.content, "  ")
        run.out.line()
