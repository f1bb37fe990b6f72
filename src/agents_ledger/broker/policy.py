"""The policy: who may do what, with which engine, as a TOML file beside the ledger says."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agents_ledger.model import settings
from agents_ledger.model.agents.engine import ModelConfig
from agents_ledger.model.agents.permissions import ANY, Grant, Layer, Permissions, matches
from agents_ledger.model.compaction import COMPACT_AT
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.queue import QueueLimits
from agents_ledger.model.turns import TurnRole


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file. A word it does not know is a mistake, said with its place."""


class Identity(_Part, frozen=True):
    """Who the agent is."""

    soul: str = ""  # what it is told first of all
    soul_file: str | None = None  # the same in a file of its own, beside the policy
    name: str | None = None
    emoji: str | None = None


class ToolRules(_Part, frozen=True):
    """Which tools pass; deny wins. `*` stands for any letters."""

    allow: tuple[str, ...] = ANY
    deny: tuple[str, ...] = ()


class PersonaPermissions(_Part, frozen=True):
    """What a persona may do."""

    tools: ToolRules = ToolRules()
    credentials: tuple[str, ...] = ()
    sandbox: dict[str, Any] | None = None


class PersonaModel(_Part, frozen=True):
    """How a persona's model runs unless a turn says otherwise."""

    model: str | None = None
    thinking: str | int | bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None


class Persona(_Part, frozen=True):
    """Identity and permissions, with the model's settings as defaults."""

    identity: Identity = Identity()
    permissions: PersonaPermissions = PersonaPermissions()
    model: PersonaModel = PersonaModel()
    toolset: str | None = None
    session: str | None = None  # its main session; else the one labelled by its id
    role: TurnRole = "unified"


class EngineChoice(_Part, frozen=True):
    """Which engine runs the models, and how long a turn may take."""

    name: str = "echo"
    model: str | None = None  # as the engine names them: "anthropic:claude-opus-5"
    timeout_seconds: float = 600.0


class ContextLimits(_Part, frozen=True):
    """When a session is compacted. Parts of the model's window."""

    window_tokens: int = 200_000
    compact_at: float = COMPACT_AT
    compact_to: float = 0.6
    overflow_to: float = 0.4  # after the provider refused
    strategy: str = "summary"


class Workers(_Part, frozen=True):
    """How managers may delegate."""

    depth_max: int = 3  # 0: nobody may
    toolset: str | None = None
    at_once: int = 64  # turns that this process runs at a time


class GrantEntry(_Part, frozen=True):
    """A grant as the file writes it."""

    persona: str
    tools: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    expires_at: datetime.datetime | None = None
    reason: str | None = None


class Policy(_Part, frozen=True):
    """All that a broker is told once: personas, toolsets, grants, engine, queue."""

    personas: dict[str, Persona] = {}
    toolsets: dict[str, tuple[str, ...]] = {}
    grants: tuple[GrantEntry, ...] = ()
    engine: EngineChoice = EngineChoice()
    queue: QueueLimits = QueueLimits()
    context: ContextLimits = ContextLimits()
    workers: Workers = Workers()

    def persona(self, persona_id: str) -> Persona:
        """A persona; without any in the policy, each may use what is offered."""
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
        """Every persona's main session."""
        return {name: persona.session or name for name, persona in self.personas.items()}

    def model_defaults(self, persona_id: str) -> ModelConfig:
        """How the model runs if nobody says otherwise."""
        own = self.persona(persona_id).model
        return ModelConfig(
            own.model or self.engine.model, own.thinking, own.max_tokens, own.temperature
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
        """What a turn is granted of the tools there are, each with the credentials it needs.

        A toolset and `inherited`, the layers of a worker's manager, only take away.
        """
        persona = self.persona(persona_id)
        grants = self.grants_of(persona_id, now_ms() if now is None else now)
        rules = persona.permissions.tools
        allow = (*rules.allow, *(tool for grant in grants for tool in grant.tools))
        granted = (name for grant in grants for name in grant.credentials)
        credentials = (*persona.permissions.credentials, *granted)
        layers = [Layer(f"persona {persona_id}", allow, rules.deny, credentials)]
        if toolset is not None:
            layers.append(Layer(f"toolset {toolset}", self.toolset(toolset)))
        layers += inherited
        offered = Permissions(layers=tuple(layers))
        passing = tuple(
            name for name, needed in tools.items() if offered.stopped_by(name, needed) is None
        )
        allowed = tuple(
            name
            for name in credentials
            if all(matches(name, layer.credentials) for layer in layers)
        )
        return Permissions(
            passing, allowed, persona_id, persona.permissions.sandbox, grants, tuple(layers)
        )

    def toolset(self, name: str) -> tuple[str, ...]:
        """The tools of a toolset."""
        if name not in self.toolsets:
            raise Refused(f"the policy has no toolset {name!r}", "Add it under [toolsets].")
        return self.toolsets[name]

    def grants_of(self, persona_id: str, now: int) -> tuple[Grant, ...]:
        """The grants that a persona has now."""
        found = (_grant(entry) for entry in self.grants if entry.persona == persona_id)
        return tuple(g for g in found if g.expires_at is None or g.expires_at > now)


def _grant(entry: GrantEntry) -> Grant:
    ends = entry.expires_at
    return Grant(
        entry.persona,
        entry.tools,
        entry.credentials,
        None if ends is None else int(ends.timestamp() * 1000),
        entry.reason,
    )


# -- the file ----------------------------------------------------------------------------------


def load(address: str) -> Policy:
    """The policy of the ledger at an address; the default one if there is no file."""
    return read(settings.policy_file(address))


def read(file: Path) -> Policy:
    """The policy in a file; a mistake in it is said with its place."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Policy()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}") from error
    try:
        policy = msgspec.toml.decode(text, type=Policy)
    except msgspec.DecodeError as error:
        raise Refused(
            f"{file}: {error}",
            "Correct it: docs/how-to/run-turns-with-the-broker.md shows what it may say.",
        ) from (error)
    _check(policy, file)
    return _with_souls(policy, file.parent)


def _check(policy: Policy, file: Path) -> None:
    """Refuse a name that leads nowhere, before a turn stumbles on it."""
    named = [(f"personas.{name}", each.toolset) for name, each in policy.personas.items()]
    named.append(("workers", policy.workers.toolset))
    for place, toolset in named:
        if toolset is not None and toolset not in policy.toolsets:
            raise Refused(f"{file}: [{place}] names toolset {toolset!r}, which is not there")
    for grant in policy.grants:
        if grant.persona not in policy.personas:
            raise Refused(f"{file}: a grant names persona {grant.persona!r}, which is not there")
        if grant.expires_at is not None and grant.expires_at.tzinfo is None:
            raise Refused(
                f"{file}: the grant to {grant.persona!r} expires at a time of no zone",
                "Write it with one: 2026-12-31T12:00:00Z.",
            )


def _with_souls(policy: Policy, folder: Path) -> Policy:
    """The policy with every soul_file read."""
    personas = {}
    for name, persona in policy.personas.items():
        identity = persona.identity
        if identity.soul_file is not None:
            try:
                soul = (folder / identity.soul_file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise Refused(f"the soul of persona {name!r} cannot be read: {error}") from error
            identity = msgspec.structs.replace(identity, soul=soul)
        personas[name] = msgspec.structs.replace(persona, identity=identity)
    return msgspec.structs.replace(policy, personas=personas)
