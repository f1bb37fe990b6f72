"""Engines by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agents_ledger.broker import policy
from agents_ledger.model.agents.engine import Engine
from agents_ledger.model.errors import Refused
from agents_ledger.model.extras import needed


class Summariser(NamedTuple):
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
    """The engine of a name; its packages are imported now."""
    if name not in ENGINES:
        raise Refused(f"no engine {name!r}", f"Choose one of {', '.join(ENGINES)}.")
    with needed("engine", f"engine {name!r}"):
        return ENGINES[name]()


def summariser(address: str, name: str | None = None, model: str | None = None) -> Summariser:
    """The engine and model for summaries, by default those of the policy. The echo engine, whose
    output is not a summary, must be named explicitly."""
    default = policy.load(address).engine
    if name is None and default.name == "echo":
        raise Refused(
            "no engine is configured for summaries",
            "Set an engine in the policy, or use the strategy sliding_window or selective.",
        )
    return Summariser(choose(name or default.name), model or default.model)
