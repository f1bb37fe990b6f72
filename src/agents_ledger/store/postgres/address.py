"""PostgreSQL addresses: our own option, the limits of a connection, and how one may be shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agents_ledger.model.errors import Refused

# Without these a call waits for ever when the network drops what is sent: no error comes back.
KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}


def _options(address: str) -> tuple[str, list[str]]:
    """An address up to its options, and those, as they are: libpq decodes them by its own rules."""
    start, _, options = address.partition("?")
    return start, [option for option in options.split("&") if option]


def _joined(start: str, options: Sequence[str]) -> str:
    return f"{start}?{'&'.join(options)}" if options else start


class LedgerAddress(NamedTuple):
    """An address without our own options, and what those say."""

    conninfo: str
    schema: str
    reads_standby: bool


def split(address: str) -> LedgerAddress:
    start, options = _options(address)
    schema = _own(options, "schema", default="agents_ledger")
    # The name is put into SQL text as it is, so nothing that needs quoting may pass.
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise Refused(
            f"{schema!r} cannot name a PostgreSQL schema",
            "Use small letters, digits and underscores.",
        )
    read_from = _own(options, "read_from", default="primary")
    if read_from not in ("primary", "standby"):
        raise Refused(f"read_from is {read_from!r:.80}", "It is primary or standby.")
    return LedgerAddress(_joined(start, options), schema, read_from == "standby")


def _own(options: list[str], name: str, *, default: str) -> str:
    """The value of an option of ours, which is removed; the last one counts."""
    ours = [option for option in options if option.startswith(f"{name}=")]
    options[:] = [option for option in options if option not in ours]
    return ours[-1].removeprefix(f"{name}=") if ours else default


def with_limits(conninfo: str, wait_seconds: float) -> str:
    """The address with what ends a connection that hangs, where the user has not chosen it."""
    limits = {"connect_timeout": max(2, int(wait_seconds)), **KEEPALIVE}
    return make_conninfo(conninfo, **{**limits, **conninfo_to_dict(conninfo)})


def to_primary(conninfo: str) -> str:
    """Of several hosts the one that takes writes, unless the user has chosen otherwise."""
    chosen = {"target_session_attrs": "read-write", **conninfo_to_dict(conninfo)}
    return make_conninfo(conninfo, **chosen)


def to_standby(conninfo: str) -> str:
    """Of several hosts a standby, or else the primary."""
    return make_conninfo(conninfo, target_session_attrs="prefer-standby")


def without_password(address: str) -> str:
    """The address as it may be shown."""
    start, options = _options(address)
    redacted = re.sub(r"^(\w+://[^:@/]*):.*@", r"\1@", start)
    return _joined(
        redacted, [o for o in options if not o.startswith(("password=", "sslpassword="))]
    )
