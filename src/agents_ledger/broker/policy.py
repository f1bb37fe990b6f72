"""The policy: personas, permissions and the engine, from a TOML file next to the ledger."""

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


class _PolicyTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file. An unknown key is an error."""


class Identity(_PolicyTable, frozen=True):
    """Who the agent is."""

    soul: str = ""  # beginning of the system prompt
    soul_file: str | None = None  # the same as a file, relative to the policy
    name: str | None = None
    emoji: str | None = None


class ToolRules(_PolicyTable, frozen=True):
    """Which tools are allowed; deny wins. `*` matches any characters."""

    allow: tuple[str, ...] = ANY
    deny: tuple[str, ...] = ()


class PersonaPermissions(_PolicyTable, frozen=True):
    """What a persona may do."""

    tools: ToolRules = ToolRules()
    credentials: tuple[str, ...] = ()
    sandbox: dict[str, Any] | None = None


class PersonaModel(_PolicyTable, frozen=True):
    """Model settings of a persona; directives of a turn override them."""

    model: str | None = None
    thinking: str | int | bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None


class Persona(_PolicyTable, frozen=True):
    """Identity and permissions, with the model's settings as defaults."""

    identity: Identity = Identity()
    permissions: PersonaPermissions = PersonaPermissions()
    model: PersonaModel = PersonaModel()
    toolset: str | None = None
    session: str | None = None  # its main session; by default the one labelled with its id
    role: TurnRole = "unified"


class EngineChoice(_PolicyTable, frozen=True):
    """Which engine runs the models, and how long a turn may take."""

    name: str = "echo"
    model: str | None = None  # as in "anthropic:claude-opus-5"
    timeout_seconds: float = 600.0


class ContextLimits(_PolicyTable, frozen=True):
    """When and how far a session is compacted, as fractions of the model's window."""

    window_tokens: int = 200_000
    compact_at: float = COMPACT_AT
    compact_to: float = 0.6
    overflow_to: float = 0.4  # after the provider rejected the context
    strategy: str = "summary"


class Workers(_PolicyTable, frozen=True):
    """How managers may delegate."""

    depth_max: int = 3  # 0 turns delegation off
    toolset: str | None = None
    at_once: int = 64  # turns run concurrently by one process


class GrantEntry(_PolicyTable, frozen=True):
    """A grant as the file writes it."""

    persona: str
    tools: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    expires_at: datetime.datetime | None = None
    reason: str | None = None


class Policy(_PolicyTable, frozen=True):
    """The configuration of a broker: personas, toolsets, grants, engine, queue."""

    personas: dict[str, Persona] = {}
    toolsets: dict[str, tuple[str, ...]] = {}
    grants: tuple[GrantEntry, ...] = ()
    engine: EngineChoice = EngineChoice()
    queue: QueueLimits = QueueLimits()
    context: ContextLimits = ContextLimits()
    workers: Workers = Workers()

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
        if name not in self.toolsets:
            raise Refused(f"the policy has no toolset {name!r}", "Add it under [toolsets].")
        return self.toolsets[name]

    def grants_of(self, persona_id: str, now: int) -> tuple[Grant, ...]:
        """The unexpired grants of a persona."""
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
        raise Refused(
            f"{file}: {error}",
            "docs/reference/policy.md describes all keys.",
        ) from error
    _check(policy, file)
    return _with_souls(policy, file.parent)


def _check(policy: Policy, file: Path) -> None:
    """Refuse unknown names now, before a turn fails on them."""
    used = [(f"personas.{name}", persona.toolset) for name, persona in policy.personas.items()]
    used.append(("workers", policy.workers.toolset))
    for table, toolset in used:
        if toolset is not None and toolset not in policy.toolsets:
            raise Refused(f"{file}: [{table}] uses the undefined toolset {toolset!r}")
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
