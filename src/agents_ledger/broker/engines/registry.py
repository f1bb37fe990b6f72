"""Which engine runs a turn: the program's own, or one chosen by the name of the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agents_ledger.broker import policy
from agents_ledger.broker.policy import EngineChoice
from agents_ledger.model.agents.engine import ChecksModel, Engine
from agents_ledger.model.errors import Refused
from agents_ledger.model.installation import settings
from agents_ledger.model.installation.extras import needed


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


def requested(name: str | None, model: str | None) -> Engine | None:
    """The engine that a user asked for by its name or by a model; None: the policy decides."""
    if name is None and model is None:
        return None
    return choose(name or _engine_of(model or ""))


def _engine_of(model: str) -> str:
    return "echo" if model == "echo" else "pydantic-ai"


class Engines:
    """The engines of a broker: its own engine, else the engine named by the policy, else one
    chosen by the name of the model."""

    def __init__(self, choice: EngineChoice, file: Path, own: Engine | None = None) -> None:
        self._choice = choice
        self._file = file
        self._own = own
        self._chosen: dict[str, Engine] = {}

    def of(self, model: str | None) -> Engine:
        """The engine that runs a model. Refused or EngineError if none can."""
        engine = self.named(model)
        if isinstance(engine, ChecksModel):
            engine.check(model or "")
        return engine

    def named(self, model: str | None) -> Engine:
        """The engine of a model, which is not checked yet. Refused if no model is configured."""
        engine = self._own or self._by_name(model)
        if model is None and isinstance(engine, ChecksModel):
            raise self._no_model()
        return engine

    def _by_name(self, model: str | None) -> Engine:
        name = self._choice.name
        if name is None:
            if model is None:
                raise self._no_model()
            name = _engine_of(model)
        if name not in self._chosen:
            self._chosen[name] = choose(name)
        return self._chosen[name]

    def _no_model(self) -> Refused:
        return Refused(
            "no model is configured",
            "Name one with --model provider:name, such as anthropic:claude-opus-5, or as `model`"
            f" under [engine] in {self._file}. The model `echo` only repeats messages.",
        )


def summariser(address: str, name: str | None = None, model: str | None = None) -> Summariser:
    """The engine and model for summaries: the ones that a user asked for, else the policy's."""
    choice = policy.load(address).engine
    engines = Engines(choice, settings.policy_file(address), requested(name, model))
    model = model or choice.model
    return Summariser(engines.named(model), model)
