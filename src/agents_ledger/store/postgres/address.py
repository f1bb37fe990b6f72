"""PostgreSQL addresses: our own option, the limits of a connection, and how one may be shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def split(address: str) -> tuple[str, str]:
    """The address without our own part, and the schema it names."""
    start, options = _options(address)
    ours = [option for option in options if option.startswith("schema=")]
    schema = ours[-1].removeprefix("schema=") if ours else "agents_ledger"
    # The name is put into SQL text as it is, so nothing that needs quoting may pass.
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise Refused(
            f"{schema!r} cannot name a PostgreSQL schema",
            "Use small letters, digits and underscores.",
        )
    return _joined(start, [option for option in options if option not in ours]), schema


def with_limits(conninfo: str, wait_seconds: float) -> str:
    """The address with what ends a connection that hangs, where the user has not chosen it."""
    limits = {"connect_timeout": max(2, int(wait_seconds)), **KEEPALIVE}
    return make_conninfo(conninfo, **{**limits, **conninfo_to_dict(conninfo)})


def without_password(address: str) -> str:
    """The address as it may be shown."""
    start, options = _options(address)
    redacted = re.sub(r"^(\w+://[^:@/]*):.*@", r"\1@", start)
    return _joined(
        redacted, [o for o in options if not o.startswith(("password=", "sslpassword="))]
    )
