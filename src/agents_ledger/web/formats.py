"""Values as pages show them. All return plain text, which the templates escape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup, escape

from agents_ledger.model.ids import now_ms

_DAY_MS = 86_400_000
_AGES = (
    (10_000, None, 1),
    (60_000, "s", 1000),
    (3_600_000, "min", 60_000),
    (_DAY_MS, "h", 3_600_000),
    (60 * _DAY_MS, "d", _DAY_MS),
)
_DIGITS_MAX = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS_MAX = 300_000  # days, so that a wrong time is still a time
_SPACE = re.compile(r"\s+")
# Of a tool's parameters the one worth a line, the most telling first.
_TELLING = (
    "command", "file_path", "path", "pattern", "query", "url", "description", "prompt", "name",
    "notebook_path", "cmd", "target_file", "relative_workspace_path", "text",
)  # fmt: skip


def _scaled(amount: float, units: tuple[str, ...], step: int) -> tuple[str, str]:
    unit, *larger = units
    while amount >= step and larger:
        amount /= step
        unit, *larger = larger
    whole = unit == units[0] or amount >= _DIGITS_MAX
    return (f"{amount:.0f}" if whole else f"{amount:.1f}"), unit


def tokens(number: int | None) -> str:
    """812, 2.1k, 150k, 1.2M."""
    return "" if number is None else "".join(_scaled(number, ("", "k", "M", "G"), 1000))


def size(number: int) -> str:
    """14 B, 1.2 KB, 3.4 MB."""
    return " ".join(_scaled(number, ("B", "KB", "MB", "GB"), 1024))


def duration(milliseconds: int) -> str:
    """12 ms, 4.2 s, 3 min 5 s, 2 h 4 min."""
    if milliseconds < 1000:  # noqa: PLR2004
        return f"{max(0, milliseconds)} ms"
    seconds = milliseconds // 1000
    if seconds < 60:  # noqa: PLR2004
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def count(number: int, word: str, words: str = "") -> str:
    """1 turn, 2 turns, 1,234 turns."""
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def age(at_ms: int, now: int) -> str:
    """Now, 5 min, 3 d, or the date."""
    passed = max(0, now - at_ms)
    for limit, unit, length in _AGES:
        if passed < limit:
            return f"{passed // length} {unit}" if unit else "now"
    return date(at_ms)


def _at(at_ms: int) -> datetime:
    days = max(-_YEARS_MAX, min(_YEARS_MAX, at_ms // _DAY_MS))
    return _EPOCH + timedelta(days=days, milliseconds=at_ms % _DAY_MS)


def date(at_ms: int) -> str:
    """The day, as in 2026-02-05."""
    return _at(at_ms).date().isoformat()


def moment(at_ms: int) -> str:
    """The time, as in 2026-02-05 14:02:11 UTC."""
    return _at(at_ms).strftime("%Y-%m-%d %H:%M:%S") + " UTC"


def clock(at_ms: int) -> str:
    """The time of day."""
    return _at(at_ms).strftime("%H:%M")


def iso(at_ms: int) -> str:
    """The time for machines."""
    return _at(at_ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def one_line(text: str | None, most: int = 160) -> str:
    """Text on one line, cut where it would be too long."""
    text = _SPACE.sub(" ", text or "").strip()
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def argument(params_json: str) -> str:
    """The parameter of a call that tells most, or all of them."""
    try:
        params = msgspec.json.decode(params_json)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        found = re.search(rf'"(?:{"|".join(_TELLING)})"\s*:\s*"((?:[^"\\]|\\.)*)', params_json)
        return one_line(found[1] if found else params_json)
    if not isinstance(params, dict):
        return one_line(params_json)
    for name in _TELLING:
        if isinstance(params.get(name), str) and params[name]:
            return one_line(params[name])
    return one_line(params_json) if params else ""


def session_url(label: str, view: str = "", **query: Any) -> str:
    """The page of a session."""
    path = f"/s/{quote(label, safe='')}" + (f"/{view}" if view else "")
    return with_query(path, query)


def turn_url(turn_id: str, **query: Any) -> str:
    """The page of a turn."""
    return with_query(f"/t/{quote(turn_id, safe='')}", query)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """A path with those parameters that say something."""
    said = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(said)}" if said else path


def marked(snippet: Any) -> Markup:
    """A snippet with what was found in it marked."""
    pieces, at = [], 0
    for start, end in snippet.marks:
        pieces += [
            escape(snippet.text[at:start]),
            Markup("<mark>{}</mark>").format(snippet.text[start:end]),
        ]
        at = end
    return Markup("").join([*pieces, escape(snippet.text[at:])])


FILTERS = {
    "marked": marked,
    "age": lambda at_ms: age(at_ms, now_ms()),
    "argument": argument,
    "clock": clock,
    "date": date,
    "duration": duration,
    "iso": iso,
    "moment": moment,
    "one_line": one_line,
    "size": size,
    "tokens": tokens,
    "basename": lambda path: path.rstrip("/").rpartition("/")[2],
    "part": lambda text: quote(str(text), safe=""),
}
GLOBALS: dict[str, Any] = {
    "count": count,
    "session_url": session_url,
    "turn_url": turn_url,
    "with_query": with_query,
}
