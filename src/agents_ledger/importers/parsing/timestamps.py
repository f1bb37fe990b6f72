"""Times as other programs write them, in Unix milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from agents_ledger.model.ids import LATEST_MS

# As seconds this is the year 5138, as milliseconds 1973.
SECONDS_BELOW = 1e11  # a larger number counts milliseconds
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def milliseconds(moment: object) -> int:
    """Unix milliseconds of an ISO 8601 time, or of a number of seconds or milliseconds.

    Returns 0 for anything else, and for a time at which no agent can have run.
    """
    if isinstance(moment, str):
        return _from_iso(moment)
    if isinstance(moment, (int, float)) and not isinstance(moment, bool):
        scaled = moment * 1000 if abs(moment) < SECONDS_BELOW else moment
        return int(scaled) if 0 < scaled < LATEST_MS else 0
    return 0


# A record is parsed once for the tree and once for its content.
@lru_cache(maxsize=4096)
def _from_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)  # the same on every machine
        unix_ms = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
    return unix_ms if 0 < unix_ms < LATEST_MS else 0


def uuid7_ms(uuid: str) -> int:
    """The time in a UUID of version 7; 0 for any other text."""
    return int(uuid[:8] + uuid[9:13], 16) if UUID7.fullmatch(uuid) else 0
