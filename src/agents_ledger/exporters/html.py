"""A thread as one HTML file that needs no script and loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from agents_ledger.exporters.exported_thread import ExportedThread
from agents_ledger.model.secrets.masking import review
from agents_ledger.render import bodies
from agents_ledger.render.environment import new_environment

TEXT_MAX = 20_000  # characters of one body, unless `full`
UNLIMITED = 1 << 62


def as_html(exported: ExportedThread, *, full: bool = False) -> Iterator[str]:
    """The page, one turn at a time. Its policy allows no other style than its own."""
    environment = _environment(full=full)
    style = environment.get_template("export.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template("export.html")
    return page.generate(exported=exported, style=Markup(style), style_hash=digest)  # noqa: S704


@cache
def _environment(*, full: bool) -> Environment:
    most = UNLIMITED if full else TEXT_MAX
    environment = new_environment(Path(__file__).parent / "templates")
    environment.filters.update(
        code=lambda text: bodies.code(text[:most]),
        parameters=partial(bodies.parameters, most=most),
        result=lambda result_json: bodies.result(result_json, most=most),
    )
    environment.globals["review"] = review
    return environment
