"""What a turn may do: layers that each let names pass or stop them. Every layer must agree.

Stored with each turn as JSON, in `permissions_granted` and `permissions_used`. The shapes are in
docs/how-to/run-turns-with-the-broker.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from agents_ledger.model.errors import Refused

T = TypeVar("T")
ANY = ("*",)
Misuse = Literal["not granted", "not available", "rejected"]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of these patterns, with `*` and `?` as in shells."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class Layer(Struct, frozen=True, omit_defaults=True):
    """What one authority lets pass, and what it stops. What is stopped is stopped."""

    by: str  # "persona main", "toolset reading", "manager 01J..."
    allow: tuple[str, ...] = ANY
    deny: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ANY
    models: tuple[str, ...] = ANY
    max_tokens: int | None = None  # the longest answer

    def lets(self, tool: str) -> bool:
        """Whether a tool passes."""
        return matches(tool, self.allow) and not matches(tool, self.deny)


class Grant(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tools or credentials that a persona has for a time, beside its own. It overrides no deny."""

    persona: str
    tools: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    expires_at: int | None = None  # Unix milliseconds; None: until it is taken out
    reason: str | None = None


class Permissions(Struct, frozen=True, omit_defaults=True):
    """What a turn was granted: the tools by name, and the layers that decided."""

    tools: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    persona: str | None = None
    sandbox: dict[str, Any] | None = None
    grants: tuple[Grant, ...] = ()
    layers: tuple[Layer, ...] = ()

    def stopped_by(self, tool: str, credentials: Iterable[str] = ()) -> str | None:
        """Who stops a tool, or a credential it needs; None: all let it pass."""
        for layer in self.layers:
            if not layer.lets(tool):
                return layer.by
            for needed in credentials:
                if not matches(needed, layer.credentials):
                    return f"{layer.by} (credential {needed})"
        return None


def model_stopped_by(model: str, layers: Iterable[Layer]) -> Layer | None:
    """The first layer that does not let a model run; None: all do."""
    return next((layer for layer in layers if not matches(model, layer.models)), None)


class Used(Struct, frozen=True, omit_defaults=True):
    """What a turn really used: how often each tool ran, how often one was refused."""

    tools: dict[str, int] = {}
    rejected: dict[str, int] = {}
    credentials: tuple[str, ...] = ()


class ToolUse(Struct, frozen=True):
    """How often a persona called a tool in the time asked for, and how often it should not have."""

    persona_id: str
    tool_name: str
    calls: int
    not_granted: int
    not_available: int
    rejected: int
    first_at: int
    last_at: int


class MisusedCall(Struct, frozen=True):
    """A call of a tool that was not granted or not available, or was refused."""

    turn_id: str
    tool_call_id: str
    tool_name: str
    persona_id: str
    at: int
    what: Misuse


class PermissionReview(Struct, frozen=True):
    """What was used, and what of it without permission.

    `unchecked`: calls of turns that record neither what was available nor what was granted, as
    imported ones do, or one of them in a shape that cannot be read.
    """

    uses: tuple[ToolUse, ...] = ()
    misuses: tuple[MisusedCall, ...] = ()
    unchecked: int = 0


# Made when the module is loaded: a type's first use in two threads at once is not safe.
_permissions = msgspec.json.Decoder(Permissions).decode
_names = msgspec.json.Decoder(tuple[str, ...]).decode
encode = msgspec.json.Encoder().encode


def decode(text: str | None) -> Permissions | None:
    """What a turn was granted; None if it does not say, or in a shape that is not ours."""
    return None if text is None else _read(text, _permissions, Permissions)


def decode_names(text: str | None) -> tuple[str, ...] | None:
    """The names of the tools that a turn had; None if it does not say so in our shape."""
    return None if text is None else _read(text, _names, tuple[str, ...])


def _read(text: str, decoder: Callable[[str], T], kind: Any) -> T | None:
    try:
        return decoder(text)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeEncodeError):
        pass
    import json

    try:  # names may have unpaired surrogates, which a strict decoder refuses
        value: T = msgspec.convert(json.loads(text), kind)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None
    return value


def check_recorded(available: str | None, granted: str | None) -> None:
    """Refuse shapes that a review could not judge."""
    if available is not None and decode_names(available) is None:
        raise Refused(
            f"tools_available is {available!r:.80}",
            'It is a list of names, as in ["Read", "Bash"].',
        )
    if granted is not None and decode(granted) is None:
        raise Refused(
            f"permissions_granted is {granted!r:.80}",
            'It is an object that lists the tools, as in {"tools": ["Read", "mcp__*"]}.',
        )
