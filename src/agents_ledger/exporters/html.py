"""A thread as one HTML file that needs no script and loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markupsafe import Markup

from agents_ledger.exporters.exported_thread import ExportedThread
from agents_ledger.exporters.html_cards import card, label
from agents_ledger.model.secrets.masking import review
from agents_ledger.model.text import humanize
from agents_ledger.model.text.humanize import count
from agents_ledger.model.text.sanitize import visible_lines
from agents_ledger.render.conversation import STYLE
from agents_ledger.render.elements import element, lines

TEXT_MAX = 20_000  # characters of one body, unless `full`
UNLIMITED = 1 << 62
CONTENTS_MIN = 3  # turns that need a table of contents
LONG_MIN = 201  # turns; a browser then lays them out only as they come into view

_HEAD = Markup("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="Agents Ledger">
<title>{title}</title>
<style>{style}</style>
</head>
<body{class_}>
<main>
""")


def as_html(exported: ExportedThread, *, full: bool = False) -> Iterator[str]:
    """The page, one turn at a time. Its policy allows no other style than its own."""
    style, digest = _style()
    title = label(exported.title)
    class_ = Markup(' class="long"') if exported.thread.depth >= LONG_MIN else ""
    yield _HEAD.format(digest=digest, title=title, style=style, class_=class_)
    note = exported.session.note if exported.session else None
    yield element(
        "header",
        element("h1", title),
        element("p", lines(_facts(exported)), class_="facts"),
        element("div", visible_lines(note), class_="text-body note") if note else None,
        _contents(exported),
        class_="top",
    )
    if exported.first_depth > 1:
        above = count(exported.first_depth - 1, "turn")
        yield element("p", f"The {above} above are not included.", class_="muted")
    for turn in exported.turns():
        yield card(turn, exported, UNLIMITED if full else TEXT_MAX) + "\n"
    yield element("footer", _masked(exported))
    yield "\n</main>\n</body>\n</html>\n"


@cache
def _style() -> tuple[Markup, str]:
    """The style sheet, and the hash by which the page's policy allows it."""
    style = STYLE.read_text(encoding="utf-8") + "\n"
    style += Path(__file__).with_name("export.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Markup(style), digest  # noqa: S704 - it is a file of the program


def _facts(exported: ExportedThread) -> Iterator[Markup]:
    session, thread = exported.session, exported.thread
    if session:
        yield element("span", "session ", element("code", label(session.label)))
        if session.origin != "native":
            yield element("span", f"from {label(session.origin)}")
    yield element("span", count(thread.depth, "turn"))
    yield element("span", f"{humanize.tokens(thread.total_tokens)} tokens")
    if thread.compaction_count:
        yield element("span", count(thread.compaction_count, "compaction"))
    if thread.model:
        yield element("span", label(thread.model))
    if session:
        yield element("span", f"updated {humanize.moment(session.updated_at)}")


def _contents(exported: ExportedThread) -> Markup | None:
    prompts = exported.prompts()
    if len(prompts) < CONTENTS_MIN:
        return None
    items = []
    for prompt in prompts:
        text = prompt.text or ("compaction" if prompt.turn.compaction else "no message")
        items.append(element("li", element("a", label(text), href=f"#t-{prompt.turn.id}")))
    return element(
        "details",
        element("summary", "Contents"),
        element("ol", lines(items), start=exported.first_depth),
        class_="contents",
    )


def _masked(exported: ExportedThread) -> Markup:
    masked = exported.masked
    if not masked:
        is_clean = "No secrets were found in this copy."
        return element(
            "p",
            is_clean if exported.is_masked else "This copy was not checked for secrets.",
            class_="muted",
        )
    kinds = ", ".join(f"{number} {kind}" for kind, number in review(masked).items())
    headings = [element("th", name) for name in ("Kind", "Where", "Shown as", "Times")]
    rows = [
        element(
            "tr",
            element("td", mask.kind),
            element("td", label(mask.where)),
            element("td", element("code", label(mask.shown))),
            element("td", mask.count),
        )
        for mask in masked
    ]
    head, body = element("thead", element("tr", *headings)), element("tbody", lines(rows))
    return element(
        "details",
        element("summary", f"Masked in this copy: {kinds}"),
        element("table", head, body),
        class_="masked",
    )
