"""What every store in the comparison can do. Runs in the peers' environment, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Call(NamedTuple):
    """One tool call with its result, both as JSON text."""

    name: str
    params: str
    result: str


class Exchange(NamedTuple):
    """A question, three tool calls with their results, an answer."""

    query: str
    calls: tuple[Call, ...]
    response: str

    @classmethod
    def of(cls, plain: Any) -> Exchange:
        query, calls, response = plain
        return cls(query, tuple(Call(*call) for call in calls), response)


class Store(Protocol):
    """A place where conversations are kept, used as its documents say."""

    def __init__(self, folder: Path, address: str) -> None: ...

    async def append(self, session: str, exchange: Exchange) -> None:
        """Keep one exchange durably."""

    async def seed(self, session: str, exchanges: list[Exchange]) -> None:
        """Keep many at once, where that is possible; else NotImplementedError."""

    async def last(self, session: str, count: int) -> int:
        """Read the last exchanges; how many pieces came."""

    async def whole(self, session: str) -> int:
        """Read the whole history; how many pieces came."""

    async def context(self, session: str) -> int:
        """Read the whole history as a model is shown it; how many messages came."""

    async def fork(self, session: str) -> None:
        """Go on from the last exchange on another branch; else NotImplementedError."""

    async def close(self) -> None: ...
