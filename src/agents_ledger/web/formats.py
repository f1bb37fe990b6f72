"""Values as pages show them. All return plain text, which the templates escape."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from agents_ledger.model.ids import now_ms
from agents_ledger.model.text import humanize, sanitize
from agents_ledger.render import summaries

_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch  # what quote() leaves as it is
_LONG_ID = re.compile(r"([0-9a-fA-F]{8})[0-9a-fA-F-]{20,}")


def age(at_ms: int) -> str:
    """Now, 5 min, 3 d, or the date."""
    return humanize.age(at_ms, now_ms(), "")


def iso(at_ms: int) -> str:
    """The time for machines."""
    return humanize.moment(at_ms).replace(" UTC", "Z").replace(" ", "T")


def one_line(text: str | None, most: int = 160) -> str:
    """Text on one line with nothing hidden in it, cut where it would be too long."""
    text = text or ""
    if not sanitize.is_plain_line(text):
        text = sanitize.visible(sanitize.one_line(text))
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def short_label(label: str, most: int = 28) -> str:
    """A label with the long ids in it cut to their first letters."""
    return one_line(_LONG_ID.sub(r"\1…", label), most)


def part(text: object) -> str:
    """A text as one part of a path; halves of characters too."""
    text = str(text)
    return text if _UNRESERVED(text) else quote(text, safe="", errors="surrogatepass")


def session_url(label: str, view: str = "", **query: Any) -> str:
    """The page of a session."""
    path = f"/s/{part(label)}" + (f"/{view}" if view else "")
    return with_query(path, query)


def turn_url(turn_id: str, **query: Any) -> str:
    """The page of a turn."""
    return with_query(f"/t/{part(turn_id)}", query)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """A path with those parameters that say something."""
    if not query:
        return path
    said = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(said, errors='surrogatepass')}" if said else path


def marked(snippet: Any) -> Markup:
    """A snippet with what was found in it marked."""
    pieces, at = [], 0
    for start, end in snippet.marks:
        pieces += [
            escape(sanitize.visible(snippet.text[at:start])),
            Markup("<mark>{}</mark>").format(sanitize.visible(snippet.text[start:end])),
        ]
        at = end
    return Markup("").join([*pieces, escape(sanitize.visible(snippet.text[at:]))])


FILTERS = {
    "marked": marked,
    "age": age,
    "argument": lambda params_json: one_line(summaries.argument(params_json)),
    "date": humanize.date,
    "duration": lambda milliseconds: humanize.duration(max(0, milliseconds)),
    "iso": iso,
    "moment": humanize.moment,
    "money": humanize.money,
    "one_line": one_line,
    "short_label": short_label,
    "size": humanize.size,
    "tokens": humanize.tokens,
    "basename": lambda path: path.rstrip("/").rpartition("/")[2],
    "tail": lambda path: "/".join(path.rsplit("/", 3)[-3:]),
    "part": part,
    "visible": sanitize.visible_lines,
    "quoted": shlex.quote,
}
GLOBALS: dict[str, Any] = {
    "remembered": lru_cache(maxsize=64),
    "count": humanize.count,
    "session_url": session_url,
    "turn_url": turn_url,
    "with_query": with_query,
}
