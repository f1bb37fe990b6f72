"""Addresses of pages, and the filters and functions of their templates."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.pages import UNTITLED, name_of
from agents_ledger.model.reports.search import Snippet
from agents_ledger.model.sessions import Session
from agents_ledger.model.text import humanize, sanitize
from agents_ledger.render import bodies, conversation, subagents, summaries
from agents_ledger.render.summaries import fit_line
from agents_ledger.render.turn_status import reason, turn_status

_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch  # what quote() leaves as it is
_LONG_ID = re.compile(r"([0-9a-fA-F]{8})[0-9a-fA-F-]{20,}")


def age(at_ms: int) -> str:
    """`now`, `5 min`, `3 d`, or the date."""
    return humanize.age(at_ms, now_ms(), "")


def short_label(label: str, most: int = 28) -> str:
    return fit_line(_LONG_ID.sub(r"\1…", label), most)


def flag(session: Session, most: int) -> str:
    """A session as a flag in a tree: by its label, unless a program made that."""
    if session.created_as not in ("import", "subagent"):
        return short_label(session.label, most)
    name = name_of(session, None)
    return "session" if name == UNTITLED else fit_line(name, most)


def part(text: object) -> str:
    """A text as one part of a path, percent-encoded."""
    text = str(text)
    return text if _UNRESERVED(text) else quote(text, safe="", errors="surrogatepass")


def path_end(path: str, most: int) -> str:
    """The end of a path, from the beginning of a folder if possible: it tells files apart."""
    if len(path) <= most:
        return path
    end = path[-most:]
    folder = end.replace("\\", "/").find("/")
    return "…" + (end[folder:] if 0 <= folder < most // 2 else end)


def session_url(label: str, view: str = "", **query: Any) -> str:
    path = f"/s/{part(label)}" + (f"/{view}" if view else "")
    return with_query(path, query)


def turn_url(turn_id: str, **query: Any) -> str:
    return with_query(f"/t/{part(turn_id)}", query)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """A path with the parameters that have a value."""
    if not query:
        return path
    present = {name: value for name, value in query.items() if value not in (None, "", False, ())}
    encoded = urlencode(present, doseq=True, errors="surrogatepass")
    return f"{path}?{encoded}" if present else path


def step_anchor(turn_id: str, snippet: Snippet) -> str:
    """The id of the element that shows the message or call of a snippet; empty: the turn."""
    if snippet.message_id:
        return f"m-{snippet.message_id}"
    return "" if snippet.sequence is None else f"c-{turn_id}-{snippet.sequence}"


def match_url(turn_id: str, snippet: Snippet, words: Sequence[str], **query: Any) -> str:
    """The page of a turn, which opens the message or call of a snippet and marks words in it."""
    place = turn_url(turn_id, mark=tuple(words), step=snippet.sequence, **query)
    return f"{place}#{part(step_anchor(turn_id, snippet))}"


def marked(snippet: Any) -> Markup:
    spans, at = [], 0
    for start, end in snippet.marks:
        spans += [
            escape(sanitize.visible(snippet.text[at:start])),
            Markup("<mark>{}</mark>").format(sanitize.visible(snippet.text[start:end])),
        ]
        at = end
    return Markup("").join([*spans, escape(sanitize.visible(snippet.text[at:]))])


def breakable(name: str) -> Markup:
    """A name that is broken behind its separators where it does not fit a line."""
    parts = re.split(r"(?<=[_.:/\\-])(?=[^_.:/\\-])", name)
    return Markup("<wbr>").join(map(escape, parts))


FILTERS = {
    "breakable": breakable,
    "marked": marked,
    "age": age,
    "clock": lambda at_ms: humanize.moment(at_ms).partition(" ")[2],
    "date": humanize.date,
    "iso": humanize.iso,
    "money": humanize.money,
    "flag": flag,
    "basename": lambda path: path.rstrip("/").rpartition("/")[2],
    "tail": lambda path: re.sub(r"^.*[/\\](?=(?:[^/\\]+[/\\]){2})", "", path, flags=re.S),
    "part": part,
    "path_end": path_end,
    "quoted": shlex.quote,
    "reason": reason,
    "argument": lambda params_json: fit_line(summaries.argument(params_json), 240),
    "compacted": summaries.compacted,
    "duration": lambda milliseconds: humanize.duration(max(0, milliseconds)),
    "moment": humanize.moment,
    "one_line": fit_line,
    "prose": bodies.markdown,
    "size": humanize.size,
    "subagent_answer": subagents.answer,
    "subagent_name": subagents.name,
    "subagent_status": subagents.status,
    "tokens": humanize.tokens,
    "turn_status": turn_status,
    "visible": sanitize.visible_lines,
}
GLOBALS: dict[str, Any] = {
    "match_url": match_url,
    "step_anchor": step_anchor,
    "cached": lru_cache(maxsize=64),
    "conversation": conversation,
    "count": humanize.count,
    "session_url": session_url,
    "turn_url": turn_url,
    "with_query": with_query,
}
