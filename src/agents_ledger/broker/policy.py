"""The policy: personas, permissions and the engine, from a TOML file next to the ledger."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from agents_ledger.model.agents.engine import ModelConfig
from agents_ledger.model.agents.permissions import (
    ANY,
    Grant,
    Layer,
    Permissions,
    matches,
    model_stopped_by,
)
from agents_ledger.model.context.compaction import COMPACT_AT
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.installation import settings
from agents_ledger.model.queue import QueueLimits
from agents_ledger.model.retention import LegalHold, RetentionPolicy, RetentionRule
from agents_ledger.model.turns import TurnRole


class _PolicyTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file. An unknown key is an error."""


class Identity(_PolicyTable, frozen=True):
    """Who the agent is."""

    soul: str = ""  # beginning of the system prompt
    soul_file: str | None = None  # the same as a file, relative to the policy
    name: str | None = None  # stated in the system prompt
    emoji: str | None = None  # shown after the name


class ToolRules(_PolicyTable, frozen=True):
    """Which tools are allowed; deny wins. `*` matches any characters."""

    allow: tuple[str, ...] = ANY  # names or patterns
    deny: tuple[str, ...] = ()  # names or patterns


class PersonaPermissions(_PolicyTable, frozen=True):
    """What a persona may do."""

    tools: ToolRules = ToolRules()  # which tools it may call
    credentials: tuple[str, ...] = ()  # names of credentials that its tools may use; patterns too
    models: tuple[str, ...] = ANY  # models it may run, such as "anthropic:*"
    max_tokens: Annotated[int, Meta(ge=1)] | None = None  # the longest answer it may ask for
    sandbox: dict[str, Any] | None = None  # recorded with each turn, not enforced


class PersonaModel(_PolicyTable, frozen=True):
    """Model settings of a persona; directives of a turn override them."""

    model: str | None = None  # by default that of [engine]
    # on or off, a level (minimal, low, medium, high), or a number of tokens
    thinking: str | int | bool | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None  # the longest answer
    temperature: Annotated[float, Meta(ge=0)] | None = None  # 0: as predictable as the model can be


class Persona(_PolicyTable, frozen=True):
    """Identity and permissions, with the model's settings as defaults."""

    identity: Identity = Identity()  # who it is
    permissions: PersonaPermissions = PersonaPermissions()  # what it may do
    model: PersonaModel = PersonaModel()  # how it thinks, unless a directive says otherwise
    toolset: str | None = None  # of [toolsets]; it can only remove tools
    session: str | None = None  # its main session; by default the one labelled with its id
    role: TurnRole = "unified"  # manager, worker or unified


class EngineChoice(_PolicyTable, frozen=True):
    """Which engine runs the models, and how long a turn may take."""

    # "pydantic-ai" for the models of providers, or "echo"; by default the model decides
    name: str | None = None
    model: str | None = None  # such as "anthropic:claude-opus-5", or "echo"
    timeout_seconds: float = 600.0  # of a turn


class ContextLimits(_PolicyTable, frozen=True):
    """When and how far a session is compacted, as fractions of the model's window."""

    window_tokens: int = 200_000  # the size of the model's window
    compact_at: float = COMPACT_AT  # the session is compacted from this part of the window on
    compact_to: float = 0.6  # down to this part
    overflow_to: float = 0.4  # after the provider rejected the context
    strategy: str = "summary"  # summary, sliding_window or selective


class Workers(_PolicyTable, frozen=True):
    """How agents may delegate work to workers."""

    # how deep workers may spawn workers; 0 turns delegation off, and by default there is no limit
    depth_max: Annotated[int, Meta(ge=0)] | None = None
    toolset: str | None = None  # of workers, if they are to have fewer tools
    at_once: int = 64  # turns run concurrently by one process


class GrantEntry(_PolicyTable, frozen=True):
    """A grant as the file writes it."""

    persona: str  # who gets it
    tools: tuple[str, ...] = ()  # tools it may call too; it overrides no deny
    credentials: tuple[str, ...] = ()  # credentials its tools may use too
    expires_at: datetime.datetime | None = None  # with a time zone; by default it does not expire
    reason: str | None = None  # recorded with each turn


class Policy(_PolicyTable, frozen=True):
    """The configuration of a broker: personas, toolsets, grants, engine, queue."""

    personas: dict[str, Persona] = {}  # by id; without any, every persona may use everything
    toolsets: dict[str, tuple[str, ...]] = {}  # names of tools, or patterns, by the set's name
    grants: tuple[GrantEntry, ...] = ()  # permissions for a time
    engine: EngineChoice = EngineChoice()  # the model, and what runs it
    queue: QueueLimits = QueueLimits()  # the line of messages before each session
    context: ContextLimits = ContextLimits()  # when sessions are compacted
    workers: Workers = Workers()  # delegation
    retention: RetentionPolicy = RetentionPolicy()  # how long conversations are kept

    def persona(self, persona_id: str) -> Persona:
        """A persona. A policy without personas allows every persona all tools and credentials."""
        if persona_id in self.personas:
            return self.personas[persona_id]
        if self.personas:
            raise Refused(
                f"the policy has no persona {persona_id!r}",
                f"Add [personas.{persona_id}] to it, or use one of: "
                f"{', '.join(sorted(self.personas))}.",
            )
        return Persona(permissions=PersonaPermissions(credentials=ANY))

    def main_sessions(self) -> Mapping[str, str]:
        """The label of the main session of every persona."""
        return {name: persona.session or name for name, persona in self.personas.items()}

    @property
    def names_model(self) -> bool:
        """Whether a turn can run without naming a model."""
        models = (persona.model.model for persona in self.personas.values())
        return bool(self.engine.name or self.engine.model or any(models))

    def model_defaults(self, persona_id: str) -> ModelConfig:
        """The model settings of a persona, before any directives."""
        model = self.persona(persona_id).model
        return ModelConfig(
            model.model or self.engine.model, model.thinking, model.max_tokens, model.temperature
        )

    def narrow(
        self,
        persona_id: str,
        tools: Mapping[str, tuple[str, ...]],
        *,
        toolset: str | None = None,
        inherited: Iterable[Layer] = (),
        now: int | None = None,
    ) -> Permissions:
        """The permissions of a turn. `tools` maps each offered tool to the credentials it needs.

        A toolset, and `inherited`, the layers of a worker's manager, can only remove permissions.
        """
        own = self.layer(persona_id, now)
        layers = [own]
        if toolset is not None:
            layers.append(Layer(f"toolset {toolset}", self.toolset(toolset)))
        layers += inherited
        offered = Permissions(layers=tuple(layers))
        passing = tuple(
            name for name, needed in tools.items() if offered.stopped_by(name, needed) is None
        )
        allowed = tuple(
            name
            for name in own.credentials
            if all(matches(name, layer.credentials) for layer in layers)
        )
        sandbox = self.persona(persona_id).permissions.sandbox
        grants = self.grants_of(persona_id, now)
        return Permissions(passing, allowed, persona_id, sandbox, grants, tuple(layers))

    def layer(self, persona_id: str, now: int | None = None) -> Layer:
        """What a persona may do, with its grants."""
        may = self.persona(persona_id).permissions
        grants = self.grants_of(persona_id, now)
        return Layer(
            f"persona {persona_id}",
            (*may.tools.allow, *(tool for grant in grants for tool in grant.tools)),
            may.tools.deny,
            (*may.credentials, *(name for grant in grants for name in grant.credentials)),
            may.models,
            may.max_tokens,
        )

    def toolset(self, name: str) -> tuple[str, ...]:
        """The patterns of a toolset. Refused if there is none of that name."""
        if name not in self.toolsets:
            raise Refused(f"the policy has no toolset {name!r}", "Add it under [toolsets].")
        return self.toolsets[name]

    def grants_of(self, persona_id: str, now: int | None = None) -> tuple[Grant, ...]:
        """The grants of a persona that have not expired."""
        now = now_ms() if now is None else now
        grants = (_grant(entry) for entry in self.grants if entry.persona == persona_id)
        return tuple(g for g in grants if g.expires_at is None or g.expires_at > now)


def _grant(entry: GrantEntry) -> Grant:
    expires_at = entry.expires_at
    return Grant(
        entry.persona,
        entry.tools,
        entry.credentials,
        None if expires_at is None else int(expires_at.timestamp() * 1000),
        entry.reason,
    )


# -- the file ----------------------------------------------------------------------------------


def load(address: str) -> Policy:
    """The policy of the ledger at an address; the default policy if there is no file."""
    return read(settings.policy_file(address))


def read(file: Path) -> Policy:
    """The policy in a file; Refused names the key that is wrong."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Policy()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}") from error
    try:
        policy = msgspec.toml.decode(text, type=Policy)
    except msgspec.DecodeError as error:
        raise Refused(f"{file}: {error}", _suggestion(str(error))) from error
    _check(policy, file)
    return _with_souls(policy, file.parent)


def _suggestion(error: str) -> str:
    from difflib import get_close_matches

    unknown = error.partition("unknown field `")[2].partition("`")[0]
    tables: list[type[Struct]] = [
        *_PolicyTable.__subclasses__(),
        QueueLimits,
        RetentionPolicy,
        RetentionRule,
        LegalHold,
    ]
    names = sorted({name for table in tables for name in table.__struct_fields__})
    similar = " or ".join(map(repr, get_close_matches(unknown, names, 2)))
    question = f"Did you mean {similar}? " if similar else ""
    return f"{question}docs/reference/policy.md describes all keys."


def _check(policy: Policy, file: Path) -> None:
    """Refuse unknown names now, before a turn fails on them."""
    used = [(f"personas.{name}", persona.toolset) for name, persona in policy.personas.items()]
    used.append(("workers", policy.workers.toolset))
    for table, toolset in used:
        if toolset is not None and toolset not in policy.toolsets:
            raise Refused(f"{file}: [{table}] uses the undefined toolset {toolset!r}")
    for name in policy.personas:
        model = policy.model_defaults(name).model
        if model is not None and model_stopped_by(model, [policy.layer(name)]):
            raise Refused(
                f"{file}: persona {name!r} may not run its own model {model!r}",
                f"Add it to `models` under [personas.{name}.permissions], or set another one.",
            )
    for grant in policy.grants:
        if grant.persona not in policy.personas:
            raise Refused(f"{file}: a grant uses the undefined persona {grant.persona!r}")
        if grant.expires_at is not None and grant.expires_at.tzinfo is None:
            raise Refused(
                f"{file}: expires_at of the grant to {grant.persona!r} has no time zone",
                "Write it with one, such as 2026-12-31T12:00:00Z.",
            )


def _with_souls(policy: Policy, folder: Path) -> Policy:
    personas = {}
    for name, persona in policy.personas.items():
        identity = persona.identity
        if identity.soul_file is not None:
            try:
                soul = (folder / identity.soul_file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise Refused(
                    f"the soul_file of persona {name!r} cannot be read: {error}"
                ) from error
            identity = msgspec.structs.replace(identity, soul=soul)
        personas[name] = msgspec.structs.replace(persona, identity=identity)
    return msgspec.structs.replace(policy, personas=personas)
