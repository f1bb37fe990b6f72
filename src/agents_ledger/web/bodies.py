"""What is in a message or a tool call, as HTML that can do nothing.

Text is escaped, never stripped: a ledger is evidence. Only what is made here becomes markup, and
nothing in it is loaded from elsewhere: an image of a message is a link to it.
"""

from __future__ import annotations

import difflib
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

CODE_MAX = 50_000  # longer code is shown without colours
DIFF_LINES_MAX = 2000
SHOWN_MAX = 200_000  # of one text, in a page of its own
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


def markdown(text: str) -> Markup:
    """A message as it was meant to be read."""
    made = _markdown.render(text)
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
    if lexer is None or isinstance(lexer, TextLexer) or len(text) > CODE_MAX:
        return Markup('<pre class="code">{}</pre>').format(text)
    return _coloured(text, lexer)


@lru_cache(maxsize=256)
def _coloured(text: str, lexer: Lexer) -> Markup:
    inner = highlight(text, lexer, _FORMATTER)
    return Markup(f'<pre class="code">{inner}</pre>')  # noqa: S704 - Pygments escapes


def diff(old: str, new: str, path: str = "") -> Markup:
    """What was taken away and what was put in its place."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3))[2:]
    if len(lines) > DIFF_LINES_MAX:
        left = len(lines) - DIFF_LINES_MAX
        lines = [*lines[:DIFF_LINES_MAX], f"@@ {left} more lines @@"]
    return patch("\n".join(lines), path)


_PATCH_CLASSES = {"+": "ins", "-": "del", "@": "at"}


def patch(text: str, path: str = "") -> Markup:
    """A patch, each line with its sign."""
    rows = Markup("").join(
        Markup('<span class="{}">{}</span>\n').format(_PATCH_CLASSES.get(line[:1], "same"), line)
        for line in text.split("\n")
    )
    title = Markup('<div class="path">{}</div>').format(path) if path else Markup("")
    return Markup('{}<pre class="diff">{}</pre>').format(title, rows)


# -- tool calls -------------------------------------------------------------------------------


def decode(text: str | None) -> Any:
    """The value of a JSON text; text that is none is itself."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def parameters(params_json: str) -> Markup:
    """What a tool was asked for: a diff as a diff, a command as a command, a list as a list."""
    params = decode(params_json)
    if not isinstance(params, dict):
        return text_block(params_json)
    for draw in (_edits, _patch, _todos, _command, _written):
        drawn = draw(params)
        if drawn is not None:
            return drawn
    return _json(params, params_json)


def _first(params: dict[str, Any], *names: str) -> str | None:
    return next((params[name] for name in names if isinstance(params.get(name), str)), None)


def _path(params: dict[str, Any]) -> str:
    return _first(params, "file_path", "path", "filePath", "target_file", "notebook_path") or ""


def _edits(params: dict[str, Any]) -> Markup | None:
    edits = params.get("edits")
    pairs = [params, *edits] if isinstance(edits, list) else [params]
    drawn: list[Markup] = []
    for pair in pairs:
        if not isinstance(pair, dict):
            continue
        old = _first(pair, "old_string", "old", "oldText", "old_str", "oldString")
        new = _first(pair, "new_string", "new", "newText", "new_str", "newString")
        if old is not None and new is not None:
            drawn.append(diff(old, new, "" if drawn else _path(params)))
    return Markup("").join(drawn) if drawn else None


def _patch(params: dict[str, Any]) -> Markup | None:
    text = _first(params, "patch", "diff", "input")
    if text is None or not text.lstrip().startswith(("*** Begin Patch", "--- ", "diff --git")):
        return None
    return patch(text[:SHOWN_MAX], _path(params))


def _todos(params: dict[str, Any]) -> Markup | None:
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


def _command(params: dict[str, Any]) -> Markup | None:
    command = params.get("command", params.get("cmd"))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = " ".join(command)
    if not isinstance(command, str):
        return None
    said = _first(params, "description")
    about = Markup('<p class="about">{}</p>').format(said) if said else Markup("")
    return Markup('{}<pre class="shell"><b>$</b> {}</pre>').format(about, command[:SHOWN_MAX])


def _written(params: dict[str, Any]) -> Markup | None:
    path, content = _path(params), _first(params, "content", "contents", "new_source")
    if not path or content is None:
        return None
    return Markup('<div class="path">{}</div>{}').format(
        path, code(content[:SHOWN_MAX], by_path(path))
    )


def _json(value: Any, text: str) -> Markup:
    try:
        shown = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        shown = text
    return code(shown[:SHOWN_MAX], _by_name("json"))


def text_block(text: str) -> Markup:
    """Text exactly as it is."""
    shown = text[:SHOWN_MAX]
    more = Markup("")
    if len(text) > len(shown):
        more = Markup('<p class="muted">{:,} more characters are in the raw record.</p>').format(
            len(text) - len(shown)
        )
    return Markup('<pre class="text">{}</pre>{}').format(shown, more)


def result(result_json: str | None, image_url: str = "") -> Markup:
    """What came of a call: its text, its images, or its JSON."""
    value = decode(result_json)
    if value is None:
        return Markup("")
    texts = list(_texts(value))
    shown = [text_block("\n".join(texts))] if texts else []
    for number, _ in enumerate(images(value)):
        shown.append(
            Markup('<img class="shot" loading="lazy" alt="Image {}" src="{}/{}">').format(
                number + 1, image_url, number
            )
        )
    if not shown:
        return _json(value, result_json or "")
    return Markup("").join(shown)


_TEXT_KEYS = ("stdout", "stderr", "output", "text", "content", "result", "message")


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """The texts of a result, if it is made of such."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < 4:  # noqa: PLR2004
        for each in value:
            if isinstance(each, dict) and each.get("type") in ("text", "input_text", "output_text"):
                yield from _texts(each.get("text"), depth + 1)
    elif isinstance(value, dict) and set(value) & set(_TEXT_KEYS):
        known = [value[key] for key in _TEXT_KEYS if key in value]
        if len(value) <= len(known) + 3 and all(isinstance(each, str | list) for each in known):
            for each in known:
                yield from _texts(each, depth + 1)


def images(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The pictures in a value: their kind and their base64."""
    if depth > 6:  # noqa: PLR2004
        return
    if isinstance(value, list):
        for each in value:
            yield from images(each, depth + 1)
    elif isinstance(value, dict):
        source = value.get("source") if isinstance(value.get("source"), dict) else value
        kind = source.get("media_type") or source.get("mimeType") if source else None
        data = source.get("data") if source else None
        if kind in IMAGES and isinstance(data, str):
            yield str(kind), data
            return
        for each in value.values():
            yield from images(each, depth + 1)
