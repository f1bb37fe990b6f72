"""Times as people type them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms

_UNITS = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AGO = re.compile(r"(\d{1,5})\s*([hdw])(?:ours?|ays?|eeks?)?(?:\s+ago)?")
_DAYS = {"today": 0, "yesterday": 1}


def moment(text: str) -> int:
    """Unix milliseconds of a date by this machine's clock, or of so long ago."""
    said = text.strip().lower()
    ago = _AGO.fullmatch(said)
    if ago:
        return now_ms() - int(ago[1]) * _UNITS[ago[2]]
    if said in _DAYS:
        midnight = _now().replace(hour=0, minute=0, second=0, microsecond=0)
        return _milliseconds(midnight - timedelta(days=_DAYS[said]))
    try:
        return _milliseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(
            f"{text!r} is no date",
            "Write 2026-03-01, yesterday, or 12h, 7d, 4w for so long ago.",
        ) from error


def local_zone() -> tzinfo | None:
    """The zone of this machine's clock, summer time and all; None: UTC."""
    import os
    from zoneinfo import ZoneInfo

    name = os.environ.get("TZ", "").lstrip(":") or _linked()
    try:
        return ZoneInfo(name) if name else _now().tzinfo
    except (
        KeyError,
        ValueError,
        OSError,
    ):  # no such zone here: the offset of now is the best we know
        return _now().tzinfo


def _linked() -> str:
    import os

    try:
        return os.readlink("/etc/localtime").rpartition("/zoneinfo/")[2]
    except OSError:
        return ""


def _now() -> datetime:
    return datetime.now().astimezone()


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
