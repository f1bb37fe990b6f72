"""Engines by name: a dict is enough."""

from __future__ import annotations

from collections.abc import Callable

from agents_ledger.model.engine import Engine
from agents_ledger.model.errors import Refused


def _echo() -> Engine:
    from agents_ledger.broker.engines.echo import EchoEngine

    return EchoEngine()


def _pydantic_ai() -> Engine:
    from agents_ledger.broker.engines.providers import ProviderEngine

    return ProviderEngine()


ENGINES: dict[str, Callable[[], Engine]] = {"echo": _echo, "pydantic-ai": _pydantic_ai}


def choose(name: str) -> Engine:
    """The engine of that name; what it needs is imported now."""
    if name not in ENGINES:
        raise Refused(f"there is no engine {name!r}", f"Choose one of {', '.join(ENGINES)}.")
    try:
        return ENGINES[name]()
    except ModuleNotFoundError as error:
        raise Refused(
            f"engine {name!r} needs {error.name}, which is not installed",
            "Install it with: pip install 'agents-ledger[engine]'",
        ) from error
