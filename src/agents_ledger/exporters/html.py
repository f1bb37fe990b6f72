"""A thread as one HTML file: readable without script, loading nothing, hostile text escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache, partial

from jinja2 import Environment, PackageLoader

from agents_ledger.exporters.material import Material
from agents_ledger.exporters.secrets import review
from agents_ledger.model.text import humanize
from agents_ledger.model.text.sanitize import one_line, visible, visible_lines
from agents_ledger.render import bodies, summaries

TEXT_MAX = 20_000  # of one body, unless all is asked for
LINE_MAX = 240
ALL = 1 << 62


def as_html(material: Material, *, full: bool = False) -> Iterator[str]:
    """The page, a turn at a time. It names the hash of its style: no other is applied."""
    environment = _environment(full=full)
    style = environment.get_template("export.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template("export.html")
    return page.generate(material=material, style_hash=digest)


@cache
def _environment(*, full: bool) -> Environment:
    most = ALL if full else TEXT_MAX
    made = Environment(
        loader=PackageLoader("agents_ledger.exporters"), autoescape=True, trim_blocks=True
    )
    made.filters.update(
        argument=summaries.argument,
        code=lambda text: bodies.code(text[:most]),
        compacted=summaries.compacted,
        duration=humanize.duration,
        moment=humanize.moment,
        outcome=summaries.outcome,
        parameters=partial(bodies.parameters, most=most),
        prose=bodies.markdown,
        result=lambda result_json: bodies.result(result_json, most=most),
        shown=_shown,
        text=visible_lines,
        tokens=humanize.tokens,
    )
    made.globals.update(count=humanize.count, review=review)
    return made


def _shown(text: str) -> str:
    """Text on one line."""
    text = visible(one_line(text))
    return text if len(text) <= LINE_MAX else text[: LINE_MAX - 1].rstrip() + "…"
