"""google-adk: one event per piece, each appended and committed by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.adk.events import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.peers.port import Exchange

NAMES = {"app_name": "bench", "user_id": "user"}


def events(exchange: Exchange, number: int) -> list[Event]:
    """The pieces of an exchange."""

    def event(author: str, role: str, **part: Any) -> Event:
        content = types.Content(role=role, parts=[types.Part(**part)])
        return Event(author=author, content=content, invocation_id=f"turn-{number}")

    found = [event("user", "user", text=exchange.query)]
    for index, call in enumerate(exchange.calls):
        called = {"id": f"call_{number}_{index}", "name": call.name}
        asked = types.FunctionCall(**called, args=json.loads(call.params))
        got = types.FunctionResponse(**called, response=json.loads(call.result))
        found.append(event("agent", "model", function_call=asked))
        found.append(event("agent", "user", function_response=got))
    return [*found, event("agent", "model", text=exchange.response)]


class File:
    """SqliteSessionService."""

    def __init__(self, folder: Path, address: str) -> None:
        self._service = self._open(folder / "sessions.db")
        self._sessions: dict[str, Any] = {}
        self._count = 0

    def _open(self, path: Path) -> Any:
        return SqliteSessionService(str(path))

    async def append(self, session: str, exchange: Exchange) -> None:
        self._count += 1
        if session not in self._sessions:
            self._sessions[session] = await self._service.create_session(
                **NAMES, session_id=session
            )
        for event in events(exchange, self._count):
            await self._service.append_event(self._sessions[session], event)

    async def seed(self, session: str, exchanges: list[Exchange]) -> None:
        raise NotImplementedError

    async def _read(self, session: str, config: GetSessionConfig | None) -> int:
        found = await self._service.get_session(**NAMES, session_id=session, config=config)
        return len(found.events)

    async def last(self, session: str, count: int) -> int:
        return await self._read(session, GetSessionConfig(num_recent_events=count * 8))

    async def whole(self, session: str) -> int:
        return await self._read(session, None)

    async def fork(self, session: str) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


class Database(File):
    """DatabaseSessionService on SQLite."""

    def _open(self, path: Path) -> Any:
        return DatabaseSessionService(f"sqlite+aiosqlite:///{path}")
