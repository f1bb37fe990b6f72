"""The Jinja environment of pages and HTML exports: one set of templates, filters and styles."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from agents_ledger.model.text import humanize, sanitize
from agents_ledger.model.turns import Message
from agents_ledger.render import bodies, summaries

TEMPLATES = Path(__file__).parent / "templates"
FOLDED_MIN = 150  # characters


def new_environment(templates: Path) -> Environment:
    """Templates of a folder, and the shared ones. Every value is escaped unless it is markup."""
    environment = Environment(
        loader=FileSystemLoader([templates, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    # StrictUndefined: a misspelt name in a template fails a test instead of showing nothing.
    environment.filters.update(
        argument=lambda params_json: summaries.fit_line(summaries.argument(params_json), 240),
        compacted=summaries.compacted,
        duration=lambda milliseconds: humanize.duration(max(0, milliseconds)),
        moment=humanize.moment,
        one_line=summaries.fit_line,
        outcome=lambda call, size=None: summaries.fit_line(summaries.outcome(call, size, 120), 120),
        prose=bodies.markdown,
        size=humanize.size,
        tokens=humanize.tokens,
        visible=sanitize.visible_lines,
    )
    environment.tests["folded"] = is_folded
    environment.globals["count"] = humanize.count
    return environment


def is_folded(message: Message) -> bool:
    """Whether a message is closed until a reader opens it: a long one that neither the model nor
    a person wrote, such as instructions that an agent injects."""
    is_spoken = message.role == "assistant" or (
        message.role == "user" and message.source in (None, "human")
    )
    return not is_spoken and len(message.content or "") > FOLDED_MIN
