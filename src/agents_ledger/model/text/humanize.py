"""Numbers as people read them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

_SECOND_MS = 1000
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_DAY_MS = 86_400_000
_AGES = (
    (10_000, None, 1),
    (_MINUTE_MS, "s", _SECOND_MS),
    (_HOUR_MS, "min", _MINUTE_MS),
    (_DAY_MS, "h", _HOUR_MS),
    (60 * _DAY_MS, "d", _DAY_MS),
)
_DIGITS_MAX = 100  # from here on a fraction tells nothing
_CENT = 10_000  # millionths of a dollar


def _scaled(amount: float, units: tuple[str, ...], step: int) -> tuple[str, str]:
    """The number and its unit, in the largest unit that leaves a whole part."""
    unit, *larger = units
    while amount >= step and larger:
        amount /= step
        unit, *larger = larger
    whole = unit == units[0] or amount >= _DIGITS_MAX
    return (f"{amount:.0f}" if whole else f"{amount:.1f}"), unit


def count(number: int, word: str, words: str = "") -> str:
    """1 turn, 2 turns, 1,234 turns."""
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def tokens(number: int | None) -> str:
    """812, 2.1k, 150k, 1.2M."""
    return "" if number is None else "".join(_scaled(number, ("", "k", "M", "G"), 1000))


def size(number: int) -> str:
    """14 B, 1.2 KB, 3.4 MB."""
    return " ".join(_scaled(number, ("B", "KB", "MB", "GB"), 1024))


def duration(milliseconds: int) -> str:
    """12 ms, 4.2 s, 3 min, 5 h, 1,234 d."""
    if milliseconds < _SECOND_MS:
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE_MS:
        return f"{milliseconds / _SECOND_MS:.1f} s"
    units = (("d", _DAY_MS), ("h", _HOUR_MS))
    unit, length = next((u for u in units if milliseconds >= 2 * u[1]), ("min", _MINUTE_MS))
    return f"{milliseconds // length:,} {unit}"


def age(at_ms: int, now_ms: int, ago: str = " ago") -> str:
    """Now, 5 min ago, 3 d ago, or the date."""
    passed = max(0, now_ms - at_ms)
    for limit, unit, length in _AGES:
        if passed < limit:
            return f"{passed // length} {unit}{ago}" if unit else "now"
    return date(at_ms)


def date(at_ms: int) -> str:
    """The day, as in 2026-02-05; 0 is no time."""
    return _at(at_ms).date().isoformat() if at_ms else "undated"


def round_money(microdollars: int) -> str:
    """$120, $0.50: the value of a mark of an axis."""
    return money(microdollars).removesuffix(".00")


@lru_cache(maxsize=4096)
def moment(at_ms: int) -> str:
    """The time, as in 2026-02-05 14:02 UTC; 0 is no time."""
    return f"{_at(at_ms):%Y-%m-%d %H:%M} UTC" if at_ms else "undated"


def iso(at_ms: int) -> str:
    """The time for programs, as in 2026-02-05T14:02:07Z; 0 is no time."""
    return f"{_at(at_ms):%Y-%m-%dT%H:%M:%SZ}" if at_ms else ""


def _at(at_ms: int) -> datetime:
    from datetime import UTC, datetime, timedelta

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    try:
        return epoch + timedelta(milliseconds=at_ms)
    except OverflowError:  # a source may say anything
        return epoch


def money(microdollars: int) -> str:
    """$12.34, $0.0042."""
    dollars = microdollars / 1_000_000
    return f"${dollars:,.2f}" if microdollars >= _CENT or not microdollars else f"${dollars:.4f}"
