"""Asking again: a turn, or a whole thread, on a fork, of another model or with another prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agents_ledger.broker.broker import Broker
from agents_ledger.broker.events import LAST, Completed, Failed
from agents_ledger.model.errors import Refused
from agents_ledger.model.turns import Message, Turn


class Again(Struct, frozen=True):
    """A turn, and what came of asking it again."""

    session_label: str
    before: Turn
    now: Completed | Failed


async def rerun(
    broker: Broker,
    target: str,
    *,
    whole: bool = False,
    label: str | None = None,
    model: str | None = None,
    prompt: str | None = None,
    **directives: Any,
) -> AsyncIterator[Again]:
    """Ask a turn's query again on a fork before it; `whole`: every query of its thread, in order.

    `prompt` stands in for the last query. It ends early when a turn fails.
    """
    turns = await _asked(broker, target, whole=whole)
    fork = await broker.ledger.fork(turns[0].id, before=True, label=label)
    if model is not None:
        directives["model"] = model
    for turn in turns:
        query: tuple[Message, ...] = tuple(map(_plain, turn.query))
        if prompt is not None and turn is turns[-1]:
            query = (Message("user", prompt, "human"),)
        now: Completed | Failed | None = None
        async for event in broker.send(fork.label, query, directives=directives):
            if isinstance(event, LAST):
                now = event
        if now is None:
            return
        yield Again(fork.label, turn, now)
        if isinstance(now, Failed):
            return


async def _asked(broker: Broker, target: str, *, whole: bool) -> list[Turn]:
    """The turns to be asked again. A compaction asks nothing."""
    if whole:
        turns = [turn for turn in (await broker.ledger.thread(target)).turns if turn.query]
    else:
        turns = [
            turn
            for turn in (await broker.ledger.thread(target, last=1)).turns
            if turn.compaction is None
        ]
    if not turns or not turns[-1].query:
        raise Refused(
            f"{target!r} asks nothing that could be asked again", "Name a turn that does."
        )
    return turns


def _plain(message: Message) -> Message:
    """A message without what recording it added."""
    return replace(
        message,
        id="",
        turn_id="",
        sequence=-1,
        created_at=0,
        context_json=None,
        metadata_json=None,
    )
