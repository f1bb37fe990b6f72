"""Times that a question names: `last week`, `in June`, `on 3 June 2026`.

Only whole days, weeks, months and years are recognised, in local time. A month without a year is
the latest that has begun.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from agents_ledger.model.errors import Refused
from agents_ledger.model.text.dates import moment

_MONTHS = """
january february march april may june july august september october november december
""".split()  # noqa: SIM905
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_IN = r"\b(?:in|during|of|on|from|since)\s+"
_WEEKDAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_AGO = r"(?:\d{1,3}|an?)\s+(?P<unit>day|week|month|year)s?\s+ago"
_EXPRESSIONS = [
    re.compile(text, re.IGNORECASE)
    for text in (
        rf"(?:\bon\s+)?(?:the\s+)?\b{_DAY}\s+(?:of\s+)?{_MONTH}\b(?:,?\s+{_YEAR}\b)?",
        rf"(?:\bon\s+)?\b{_MONTH}\s+{_DAY}\b(?:,?\s+{_YEAR}\b)?",
        rf"(?:{_IN})?\b{_MONTH},?\s+{_YEAR}\b",
        r"(?:\bon\s+)?\b(?P<iso>\d{4}-\d\d-\d\d)\b",
        rf"{_IN}{_MONTH}\b",
        rf"{_IN}{_YEAR}\b",
        rf"\b(?P<named>today|yesterday|(?:this|last)\s+(?:week|month|year)|last\s+(?:{_WEEKDAYS})|"
        rf"{_AGO})\b",
    )
]
_QUOTED = re.compile(r'"[^"]*"?')


class QuestionTime(NamedTuple):
    """A period, from its first moment until the first after it."""

    from_ms: int
    until_ms: int
    rest: str  # the question without the expression


def time_of(text: str, now_ms: int) -> QuestionTime | None:
    """The first time that a text names outside quotes, if there is one."""
    plain = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
    for expression in _EXPRESSIONS:
        named = expression.search(plain)
        if named is not None:
            with suppress(Refused, ValueError, OverflowError):
                begins, days = _period(named.groupdict(), now_ms)
                rest = f"{text[: named.start()]} {text[named.end() :]}".strip()
                return QuestionTime(_ms(begins), _ms(begins + days), rest)
    return None


def _ms(date: datetime) -> int:
    return int(date.astimezone().timestamp() * 1000)


def _period(parts: dict[str, str | None], now_ms: int) -> tuple[datetime, timedelta]:
    """Where a period begins, and its length."""
    day = timedelta(days=1)
    if parts.get("named"):
        return _named(str(parts["named"]).lower(), parts.get("unit"), now_ms)
    if parts.get("iso"):
        return datetime.fromisoformat(str(parts["iso"])), day
    now = datetime.fromtimestamp(now_ms / 1000)
    year = int(parts.get("year") or now.year)
    if not parts.get("month"):
        return _month(year, 1), _month(year + 1, 1) - _month(year, 1)
    month = _MONTHS.index(str(parts["month"]).lower()) + 1
    if not parts.get("year") and month > now.month:
        year -= 1
    first = _month(year, month)
    if parts.get("day"):
        return first.replace(day=int(str(parts["day"]))), day
    return first, _month(year, month + 1) - first


def _named(name: str, unit: str | None, now_ms: int) -> tuple[datetime, timedelta]:
    begins = datetime.fromtimestamp(moment(name, now_ms) / 1000)
    if unit == "week" or name.endswith("week"):
        return begins, timedelta(days=7)
    if unit == "year" or name.endswith("year"):
        return begins, _month(begins.year + 1, begins.month) - _month(begins.year, begins.month)
    if unit == "month" or name.endswith("month"):
        return begins, _month(begins.year, begins.month + 1) - _month(begins.year, begins.month)
    return begins, timedelta(days=1)


def _month(year: int, month: int) -> datetime:
    """Where a month begins; the 13th is the first of the next year."""
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)
