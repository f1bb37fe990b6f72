"""The effective configuration of a turn: layers folded into values, each with who decided it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from agents_ledger.model.errors import Refused

Decider = Literal["default", "inherited", "directive", "permission"]


class Config(Struct, frozen=True):
    """What a caller knows of a turn's configuration; the parent turn's is added by the ledger."""

    directives: Mapping[str, Any] = {}  # said for this turn
    defaults: Mapping[str, Any] = {}  # hold where nobody says anything
    constraints: Mapping[str, Any] = {}  # imposed by permissions; they win


class Directives(Struct, frozen=True, forbid_unknown_fields=True):
    """What the sender of a message may set, for its turn and for those that inherit from it."""

    model: str | None = None  # such as "anthropic:claude-opus-5", or "echo"
    # on or off, a level (minimal, low, medium, high), or a number of tokens
    thinking: bool | str | int | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None  # the longest answer
    temperature: Annotated[float, Meta(ge=0)] | None = None  # 0: as predictable as the model can be
    toolset: str | None = None  # of [toolsets]; it can only remove tools


class Setting(Struct, frozen=True, array_like=True):
    """A value and who decided it. `turn_id`: the turn it was inherited from, where it was said.

    `instead_of`: what would hold if no permission had decided.
    """

    value: Any
    by: Decider
    turn_id: str | None = None
    instead_of: Setting | None = None


EffectiveConfig = dict[str, Setting]
# Made when the module is loaded: a type's first use in two threads at once is not safe.
_decode = msgspec.json.Decoder(EffectiveConfig).decode


def resolve(config: Config, parent: EffectiveConfig, parent_id: str | None) -> EffectiveConfig:
    """Fold the layers in order: defaults, the parent turn's, this turn's directives, permissions.

    Neither defaults nor constraints are inherited: they hold as they are now. A constraint thus
    leaves no trace on later turns once it is lifted.
    """
    settings = {name: Setting(value, "default") for name, value in config.defaults.items()}
    for name, setting in parent.items():
        inherited = setting.instead_of if setting.by == "permission" else setting
        if inherited is not None and inherited.by != "default":
            settings[name] = Setting(inherited.value, "inherited", inherited.turn_id or parent_id)
    settings |= {name: Setting(value, "directive") for name, value in config.directives.items()}
    settings |= {
        name: Setting(value, "permission", instead_of=settings.get(name))
        for name, value in config.constraints.items()
    }
    return settings


def check_directives(directives: Mapping[str, Any]) -> None:
    """Refuse directives that nobody would follow: unknown names, and values of the wrong type."""
    if not isinstance(directives, Mapping):
        raise Refused(f"directives are a dictionary, not {directives!r:.80}")
    for name, value in directives.items():
        if name not in Directives.__struct_fields__:
            raise Refused(f"there is no directive {name!r:.80}", _suggestion(str(name)))
        _check_value(name, value)


def check_recorded(config: Config | None) -> None:
    """Refuse settings that readers would misunderstand. Other names than those of Directives are
    allowed, unless they have the same letters: `modle`, `maxTokens`."""
    if config is None:
        return
    if not isinstance(config, Config):
        raise Refused(
            f"a turn's config is a Config, not {config!r:.80}", "Use Config(directives={...})."
        )
    for part in Config.__struct_fields__:
        values = getattr(config, part)
        if not isinstance(values, Mapping):
            raise Refused(f"{part} of a Config are {values!r:.80}", "They are a dictionary.")
        for name, value in values.items():
            if name in Directives.__struct_fields__:
                _check_value(name, value)
            elif _letters(name) in map(_letters, Directives.__struct_fields__):
                raise Refused(f"{name!r} is a misspelt setting", _suggestion(name))


def _check_value(name: str, value: object) -> None:
    try:
        msgspec.convert({name: value}, Directives)
    except msgspec.ValidationError as error:
        expected = str(error).partition(" - at ")[0].replace(" | null", "")
        raise Refused(f"{name} is {value!r:.80}: {expected}") from error


def _letters(name: str) -> list[str]:
    return sorted(filter(str.isalpha, name.lower()))


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    names = Directives.__struct_fields__
    similar = "".join(f"Did you mean {match!r}? " for match in get_close_matches(name, names, 1))
    return f"{similar}The directives are {', '.join(names)}."


def encode(settings: EffectiveConfig) -> str:
    """Compact JSON: {"model": ["claude-opus-5", "directive"], ...}."""
    compact = {name: _compact(setting) for name, setting in settings.items()}
    try:
        return msgspec.json.encode(compact).decode()
    except UnicodeEncodeError:
        # An unpaired surrogate, which only the escaped form can carry.
        import json

        return json.dumps(msgspec.to_builtins(compact), separators=(",", ":"))


def _compact(setting: Setting) -> list[Any]:
    """A setting without the Nones at its end."""
    parts = [setting.value, setting.by, setting.turn_id]
    if setting.instead_of is not None:
        return [*parts, _compact(setting.instead_of)]
    return parts if setting.turn_id else parts[:2]


def decode(text: str | None) -> EffectiveConfig:
    """The settings stored in a turn; none where it stored none.

    What an imported turn says in its source's own words is taken as defaults of that source.
    """
    if not text:
        return {}
    try:
        return _decode(text)
    except msgspec.DecodeError:  # other words, or a lone surrogate
        return {name: _setting(value) for name, value in _object(text).items()}


def _object(text: str) -> dict[str, Any]:
    import json

    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _setting(value: object) -> Setting:
    try:
        return msgspec.convert(value, Setting)
    except msgspec.ValidationError:
        return Setting(value, "default")
