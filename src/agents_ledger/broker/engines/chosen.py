"""Engines by name: a dict is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agents_ledger.broker import policy
from agents_ledger.model.agents.engine import Engine
from agents_ledger.model.errors import Refused


class Summariser(NamedTuple):
    """What summarises."""

    engine: Engine
    model: str | None


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


def summariser(address: str, name: str | None = None, model: str | None = None) -> Summariser:
    """The engine that was named, else that of the policy beside the ledger. The echo engine has to
    be asked for: what it says is no summary."""
    said = policy.load(address).engine
    if name is None and said.name == "echo":
        raise Refused(
            "no engine is configured that could summarise",
            "Name one in the policy, or choose a strategy that needs none: sliding_window,"
            " selective.",
        )
    return Summariser(choose(name or said.name), model or said.model)
