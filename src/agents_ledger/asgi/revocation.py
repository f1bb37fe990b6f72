"""Event streams end when the token that opened them is revoked or expires.

Tokens are checked when a request arrives, but a stream outlives that check. One task looks up the
tokens of all open streams together: a thousand streams cost one query a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

CHECK_S = 1.0
EVENT_STREAM = b"text/event-stream"

ASGIMessage = MutableMapping[str, Any]
ASGIReceive = Callable[[], Awaitable[ASGIMessage]]
ASGISend = Callable[[ASGIMessage], Awaitable[None]]
_log = logging.getLogger("agents_ledger.web")
ValidIds = Callable[[Collection[str]], Collection[str]]
"""Selects the token ids that are neither revoked nor expired."""
IsAlive = Callable[[], bool]


class StreamLease:
    """An open stream and the token it depends on."""

    def __init__(self, token_id: str, is_alive: IsAlive) -> None:
        self.token_id = token_id
        self.is_alive = is_alive
        self.ended = asyncio.Event()


class StreamWatch:
    """Ends the leases of tokens that are no longer valid."""

    def __init__(self, valid_ids: ValidIds, check_s: float = CHECK_S) -> None:
        self._valid_ids = valid_ids
        self._check_s = check_s
        self._leases: set[StreamLease] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    def add(self, lease: StreamLease) -> None:
        self._leases.add(lease)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def remove(self, lease: StreamLease) -> None:
        self._leases.discard(lease)
        if not self._leases and self._task is not None:
            # The last stream is gone: an idle server queries nothing.
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._check_s)
            ids = {lease.token_id for lease in self._leases}
            valid = await self._valid(ids)
            for lease in self._leases:
                # A stream that was opened during the query was checked a moment ago.
                if (lease.token_id in ids and lease.token_id not in valid) or not lease.is_alive():
                    lease.ended.set()

    async def _valid(self, ids: Collection[str]) -> Collection[str]:
        """The valid ids; all of them while the store cannot be reached."""
        try:
            valid = await asyncio.to_thread(self._valid_ids, ids)
        except Exception:
            # The task must survive any failure: streams end once the store works again.
            if not self._is_failing:
                _log.warning("cannot check the tokens of open streams", exc_info=True)
            self._is_failing = True
            return ids
        self._is_failing = False
        return valid


class RevocableExchange:
    """The `receive` and `send` of a request whose event stream ends with its token.

    The application sees a client that disconnects, which every framework handles; the client sees
    a complete response.
    """

    def __init__(
        self, watch: StreamWatch, lease: StreamLease, receive: ASGIReceive, send: ASGISend
    ) -> None:
        self._watch = watch
        self._lease = lease
        self._receive = receive
        self._send = send
        self._body_received = False
        self._streaming = False
        self._completed = False

    async def receive(self) -> ASGIMessage:
        """The next message. After the body, only a disconnect can follow."""
        if not self._body_received:
            message = await self._receive()
            self._body_received = not message.get("more_body", False)
            return message
        disconnect = asyncio.ensure_future(self._receive())
        ended = asyncio.ensure_future(self._lease.ended.wait())
        try:
            await asyncio.wait({disconnect, ended}, return_when=asyncio.FIRST_COMPLETED)
            return disconnect.result() if disconnect.done() else {"type": "http.disconnect"}
        finally:
            disconnect.cancel()
            ended.cancel()

    async def send(self, message: ASGIMessage) -> None:
        """Send a message; once the token has ended, only the end of the stream."""
        if self._lease.ended.is_set() and self._streaming:
            await self._complete()
            return
        if message["type"] == "http.response.start" and _is_event_stream(message):
            self._streaming = True
            self._watch.add(self._lease)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._completed = True
        await self._send(message)

    async def close(self) -> None:
        self._watch.remove(self._lease)
        if self._lease.ended.is_set() and self._streaming:
            await self._complete()

    async def _complete(self) -> None:
        if not self._completed:
            self._completed = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _is_event_stream(start: ASGIMessage) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(EVENT_STREAM)
        for name, value in start.get("headers", ())
    )
