"""Rerun a turn or a whole thread on a fork, with another model or another prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agents_ledger.broker.broker import Broker
from agents_ledger.broker.configuration import Continued, configure
from agents_ledger.broker.events import LAST, Completed, Failed
from agents_ledger.model.agents import config as configs
from agents_ledger.model.agents.config import Directives
from agents_ledger.model.errors import Refused
from agents_ledger.model.sessions import DEFAULT_PERSONA
from agents_ledger.model.turns import Message, Turn


class Rerun(Struct, frozen=True):
    """An original turn, and the outcome of running it again."""

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
) -> AsyncIterator[Rerun]:
    """Send a turn's query again on a fork before it; `whole`: every query of its thread, in order.

    The directives of each turn hold again, unless others are passed. `prompt` replaces the last
    query. The rerun stops at the first turn that fails.
    """
    turns = await _turns_with_query(broker, target, whole=whole)
    if model is not None:
        directives["model"] = model
    await _check(broker, turns[0], _directives(turns[0]) | directives)
    fork = await broker.ledger.fork(turns[0].id, before=True, label=label)
    for turn in turns:
        query: tuple[Message, ...] = tuple(map(_unrecorded, turn.query))
        if prompt is not None and turn is turns[-1]:
            query = (Message("user", prompt, "human"),)
        now: Completed | Failed | None = None
        async for event in broker.send(
            fork.label, query, directives=_directives(turn) | directives
        ):
            if isinstance(event, LAST):
                now = event
        if now is None:
            return
        yield Rerun(fork.label, turn, now)
        if isinstance(now, Failed):
            return


async def _check(broker: Broker, first: Turn, directives: dict[str, Any]) -> None:
    """Raise what would keep the rerun from beginning, before a fork is made."""
    parent_id = first.parent_turn_id
    continued = Continued(
        (await broker.ledger.thread(first.id, last=0)).persona_id or DEFAULT_PERSONA,
        parent_id,
        await broker.ledger.effective_config(parent_id) if parent_id else {},
    )
    configure(broker.policy, broker.engines, continued, directives)


def _directives(turn: Turn) -> dict[str, Any]:
    settings = configs.decode(turn.effective_config_json)
    directives = {name: s.value for name, s in settings.items() if s.by == "directive"}
    return {name: directives[name] for name in Directives.__struct_fields__ if name in directives}


async def _turns_with_query(broker: Broker, target: str, *, whole: bool) -> list[Turn]:
    last = None if whole else 1
    thread = await broker.ledger.thread(target, last=last)
    turns = [turn for turn in thread.turns if turn.query and (whole or turn.compaction is None)]
    if not turns:
        raise Refused(f"{target!r} has no query to run again", "Choose a turn with a query.")
    return turns


def _unrecorded(message: Message) -> Message:
    """The message without the values that recording adds."""
    return replace(
        message,
        id="",
        turn_id="",
        sequence=-1,
        created_at=0,
        context_json=None,
        metadata_json=None,
    )
