"""Access tokens of the server. Only hashes of their secrets are stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from typing import get_args

from agents_ledger.ledger.core import Core
from agents_ledger.model.access import SCOPES, Scope, Token
from agents_ledger.model.errors import NameTaken, NotFound, Refused
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.store.database import Row, Transaction, Work

NAME_MAX = 200
SECRET_BYTES = 32


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def _hash(secret: str) -> str:
    """Unsalted SHA-256 suffices: 256 random bits cannot be guessed by brute force."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Tokens:
    def __init__(self, core: Core) -> None:
        self._core = core

    def create(
        self, name: str, scopes: Sequence[Scope] = ("read",), *, expires_at: int | None = None
    ) -> tuple[Token, str]:
        """Create a token; returns it and its secret, which cannot be read again.

        NameTaken if a valid token has the name."""
        if not name.strip() or len(name) > NAME_MAX:
            raise Refused(f"a token's name has 1 to {NAME_MAX} characters, this one {len(name)}")
        unknown = sorted(set(scopes) - set(get_args(Scope)))
        if unknown or not scopes:
            raise Refused(
                f"there is no scope {unknown[0]!r}" if unknown else "a token needs a scope",
                f"Scopes are {', '.join(SCOPES)}.",
            )
        secret = new_secret()
        ordered = tuple(scope for scope in SCOPES if scope in scopes)
        token = Token(new_id(), name, ordered, now_ms(), expires_at)
        self._core.recover_if_due()
        self._core.db.write(lambda tx: _create(tx, token, _hash(secret)))
        return token, secret

    def all(self) -> tuple[Token, ...]:
        """Every token, latest first."""
        rows = self._core.db.read(lambda tx: tx.run("all_tokens"))
        return tuple(_token(row) for row in rows)

    def find(self, secret: str, *, wait: bool = True) -> Token | None:
        """The valid token of a secret; without `wait`, Locked if it would have to."""
        return self._valid(lambda tx: tx.run("token_by_hash", secret_hash=_hash(secret)), wait)

    def get(self, token_id: str, *, wait: bool = True) -> Token | None:
        """The valid token of an id; without `wait`, Locked if it would have to."""
        return self._valid(lambda tx: tx.run("token_by_id", id=token_id), wait)

    def _valid(self, work: Work[list[Row]], wait: bool) -> Token | None:
        db = self._core.db
        rows = db.read(work) if wait else db.read_at_once(work)
        token = _token(rows[0]) if rows else None
        return token if token and token.is_valid(now_ms()) else None

    def valid_ids(self, ids: Collection[str]) -> set[str]:
        """Those of these ids whose tokens are valid now."""
        now = now_ms()
        return {token.id for token in self.all() if token.id in ids and token.is_valid(now)}

    def revoke(self, id_or_name: str) -> Token:
        """Invalidate a token for good."""
        self._core.recover_if_due()
        return self._core.db.write(lambda tx: _revoke(tx, id_or_name))

    def revoke_all(self) -> int:
        """Invalidate all tokens, as after a restore from a backup that is older than the revocation
        of some; how many were not revoked before."""
        self._core.recover_if_due()
        return len(self._core.db.write(lambda tx: tx.run("revoke_all_tokens", now=now_ms())))


def _create(tx: Transaction, token: Token, secret_hash: str) -> None:
    tx.run("lock_tokens")
    if any(other.is_valid(token.created_at) for other in _called(tx, token.name)):
        raise NameTaken(
            f"there is a token {token.name!r} already",
            "Choose another name, or revoke it with `agents-ledger token revoke`.",
        )
    tx.run(
        "insert_token",
        id=token.id,
        name=token.name,
        secret_hash=secret_hash,
        scopes=" ".join(token.scopes),
        created_at=token.created_at,
        expires_at=token.expires_at,
    )


def _revoke(tx: Transaction, id_or_name: str) -> Token:
    tokens = _called(tx, id_or_name)
    if not tokens:
        raise NotFound(
            f"there is no token {id_or_name!r}", "List them with `agents-ledger token list`."
        )
    now = now_ms()
    # Ledgers of earlier versions may have several valid tokens of a name; an expired one does not
    # hide a valid one.
    chosen = [token for token in tokens if token.is_valid(now)] or tokens[-1:]
    if len(chosen) > 1:
        ids = ", ".join(token.id for token in chosen)
        raise Refused(
            f"{len(chosen)} tokens are called {id_or_name!r}", f"Pass the id of one: {ids}."
        )
    tx.run("revoke_token", id=chosen[0].id, now=now)
    return _called(tx, chosen[0].id)[0]


def _called(tx: Transaction, id_or_name: str) -> list[Token]:
    return [_token(row) for row in tx.run("tokens_called", called=id_or_name)]


def _token(row: Row) -> Token:
    token_id, name, scopes, *times = row
    return Token(token_id, name, tuple(scopes.split(" ")), *times)
