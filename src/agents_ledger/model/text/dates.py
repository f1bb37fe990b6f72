"""Dates as people say them."""

from __future__ import annotations

import os
import re
from calendar import monthrange
from datetime import datetime, timedelta, tzinfo

from agents_ledger.model.errors import Refused

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_AGO = re.compile(r"(\d{1,5}|an?) (minute|hour|day|week|month|year)s? ago")
_SHORT = re.compile(r"(\d{1,5}) ?([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
_CLOCK = re.compile(r"(.*\S) (\d{1,2})(?::(\d{2}))? ?(am|pm)?")
HALF_DAY = 12
_EXAMPLES = (
    "Say it like 2026-11-01, 2026-11-01T14:30, yesterday, monday, last week, 3 days ago, 7d."
)


def moment(words: str, now_ms: int) -> int:
    """Unix milliseconds of the moment somebody means: of a day, week, month or year its beginning,
    in local time."""
    text = " ".join(re.sub(r"[\s_]+", " ", words.strip().lower()).split())
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    try:
        date = _relative(text, now) or _relative(text.replace("-", " "), now) or _absolute(text)
        return int(date.timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(f"{words!r} is not a date", _EXAMPLES) from error


def day_of(at_ms: int) -> tuple[int, int]:
    """Where the day of a moment begins and ends, in local time."""
    at = datetime.fromtimestamp(at_ms / 1000)
    begins = at.replace(hour=0, minute=0, second=0, microsecond=0)
    ends = begins + timedelta(days=1)
    return int(begins.timestamp() * 1000), int(ends.timestamp() * 1000)


def _absolute(text: str) -> datetime:
    if re.fullmatch(r"\d{4}", text):
        return datetime(int(text), 1, 1).astimezone()
    if re.fullmatch(r"\d{4}-\d{1,2}", text):
        year, month = text.split("-")
        return datetime(int(year), int(month), 1).astimezone()
    day = re.sub(r"(?<=[-/])(\d)(?=[-/t ]|$)", r"0\1", text).replace("/", "-").upper()
    return datetime.fromisoformat(day).astimezone()


def _relative(text: str, now: datetime) -> datetime | None:
    if text == "now":
        return now
    day = _midnight(now)
    named = _named_day(text, day)
    if named is not None:
        return named
    ago = _AGO.fullmatch(text)
    if ago:
        return _before(now, 1 if ago[1].startswith("a") else int(ago[1]), ago[2])
    short = _SHORT.fullmatch(text)
    if short:
        return now - timedelta(hours=int(short[1]) * _HOURS[short[2]])
    clock = _CLOCK.fullmatch(text)
    on_day = _named_day(clock[1], day) if clock else None
    if clock and on_day is not None and (clock[3] or clock[4]):
        return on_day.replace(hour=_hour(int(clock[2]), clock[4]), minute=int(clock[3] or 0))
    return None


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def _named_day(text: str, today: datetime) -> datetime | None:
    """A day that has a name, or the first day of a week, month or year."""
    monday = today - timedelta(days=today.weekday())
    first = today.replace(day=1)
    named = {
        "today": today,
        "yesterday": today - timedelta(days=1),
        "this week": monday,
        "last week": monday - timedelta(days=7),
        "this month": first,
        "last month": (first - timedelta(days=1)).replace(day=1),
        "this year": first.replace(month=1),
        "last year": first.replace(month=1, year=today.year - 1),
    }
    weekday = text.removeprefix("last ")
    if weekday in _DAYS:
        back = (today.weekday() - _DAYS.index(weekday)) % 7 or (7 if weekday != text else 0)
        return _local(today - timedelta(days=back))
    day = named.get(text)
    return None if day is None else _local(day)


def _local(midnight: datetime) -> datetime:
    """The same wall-clock time, with the zone's offset on that day."""
    return midnight.replace(tzinfo=None).astimezone()


def _before(now: datetime, count: int, unit: str) -> datetime:
    if unit in ("minute", "hour"):
        return now - timedelta(**{f"{unit}s": count})
    today = _midnight(now)
    if unit in ("day", "week"):
        return _local(today - timedelta(days=count * (7 if unit == "week" else 1)))
    months = today.year * 12 + today.month - 1 - count * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    day = min(today.day, monthrange(year, month + 1)[1])
    return datetime(year, month + 1, day).astimezone()


def _hour(hour: int, half: str | None) -> int:
    if half is None:
        return hour
    if not 1 <= hour <= HALF_DAY:
        raise ValueError(hour)
    return hour % HALF_DAY + (HALF_DAY if half == "pm" else 0)


def local_zone() -> tzinfo | None:
    """The zone of this machine's clock, summer time and all; None: UTC."""
    from zoneinfo import ZoneInfo

    name = os.environ.get("TZ", "").lstrip(":") or _linked()
    try:
        return ZoneInfo(name) if name else datetime.now().astimezone().tzinfo
    except (KeyError, ValueError, OSError):
        # There is no such zone on this machine: the current offset is all that is known.
        return datetime.now().astimezone().tzinfo


def _linked() -> str:
    try:
        return os.readlink("/etc/localtime").rpartition("/zoneinfo/")[2]
    except OSError:
        return ""
