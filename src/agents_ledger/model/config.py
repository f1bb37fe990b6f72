"""The effective configuration of a turn: layers folded into values, each with who decided it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

Decider = Literal["default", "inherited", "directive", "permission"]


class Config(Struct, frozen=True):
    """What a caller knows of a turn's configuration; the parent turn's is added by the ledger."""

    directives: Mapping[str, Any] = {}  # said for this turn
    defaults: Mapping[str, Any] = {}  # hold where nobody says anything
    constraints: Mapping[str, Any] = {}  # imposed by permissions; they win


class Setting(Struct, frozen=True, array_like=True, omit_defaults=True):
    """A value and who decided it. `turn_id`: the turn it was inherited from, where it was said."""

    value: Any
    by: Decider
    turn_id: str | None = None


EffectiveConfig = dict[str, Setting]


def resolve(config: Config, parent: EffectiveConfig, parent_id: str | None) -> EffectiveConfig:
    """Fold the layers in order: defaults, the parent turn's, this turn's directives, permissions.

    Neither defaults nor constraints are inherited: they hold as they are now. A constraint thus
    leaves no trace on later turns once it is lifted.
    """
    settings = {name: Setting(value, "default") for name, value in config.defaults.items()}
    for name, setting in parent.items():
        if setting.by in ("directive", "inherited"):
            settings[name] = Setting(setting.value, "inherited", setting.turn_id or parent_id)
    settings |= {name: Setting(value, "directive") for name, value in config.directives.items()}
    settings |= {name: Setting(value, "permission") for name, value in config.constraints.items()}
    return settings


def encode(settings: EffectiveConfig) -> str:
    """Compact JSON: {"model": ["claude-opus-5", "directive"], ...}."""
    return msgspec.json.encode(settings).decode()


def decode(text: str | None) -> EffectiveConfig:
    """The settings stored in a turn; none where it stored none."""
    return msgspec.json.decode(text, type=dict[str, Setting]) if text else {}
