"""Addresses of pages, and the filters that only pages need."""

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
from agents_ledger.render.summaries import fit_line

_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch  # what quote() leaves as it is
_LONG_ID = re.compile(r"([0-9a-fA-F]{8})[0-9a-fA-F-]{20,}")


def age(at_ms: int) -> str:
    """`now`, `5 min`, `3 d`, or the date."""
    return humanize.age(at_ms, now_ms(), "")


def iso(at_ms: int) -> str:
    return humanize.moment(at_ms).replace(" UTC", "Z").replace(" ", "T")


def short_label(label: str, most: int = 28) -> str:
    return fit_line(_LONG_ID.sub(r"\1…", label), most)


def part(text: object) -> str:
    """A text as one part of a path, percent-encoded."""
    text = str(text)
    return text if _UNRESERVED(text) else quote(text, safe="", errors="surrogatepass")


def session_url(label: str, view: str = "", **query: Any) -> str:
    path = f"/s/{part(label)}" + (f"/{view}" if view else "")
    return with_query(path, query)


def turn_url(turn_id: str, **query: Any) -> str:
    return with_query(f"/t/{part(turn_id)}", query)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """A path with the parameters that have a value."""
    if not query:
        return path
    present = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(present, errors='surrogatepass')}" if present else path


def marked(snippet: Any) -> Markup:
    spans, at = [], 0
    for start, end in snippet.marks:
        spans += [
            escape(sanitize.visible(snippet.text[at:start])),
            Markup("<mark>{}</mark>").format(sanitize.visible(snippet.text[start:end])),
        ]
        at = end
    return Markup("").join([*spans, escape(sanitize.visible(snippet.text[at:]))])


FILTERS = {
    "marked": marked,
    "age": age,
    "date": humanize.date,
    "iso": iso,
    "money": humanize.money,
    "short_label": short_label,
    "basename": lambda path: path.rstrip("/").rpartition("/")[2],
    "tail": lambda path: "/".join(path.rsplit("/", 3)[-3:]),
    "part": part,
    "quoted": shlex.quote,
}
GLOBALS: dict[str, Any] = {
    "cached": lru_cache(maxsize=64),
    "session_url": session_url,
    "turn_url": turn_url,
    "with_query": with_query,
}
