"""queue: what waits to be asked, and what is being answered."""

from __future__ import annotations

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import Span, note
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.sessions.queue import Queue
from agents_ledger.model.ids import now_ms
from agents_ledger.model.queue import QueueEntry
from agents_ledger.model.text import humanize

SHOWN = 100


@command
@click.argument("session", required=False, shell_complete=complete_target)
@click.option("--all", "everything", is_flag=True, help="Those answered, failed and dropped too.")
@click.option("--cancel", metavar="ID", help="Take an entry out; stop its turn if it runs.")
@click.option("--retry", metavar="ID", help="Let a failed, cancelled or dropped entry wait again.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    default=SHOWN,
    show_default=True,
    help="At most so many.",
)
def queue(
    run: Invocation,
    *,
    session: str | None,
    everything: bool,
    cancel: str | None,
    retry: str | None,
    limit: int,
) -> None:
    """List what waits to be asked, or cancel an entry."""
    if cancel or retry:
        with run.writing() as ledger:
            lines = Queue(ledger)
            changed = lines.cancel(cancel) if cancel else lines.retry(retry or "")
            entries: tuple[QueueEntry, ...] = (changed,)
            asked = _asked(ledger, entries)
    else:
        with run.reading() as ledger:
            session = ledger.lookup(session) if session is not None else None
            entries = Queue(ledger).entries(session, everything=everything, limit=limit + 1)
            asked = _asked(ledger, entries)
    more = len(entries) > limit
    entries = entries[:limit]
    if run.as_json:
        run.out.json(entries=entries, more=more)
        return
    if not entries:
        note("Nothing waits.")
        return
    now = now_ms()
    heads = ["SESSION", "ENTRY", "MODE", "STATUS", "AGE", "MESSAGE"]
    run.out.table(heads, [_row(entry, asked, now) for entry in entries])
    if more:
        note(("There are more: --limit N shows them.", "dim"))


def _asked(ledger: Ledger, entries: tuple[QueueEntry, ...]) -> dict[str, str]:
    """How the prompt begins, by turn: of what was answered, the turn has it."""
    turns = {entry.turn_id for entry in entries if entry.ask is None and entry.turn_id}
    return {line.turn.id: line.text or "" for line in ledger.headlines(turns)}


def _row(entry: QueueEntry, asked: dict[str, str], now: int) -> list[Span]:
    texts = [message.content or "" for message in entry.ask.messages] if entry.ask else []
    said = " · ".join(texts) or asked.get(entry.turn_id or "", "")
    status = "stopping" if entry.stop_at and entry.status == "claimed" else entry.status
    return [
        (entry.session_label, "label"),
        (entry.id, "id"),
        entry.mode,
        (status, "bad" if entry.status in ("failed", "dropped") else ""),
        (humanize.age(entry.enqueued_at, now, ago=""), "dim"),
        f"{said} ({entry.error})" if entry.error else said,
    ]
