"""The Jinja environment of pages and HTML exports: one set of templates, filters and styles."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from agents_ledger.model.text import humanize, sanitize
from agents_ledger.render import bodies, subagents, summaries
from agents_ledger.render.injected import injected_name, is_folded
from agents_ledger.render.turn_status import turn_status

TEMPLATES = Path(__file__).parent / "templates"


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
        injected_name=injected_name,
        moment=humanize.moment,
        one_line=summaries.fit_line,
        outcome=lambda call, size=None: summaries.fit_line(summaries.outcome(call, size, 120), 120),
        prose=bodies.markdown,
        size=humanize.size,
        subagent_answer=subagents.answer,
        subagent_name=subagents.name,
        subagent_status=subagents.status,
        tokens=humanize.tokens,
        turn_status=turn_status,
        visible=sanitize.visible_lines,
    )
    environment.tests["folded"] = is_folded
    environment.globals["count"] = humanize.count
    return environment
