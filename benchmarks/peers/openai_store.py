"""openai-agents: sessions as its Runner uses them, an add_items() for each step of an exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

from benchmarks.peers.openai_items import items, steps
from benchmarks.peers.port import Exchange


class Plain:
    """SQLiteSession, its default."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address
        self._sessions: dict[str, Any] = {}
        self._count = 0

    def _open(self, session: str) -> Any:
        return SQLiteSession(session, self._folder / "sessions.db")

    def _session(self, session: str) -> Any:
        if session not in self._sessions:
            self._sessions[session] = self._open(session)
        return self._sessions[session]

    async def append(self, session: str, exchange: Exchange) -> None:
        self._count += 1
        for step in steps(exchange, self._count):
            await self._session(session).add_items(step)

    async def seed(self, session: str, exchanges: list[Exchange]) -> None:
        """A hundred in one call."""
        for start in range(0, len(exchanges), 100):
            many: list[Any] = []
            for exchange in exchanges[start : start + 100]:
                self._count += 1
                many += items(exchange, self._count)
            await self._session(session).add_items(many)

    async def last(self, session: str, count: int) -> int:
        return len(await self._session(session).get_items(limit=count * 8))

    async def whole(self, session: str) -> int:
        return len(await self._session(session).get_items())

    async def context(self, session: str) -> int:
        return await self.whole(session)

    async def fork(self, session: str) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        for session in self._sessions.values():
            if hasattr(session, "close"):
                session.close()


class AtOnce(Plain):
    """SQLiteSession, given a whole exchange when it is over."""

    async def append(self, session: str, exchange: Exchange) -> None:
        self._count += 1
        await self._session(session).add_items(items(exchange, self._count))


class Advanced(Plain):
    """AdvancedSQLiteSession: with branches and usage."""

    def _open(self, session: str) -> Any:
        return AdvancedSQLiteSession(
            session_id=session, db_path=self._folder / "sessions.db", create_tables=True
        )

    async def fork(self, session: str) -> None:
        opened = self._session(session)
        turns = await opened.get_conversation_turns()
        await opened.create_branch_from_turn(turns[-1]["turn"])
        await opened.switch_to_branch("main")


class Server(Plain):
    """SQLAlchemySession on PostgreSQL."""

    def _open(self, session: str) -> Any:
        from agents.extensions.memory import SQLAlchemySession  # SQLAlchemy is not everywhere

        return SQLAlchemySession.from_url(session, url=self._address, create_tables=True)


class ServerAtOnce(Server, AtOnce):
    """SQLAlchemySession, given a whole exchange when it is over."""
