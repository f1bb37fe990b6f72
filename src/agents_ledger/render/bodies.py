"""What is in a message or a tool call, as HTML that can do nothing.

Text is escaped, never stripped: a ledger is evidence. Only what is made here becomes markup, and
nothing in it is loaded from elsewhere: an image of a message is a link to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import TextLexer, get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

from agents_ledger.model.files.file_contents import difference, edits_of, first_text
from agents_ledger.model.files.file_tools import changes_of, decoded, path_of
from agents_ledger.model.text.sanitize import visible_lines
from agents_ledger.render.summaries import command_of, texts_of

CODE_MAX = 50_000  # longer code is shown without colours
REMEMBERED_MAX = 4_000  # longer messages are drawn anew each time
SHOWN_MAX = 200_000  # of one text, unless said otherwise
DEEPEST = 6
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
    "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_FORMATTER = HtmlFormatter(nowrap=True, classprefix="c-")


# -- markdown ---------------------------------------------------------------------------------


def _image(_: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    source = str(tokens[at].attrs.get("src", ""))
    shown = tokens[at].content or source
    return f'<a href="{escape(source)}" rel="noopener noreferrer">{escape(shown)}</a>'


def _fence(_: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    language = tokens[at].info.strip().split(" ")[0]
    return str(code(tokens[at].content, _by_name(language)))


_markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(
    ["table", "strikethrough"]
)
_markdown.add_render_rule("image", _image)
_markdown.add_render_rule("fence", _fence)


# A letter, then nothing that Markdown has a meaning for.
_PLAIN = re.compile(r"[^\W\d_][\w ,.;:'\"()/?%=+-]*")


def markdown(text: str) -> Markup:
    """A message as it was meant to be read."""
    if "_" not in text and _PLAIN.fullmatch(text):
        return Markup(f"<p>{escape(text.strip())}</p>\n")  # noqa: S704 - it is escaped
    return _markdown_of(text) if len(text) <= REMEMBERED_MAX else _cleaned(text)


@lru_cache(maxsize=2048)
def _markdown_of(text: str) -> Markup:
    return _cleaned(text)


def _cleaned(text: str) -> Markup:
    made = _markdown.render(visible_lines(text))
    clean = nh3.clean(
        made,
        tags=_TAGS,
        attributes={"a": {"href"}, "span": {"class"}, "pre": {"class"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer",
    )
    return Markup(clean)  # noqa: S704 - made of escaped text and cleaned


# -- code -------------------------------------------------------------------------------------


def _by_name(language: str) -> Lexer:
    try:
        return get_lexer_by_name(language) if language else TextLexer()
    except (ClassNotFound, ValueError):
        return TextLexer()


def by_path(path: str) -> Lexer:
    """How a file of this name is coloured."""
    try:
        return get_lexer_for_filename(path)
    except (ClassNotFound, ValueError):
        return TextLexer()


def code(text: str, lexer: Lexer | None = None) -> Markup:
    """Code with its colours, as classes."""
    text = visible_lines(text)
    if lexer is None or isinstance(lexer, TextLexer) or len(text) > CODE_MAX:
        return Markup('<pre class="code">{}</pre>').format(text)
    return _coloured(text, lexer)


@lru_cache(maxsize=256)
def _coloured(text: str, lexer: Lexer) -> Markup:
    inner = highlight(text, lexer, _FORMATTER)
    return Markup(f'<pre class="code">{inner}</pre>')  # noqa: S704 - Pygments escapes


def diff(old: str, new: str, path: str = "") -> Markup:
    """What was taken away and what was put in its place."""
    return patch(difference(old, new), path)


_PATCH_CLASSES = {"+": "ins", "-": "del", "@": "at"}


def patch(text: str, path: str = "") -> Markup:
    """A patch, each line with its sign."""
    rows = Markup("").join(
        Markup('<span class="{}">{}</span>').format(_PATCH_CLASSES.get(line[:1], "same"), line)
        for line in visible_lines(text).split("\n")
    )
    return _titled(path, Markup('<pre class="diff">{}</pre>').format(rows))


def _titled(path: str, body: Markup) -> Markup:
    return Markup('<div class="path">{}</div>{}').format(path, body) if path else body


# -- tool calls -------------------------------------------------------------------------------


def parameters(params_json: str, most: int = SHOWN_MAX) -> Markup:
    """What a tool was asked for: a diff as a diff, a command as a command, a list as a list."""
    params = decoded(params_json)
    if not isinstance(params, dict):
        return text_block(params_json, most)
    for draw in (_edits, _patch, _changes, _todos, _command, _written):
        drawn = draw(params, most)
        if drawn is not None:
            return drawn
    return _json(params, params_json, most)


def _edits(params: dict[str, Any], most: int) -> Markup | None:
    drawn = [diff(old[:most], new[:most]) for old, new in edits_of(params)]
    return _titled(path_of(params), Markup("").join(drawn)) if drawn else None


def _patch(params: dict[str, Any], most: int) -> Markup | None:
    text = first_text(params, "patch", "diff", "input")
    if text is None or not text.lstrip().startswith(("*** Begin Patch", "--- ", "diff --git")):
        return None
    return patch(text[:most], path_of(params))


def _changes(params: dict[str, Any], most: int) -> Markup | None:
    drawn = [
        patch(each.diff[:most], each.moved_to or each.path)
        if each.diff is not None
        else diff("", each.content[:most], each.path)
        for each in changes_of(params)
    ]
    return Markup("").join(drawn) if drawn else None


def _todos(params: dict[str, Any], most: int) -> Markup | None:
    todos = params.get("todos", params.get("plan"))
    if not isinstance(todos, list) or not all(isinstance(todo, dict) for todo in todos):
        return None
    rows = [
        Markup('<li class="todo {}"><span class="state">{}</span> {}</li>').format(
            str(todo.get("status", "pending")),
            str(todo.get("status", "pending")).replace("_", " "),
            str(todo.get("content") or todo.get("step") or todo.get("title") or ""),
        )
        for todo in todos
    ]
    return Markup('<ul class="todos">{}</ul>').format(Markup("").join(rows))


def _command(params: dict[str, Any], most: int) -> Markup | None:
    command = command_of(params)
    if command is None:
        return None
    said = first_text(params, "description")
    about = Markup('<p class="about">{}</p>').format(said) if said else Markup("")
    shown = visible_lines(command[:most])
    return Markup('{}<pre class="shell"><b>$</b> {}</pre>').format(about, shown)


def _written(params: dict[str, Any], most: int) -> Markup | None:
    path, content = path_of(params), first_text(params, "content", "contents", "new_source")
    if not path or content is None:
        return None
    return Markup('<div class="path">{}</div>{}').format(path, code(content[:most], by_path(path)))


def _json(value: Any, text: str, most: int) -> Markup:
    try:
        shown = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        shown = text
    return code(shown[:most], _by_name("json"))


def text_block(text: str, most: int = SHOWN_MAX) -> Markup:
    """Text exactly as it is."""
    shown = visible_lines(text[:most])
    more = Markup("")
    if len(text) > most:
        more = Markup('<p class="muted">{:,} more characters are in the ledger.</p>').format(
            len(text) - most
        )
    return Markup('<pre class="text">{}</pre>{}').format(shown, more)


def result(result_json: str | None, image_url: str | None = None, most: int = SHOWN_MAX) -> Markup:
    """What came of a call: its text, its pictures, or its JSON.

    Pictures are found under `image_url`, by number; without one they are in the page itself.
    """
    value = decoded(result_json)
    if value is None:
        return Markup("")
    texts = list(texts_of(value))
    shown = [text_block("\n".join(texts), most)] if texts else []
    for number, (kind, data) in enumerate(images(value)):
        source = f"data:{kind};base64,{data}" if image_url is None else f"{image_url}/{number}"
        shown.append(
            Markup('<img class="shot" loading="lazy" alt="Image {}" src="{}">').format(
                number + 1, source
            )
        )
    if not shown:
        return _json(value, result_json or "", most)
    return Markup("").join(shown)


def images(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The pictures in a value: their kind and their base64."""
    if depth > DEEPEST:
        return
    if isinstance(value, list):
        for each in value:
            yield from images(each, depth + 1)
    elif isinstance(value, dict):
        source = value.get("source") if isinstance(value.get("source"), dict) else value
        kind = source.get("media_type") or source.get("mimeType") if source else None
        data = source.get("data") if source else None
        if kind in IMAGES and isinstance(data, str) and _BASE64.fullmatch(data):
            yield str(kind), data
            return
        for each in value.values():
            yield from images(each, depth + 1)
