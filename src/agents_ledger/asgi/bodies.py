"""Bodies of requests that are read before the application sees them."""

from __future__ import annotations

from agents_ledger.asgi.revocation import ASGIMessage, ASGIReceive


async def read_body(receive: ASGIReceive, most: int) -> tuple[bytes, bool]:
    """The body of a request, and whether that is all of it.

    Reading ends with the chunk that exceeds `most` bytes: a last chunk may exceed them.
    """
    body = bytearray()
    more = True
    # Stops reading at the limit: a Content-Length is not trusted, and chunked bodies have none.
    while more and len(body) <= most:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body), not more


def replay(body: bytes, receive: ASGIReceive) -> ASGIReceive:
    """A `receive` that returns a body that was read already, then what follows it."""
    sent = False

    async def receive_again() -> ASGIMessage:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
