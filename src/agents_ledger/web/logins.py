"""Logins of browsers.

A cookie with a token would be as valuable as the token itself. So a cookie holds the secret of a
login, which only this process knows and which ends with it. A browser is started with a code that
works once, because other users of the machine can read the arguments of its processes.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from threading import Lock

from msgspec import Struct

SECRET_BYTES = 32


class LoginLimits(Struct, frozen=True, kw_only=True):
    """The lifetime of logins and codes, and the number of logins."""

    idle_s: float = 24 * 3600.0  # since the last request
    life_s: float = 7 * 86_400.0
    code_s: float = 120.0  # a browser may take a while to start
    logins: int = 256  # beyond that the least recently used one ends
    logins_per_token: int = 16  # so that one token cannot end the logins of others


class _Login(Struct):
    token_id: str
    created_at: float
    used_at: float


class Logins:
    """The logins of one server, and the codes that start one."""

    def __init__(self, limits: LoginLimits | None = None) -> None:
        self._limits = limits or LoginLimits()
        self._lock = Lock()
        self._logins: OrderedDict[str, _Login] = OrderedDict()
        self._codes: dict[str, tuple[str, float]] = {}

    def new_code(self, token_id: str) -> str:
        """A code that starts one login with a token."""
        code = secrets.token_urlsafe(SECRET_BYTES)
        with self._lock:
            self._codes[_key(code)] = (token_id, time.monotonic() + self._limits.code_s)
        return code

    def redeem(self, code: str) -> str | None:
        """The id of the token of a code, which cannot be used again."""
        with self._lock:
            token_id, ends_at = self._codes.pop(_key(code), ("", 0.0))
        return token_id if time.monotonic() < ends_at else None

    def start(self, token_id: str) -> str:
        """The secret of a new login with a token."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        now = time.monotonic()
        with self._lock:
            own = [key for key, login in self._logins.items() if login.token_id == token_id]
            for key in own[: max(0, len(own) + 1 - self._limits.logins_per_token)]:
                del self._logins[key]
            self._logins[_key(secret)] = _Login(token_id, now, now)
            while len(self._logins) > self._limits.logins:
                self._logins.popitem(last=False)
        return secret

    def use(self, secret: str) -> str | None:
        """The id of the token that a login was made with, unless the login has ended."""
        with self._lock:
            key = _key(secret)
            login = self._current(key)
            if login is None:
                return None
            login.used_at = time.monotonic()
            # Kept in order of use, so that the limits drop the least recently used login.
            self._logins.move_to_end(key)
            return login.token_id

    def is_alive(self, secret: str) -> bool:
        """Whether a login is valid. This does not extend it."""
        with self._lock:
            return self._current(_key(secret)) is not None

    def _current(self, key: str) -> _Login | None:
        login = self._logins.get(key)
        now = time.monotonic()
        if login is None:
            return None
        is_idle = now - login.used_at >= self._limits.idle_s
        if is_idle or now - login.created_at >= self._limits.life_s:
            del self._logins[key]
            return None
        return login


def _key(secret: str) -> str:
    """Secrets are looked up by hash, so that timing reveals nothing about them."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
