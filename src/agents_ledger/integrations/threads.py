"""Calls the ledger from asyncio in a thread; a cancelled caller still waits for the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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
