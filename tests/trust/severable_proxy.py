"""TCP proxies that can be cut: `python -m tests.trust.severable_proxy 7001=7002 7003=7004`.

Each pair is a port to listen at and the port to forward to, all on the loopback interface. A line
`cut 7001` on standard input stops the forwarding as an unplugged cable does: connections stay open
and nothing arrives. `heal 7001` ends it: what was open is closed, as it would have timed out.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable

CHUNK = 1 << 16


class SeverableProxy:
    """One port, forwarded to another one while it is not cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._connected = asyncio.Event()
        self._connected.set()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        self._connected.clear()

    def heal(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._connected.set()

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", port)
        await server.serve_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._connected.wait()
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(target_writer)
            try:
                # Both ends close together, as a proxy of connections does.
                await asyncio.wait(
                    {
                        asyncio.create_task(self._copy(reader, target_writer)),
                        asyncio.create_task(self._copy(target_reader, writer)),
                    },
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                self._writers.discard(target_writer)
                target_writer.close()
        except OSError:
            pass  # nobody listens there: the connection ends
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._connected.wait()
                writer.write(data)
                await writer.drain()
        # An end that arrives while the port is cut does not get through either.
        await self._connected.wait()


async def main(pairs: Iterable[str]) -> None:
    proxies: dict[int, SeverableProxy] = {}
    tasks = []
    for pair in pairs:
        port, _, target = pair.partition("=")
        proxies[int(port)] = SeverableProxy(int(target))
        tasks.append(asyncio.create_task(proxies[int(port)].serve(int(port))))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, port = line.split()
        proxy = proxies[int(port)]
        proxy.cut() if verb == "cut" else proxy.heal()
        print(line.strip(), flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(main(sys.argv[1:]))
