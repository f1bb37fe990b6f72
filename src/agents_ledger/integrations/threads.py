"""Shared by the stores of other frameworks: their ledger, checked, and its calls in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused

P = ParamSpec("P")
T = TypeVar("T")


def checked(ledger: Ledger) -> Ledger:
    if not isinstance(ledger, Ledger):
        raise Refused(f"a store needs an open ledger, not {ledger!r}", "Pass Ledger.open(address).")
    return ledger


async def in_thread(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function in a thread. If cancelled, wait for the outcome first, so that nothing
    happens after the cancellation."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *args, **options))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()
        raise
