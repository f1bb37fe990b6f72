"""Access tokens: who may ask a server what."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Scope = Literal["read", "write", "import", "chat", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "import", "chat", "admin")
INCLUDED: dict[Scope, tuple[Scope, ...]] = {"write": ("read",), "admin": SCOPES}


class Token(Struct, frozen=True):
    """What is known of a token. The secret itself is known to its holder alone."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    def may(self, scope: Scope) -> bool:
        """Whether it allows this. Who may write may read; an administrator may do everything."""
        return any(scope in (owned, *INCLUDED.get(owned, ())) for owned in self.scopes)

    def is_valid(self, now: int) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


RUN_TOKEN = Token("run", "this run", SCOPES, 0)
"""What the secret that a server prints at its start allows. It ends with the server."""
