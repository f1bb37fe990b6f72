"""queue: messages that wait for an answer or are being answered."""

from __future__ import annotations

import click

from agents_ledger.cli.command import Invocation, command, complete_target, limit_option
from agents_ledger.cli.terminal import Span, note
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.sessions.queue import Queue
from agents_ledger.model.ids import now_ms
from agents_ledger.model.queue import QueueEntry
from agents_ledger.model.text import humanize

ENTRIES = 100


@command
@click.argument("session", required=False, shell_complete=complete_target)
@click.option(
    "--all", "everything", is_flag=True, help="Include answered, failed and dropped messages."
)
@click.option("--cancel", metavar="ID", help="Cancel an entry; stop its turn if it is running.")
@click.option("--retry", metavar="ID", help="Queue a failed, cancelled or dropped entry again.")
@limit_option(ENTRIES, "entries")
def queue(
    run: Invocation,
    *,
    session: str | None,
    everything: bool,
    cancel: str | None,
    retry: str | None,
    limit: int,
) -> None:
    """List queued messages, or cancel or retry one."""
    if cancel or retry:
        with run.writing() as ledger:
            messages = Queue(ledger)
            changed = messages.cancel(cancel) if cancel else messages.retry(retry or "")
            entries: tuple[QueueEntry, ...] = (changed,)
            prompts = _prompts(ledger, entries)
    else:
        with run.reading() as ledger:
            session = ledger.lookup(session) if session is not None else None
            entries = Queue(ledger).entries(session, everything=everything, limit=limit + 1)
            prompts = _prompts(ledger, entries)
    more = len(entries) > limit
    entries = entries[:limit]
    if run.as_json:
        run.out.json(entries=entries, more=more)
        return
    if not entries:
        note("The queue is empty.")
        return
    now = now_ms()
    heads = ["SESSION", "ENTRY", "MODE", "STATUS", "AGE", "MESSAGE"]
    run.out.table(heads, [_row(entry, prompts, now) for entry in entries])
    if more:
        note(("There are more entries (--limit).", "dim"))


def _prompts(ledger: Ledger, entries: tuple[QueueEntry, ...]) -> dict[str, str]:
    """The start of the prompt by turn: an answered entry has none of its own."""
    turns = {entry.turn_id for entry in entries if entry.ask is None and entry.turn_id}
    return {line.turn.id: line.text or "" for line in ledger.headlines(turns)}


def _row(entry: QueueEntry, prompts: dict[str, str], now: int) -> list[Span]:
    texts = [part.content or "" for part in entry.ask.messages] if entry.ask else []
    message = " · ".join(texts) or prompts.get(entry.turn_id or "", "")
    status = "stopping" if entry.stop_at and entry.status == "claimed" else entry.status
    return [
        (entry.session_label, "label"),
        (entry.id, "id"),
        entry.mode,
        (status, "bad" if entry.status in ("failed", "dropped") else ""),
        (humanize.age(entry.enqueued_at, now, ago=""), "dim"),
        f"{message} ({entry.error})" if entry.error else message,
    ]
