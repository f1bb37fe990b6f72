"""Markdown as HTML that is safe to open. Imported when first needed: its libraries take a while."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from agents_ledger.model.text.sanitize import visible_lines
from agents_ledger.render.bodies import code

# Characters. Longer messages are rendered each time.
CACHED_MAX = 4_000
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
    "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip


def _image(_: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    source = str(tokens[at].attrs.get("src", ""))
    text = tokens[at].content or source
    return f'<a href="{escape(source)}" rel="noopener noreferrer">{escape(text)}</a>'


def _fence(_: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    language = tokens[at].info.strip().split(" ")[0]
    return str(code(tokens[at].content, language=language))


def _renderer(*, breaks: bool) -> MarkdownIt:
    # HTML stays text. Without linkify, only links that the author wrote become links.
    options = {"html": False, "linkify": False, "breaks": breaks}
    renderer = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    renderer.add_render_rule("image", _image)
    renderer.add_render_rule("fence", _fence)
    return renderer


_RENDERERS = {breaks: _renderer(breaks=breaks) for breaks in (False, True)}


def rendered(text: str, *, breaks: bool = False) -> Markup:
    """`breaks`: a line ends where the author ended it, as people write."""
    return _cached(text, breaks) if len(text) <= CACHED_MAX else _cleaned(text, breaks)


@lru_cache(maxsize=2048)
def _cached(text: str, breaks: bool) -> Markup:
    return _cleaned(text, breaks)


def _cleaned(text: str, breaks: bool) -> Markup:
    clean = nh3.clean(
        # Escaped by the renderer already. Cleaned once more, so that a fault of the renderer or of
        # Pygments cannot put a script into a page.
        _RENDERERS[breaks].render(visible_lines(text)),
        tags=_TAGS,
        attributes={"a": {"href"}, "span": {"class"}, "pre": {"class"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer",
    )
    return Markup(clean)  # noqa: S704 - escaped, then cleaned
