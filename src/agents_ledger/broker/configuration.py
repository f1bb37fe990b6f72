"""The configuration of a turn: what the policy, the parent turn and the sender say, in that order,
within what the permissions allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from agents_ledger.broker.engines.registry import Engines
from agents_ledger.broker.policy import Policy
from agents_ledger.ledger.aio.async_ledger import AsyncLedger
from agents_ledger.ledger.turns.recording import check_role
from agents_ledger.model.agents import config as configs
from agents_ledger.model.agents import permissions
from agents_ledger.model.agents.config import Config, EffectiveConfig
from agents_ledger.model.agents.engine import Engine, ModelConfig
from agents_ledger.model.agents.permissions import Layer
from agents_ledger.model.errors import Refused
from agents_ledger.model.sessions import DEFAULT_PERSONA, Session
from agents_ledger.model.turns import TurnRole


class Continued(Struct, frozen=True):
    """What a turn continues."""

    persona_id: str = DEFAULT_PERSONA
    turn_id: str | None = None
    settings: EffectiveConfig = {}  # of that turn
    is_worker: bool = False
    layers: tuple[Layer, ...] = ()  # of a worker: the permissions of the turn that spawned it


class Configured(NamedTuple):
    role: TurnRole
    toolset: str | None
    layers: tuple[Layer, ...]
    config: Config
    model: ModelConfig
    engine: Engine


def configure(
    policy: Policy,
    engines: Engines,
    continued: Continued,
    directives: Mapping[str, Any],
    role: TurnRole | None = None,
) -> Configured:
    """The configuration of the next turn. Refused or EngineError if it could not run."""
    configs.check_directives(directives)
    if role is not None:
        check_role(role)
    persona = policy.persona(continued.persona_id)
    role = role or ("worker" if continued.is_worker else persona.role)
    defaults = _defaults(policy, continued.persona_id, role)
    config = Config(directives, defaults)
    settings = configs.resolve(config, continued.settings, continued.turn_id)
    # A worker may never do more than the turn that spawned it, whatever the policy allows its
    # persona.
    layers = (policy.layer(continued.persona_id), *continued.layers)
    constraints = _constraints(settings, defaults, layers)
    if persona.permissions.sandbox:
        constraints["sandbox"] = persona.permissions.sandbox
    values = {name: setting.value for name, setting in settings.items()} | constraints
    model = ModelConfig(*(values.get(name) for name in ModelConfig.__struct_fields__))
    if model.model is not None:
        _check_model(model.model, layers)
    engine = engines.of(model.model)
    if model.model is None:
        _check_model(engine.name, layers)
    toolset = values.get("toolset")
    if toolset is not None:
        policy.toolset(toolset)
    config = Config(directives, {"engine": engine.name, **defaults}, constraints)
    return Configured(role, toolset, layers, config, model, engine)


def _defaults(policy: Policy, persona_id: str, role: TurnRole) -> dict[str, Any]:
    model = policy.model_defaults(persona_id)
    own = policy.persona(persona_id).toolset
    toolset = (policy.workers.toolset or own) if role == "worker" else own
    values = {name: getattr(model, name) for name in ModelConfig.__struct_fields__}
    defaults = {"toolset": toolset, **values}
    return {name: value for name, value in defaults.items() if value is not None}


def _constraints(
    settings: EffectiveConfig, defaults: Mapping[str, Any], layers: Sequence[Layer]
) -> dict[str, Any]:
    """What the permissions decide instead: a smaller `max_tokens`, and the default for a model
    that this thread ran with before, under other permissions."""
    constraints: dict[str, Any] = {}
    model = settings.get("model")
    if model and model.by == "inherited" and permissions.model_stopped_by(model.value, layers):
        constraints["model"] = defaults.get("model", model.value)
    limits = [layer.max_tokens for layer in layers if layer.max_tokens is not None]
    if limits:
        wanted = settings["max_tokens"].value if "max_tokens" in settings else None
        if wanted is None or wanted > min(limits):
            constraints["max_tokens"] = min(limits)
    return constraints


def _check_model(model: str, layers: Sequence[Layer]) -> None:
    stopped_by = permissions.model_stopped_by(model, layers)
    if stopped_by is not None:
        raise Refused(
            f"model {model!r} is not permitted: stopped by {stopped_by.by}",
            f"Choose one that matches {' or '.join(stopped_by.models)}.",
        )


async def of_session(ledger: AsyncLedger, session: Session) -> Continued:
    """What the next turn of a session continues."""
    return Continued(
        session.persona_id,
        session.thread_id,
        await ledger.effective_config(session.thread_id) if session.thread_id else {},
        session.is_subagent,
        await manager_layers(ledger, session.parent_turn_id),
    )


async def of_turn(ledger: AsyncLedger, turn_id: str) -> Continued:
    """What a fork of a turn continues."""
    persona_id = (await ledger.thread(turn_id, last=0)).persona_id or DEFAULT_PERSONA
    return Continued(persona_id, turn_id, await ledger.effective_config(turn_id))


async def manager_layers(ledger: AsyncLedger, spawned_by: str | None) -> tuple[Layer, ...]:
    """The permission layers of the manager's turn that spawned a worker."""
    if spawned_by is None:
        return ()
    turn = await ledger.get_turn(spawned_by)
    granted = permissions.decode(turn.permissions_granted)
    if granted is None:
        return ()
    return tuple(
        replace(layer, by=f"manager {spawned_by}: {layer.by.rpartition(': ')[2]}")
        for layer in granted.layers
    )
