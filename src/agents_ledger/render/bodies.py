"""Messages and tool calls as HTML that is safe to open.

Text is escaped, never stripped: a ledger is evidence. Markup comes only from this module, and
nothing in it loads anything: an image in a message becomes a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any

import msgspec
from markupsafe import Markup, escape

from agents_ledger.model.files.file_contents import difference, edits_of, first_text
from agents_ledger.model.files.file_tools import changes_of, decoded, path_of
from agents_ledger.model.text.sanitize import visible_lines
from agents_ledger.render.summaries import command_of, task_text, texts_of

# Characters. Longer code is not coloured, which would delay the page.
CODE_MAX = 50_000
TEXT_MAX = 200_000  # characters of one text
ABOUT_MAX = 500  # characters of the line above a prompt
IMAGE_DEPTH_MAX = 6
# Of a diff: longer lines, and more of them, are shown without emphasis.
MARKED_LINES_MAX = 400
MARKED_LINE_MAX = 400  # characters
SIMILAR_MIN = 0.4  # of lines compared word by word
# Images are embedded in pages: only characters that cannot end an attribute.
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
# No SVG: it may contain scripts.
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PROMPTS = ("prompt", "message", "plan")
_PARAGRAPH = re.compile(r"\n\n")


# One plain line, as most prompts are: rendering Markdown would take a hundred times as long.
_PLAIN = re.compile(r"[^\W\d_][\w ,.;:'\"()/?%=+-]*")


def markdown(text: str) -> Markup:
    if "_" not in text and _PLAIN.fullmatch(text):
        return Markup(f"<p>{escape(text.strip())}</p>\n")  # noqa: S704 - it is escaped
    from agents_ledger.render.markdown import rendered

    return rendered(text)


# Signs that are hardly typed by chance; a star or an underscore may be part of a name or a pattern.
_WRITTEN_AS_MARKDOWN = re.compile(r"^(#{1,6} \S|```|~~~)", re.MULTILINE)
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)


def prompts(parts: Sequence[str]) -> list[Markup] | None:
    """The parts of a prompt that was written as Markdown, with its line breaks; else None."""
    if not any(map(_WRITTEN_AS_MARKDOWN.search, parts)):
        return None
    from agents_ledger.render.markdown import rendered

    return [rendered(part, breaks=True) for part in parts]


def cut_prompt(text: str, most: int) -> tuple[str, str]:
    """The beginning and rest of a prompt, cut between paragraphs and not in code if possible."""
    for end in reversed([match.end() for match in _PARAGRAPH.finditer(text, 0, most)]):
        if len(_FENCE.findall(text, 0, end)) % 2 == 0:
            return text[:end], text[end:]
    return text[:most], text[most:]


def code(text: str, *, language: str = "", path: str = "") -> Markup:
    """Code, coloured by CSS classes if its language is known, by its name or the name of a file."""
    text = visible_lines(text)
    if (language or path) and len(text) <= CODE_MAX:
        from agents_ledger.render.colouring import coloured

        return coloured(text, language, path)
    return Markup('<pre class="code">{}</pre>').format(text)


def diff(old: str, new: str, path: str = "") -> Markup:
    return patch(difference(old, new), path)


_WORDS = re.compile(r"\w+|\s+|.")
_PATCH_CLASSES = {"+": "ins", "-": "del", "@": "at"}


def patch(text: str, path: str = "") -> Markup:
    lines = visible_lines(text).split("\n")
    changed = _changed_words(lines)
    rows = Markup("").join(
        Markup('<span class="{}">{}</span>').format(
            _PATCH_CLASSES.get(line[:1], "same"), changed.get(at, line)
        )
        for at, line in enumerate(lines)
        if at or line != "@@"  # says nothing above the first lines
    )
    return _titled(path, Markup('<pre class="diff">{}</pre>').format(rows))


def _changed_words(lines: list[str]) -> dict[int, Markup]:
    """The lines of a patch that replace as many others, with the words that differ emphasised."""
    marked: dict[int, Markup] = {}
    at = 0
    while at < len(lines) and len(marked) < MARKED_LINES_MAX:
        removed = _run(lines, at, "-")
        added = _run(lines, at + removed, "+")
        if 0 < removed == added:
            for old in range(at, at + removed):
                pair = _emphasised(lines[old], lines[old + removed])
                if pair is not None:
                    marked[old], marked[old + removed] = pair
        at += removed + added or 1
    return marked


def _run(lines: list[str], start: int, sign: str) -> int:
    """The number of lines from `start` that begin with a sign."""
    end = start
    while end < len(lines) and lines[end][:1] == sign:
        end += 1
    return end - start


def _emphasised(old: str, new: str) -> tuple[Markup, Markup] | None:
    """Two lines with the words in which they differ; None if they have little in common."""
    if max(len(old), len(new)) > MARKED_LINE_MAX:
        return None
    words = _WORDS.findall(old[1:]), _WORDS.findall(new[1:])
    matcher = SequenceMatcher(None, *words, autojunk=False)
    if matcher.ratio() < SIMILAR_MIN:
        return None
    sides = [Markup("-"), Markup("+")]
    for kind, *spans in matcher.get_opcodes():
        for side, (start, end) in enumerate((spans[:2], spans[2:])):
            text = "".join(words[side][start:end])
            if text:
                sides[side] += escape(text) if kind == "equal" else Markup("<b>{}</b>").format(text)
    return sides[0], sides[1]


def _titled(path: str, body: Markup) -> Markup:
    return Markup('<div class="path">{}</div>{}').format(path, body) if path else body


# -- tool calls -------------------------------------------------------------------------------


def parameters(params_json: str, most: int = TEXT_MAX) -> Markup:
    """The parameters of a call: an edit as a diff, a command as a command, tasks as a list."""
    params = decoded(params_json)
    if not isinstance(params, dict):
        return text_block(params_json, most)
    for render in (_edits, _patch, _changes, _tasks, _command, _whole_file, _prompt):
        html = render(params, most)
        if html is not None:
            return html
    return _json(params, params_json, most)


def _edits(params: dict[str, Any], most: int) -> Markup | None:
    diffs = [diff(old[:most], new[:most]) for old, new in edits_of(params)]
    return _titled(path_of(params), Markup("").join(diffs)) if diffs else None


def _patch(params: dict[str, Any], most: int) -> Markup | None:
    text = first_text(params, "patch", "diff", "input")
    if text is None or not text.lstrip().startswith(("*** Begin Patch", "--- ", "diff --git")):
        return None
    return patch(text[:most], path_of(params))


def _changes(params: dict[str, Any], most: int) -> Markup | None:
    diffs = [
        patch(change.diff[:most], change.moved_to or change.path)
        if change.diff is not None
        else diff("", change.content[:most], change.path)
        for change in changes_of(params)
    ]
    return Markup("").join(diffs) if diffs else None


def _tasks(params: dict[str, Any], most: int) -> Markup | None:
    tasks = params.get("todos", params.get("plan"))
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        return None
    rows = [
        Markup('<li class="todo {}"><span class="state">{}</span> {}</li>').format(
            str(task.get("status", "pending")),
            str(task.get("status", "pending")).replace("_", " "),
            task_text(task),
        )
        for task in tasks
    ]
    return Markup('<ul class="todos">{}</ul>').format(Markup("").join(rows))


def _command(params: dict[str, Any], most: int) -> Markup | None:
    command = command_of(params)
    if command is None:
        return None
    description = first_text(params, "description")
    about = Markup('<p class="about">{}</p>').format(description) if description else Markup("")
    text = visible_lines(command[:most])
    return Markup('{}<pre class="shell"><b>$</b> {}</pre>').format(about, text)


def _whole_file(params: dict[str, Any], most: int) -> Markup | None:
    path, content = path_of(params), first_text(params, "content", "contents", "new_source")
    if not path or content is None:
        return None
    return _titled(path, code(content[:most], path=path))


def _prompt(params: dict[str, Any], most: int) -> Markup | None:
    """The brief of a subagent, which is Markdown; its other parameters in one line above it."""
    name = next((name for name in _PROMPTS if isinstance(params.get(name), str)), None)
    rest = {other: value for other, value in params.items() if other != name}
    if name is None or any(isinstance(value, list | dict) for value in rest.values()):
        return None
    about = ", ".join(f"{other.replace('_', ' ')}: {value}" for other, value in rest.items())
    # One paragraph would join lines, and leave no room for the prompt: shown as JSON then.
    if len(about) > min(ABOUT_MAX, most // 2) or about.splitlines() not in ([], [about]):
        return None
    html = Markup('<p class="about">{}</p>').format(visible_lines(about)) if about else Markup("")
    prompt = params[name][: most - len(about)]
    return html + Markup('<div class="prose">{}</div>').format(markdown(prompt))


def _json(value: Any, text: str, most: int) -> Markup:
    with suppress(msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return code(text[:most], language="json")


def text_block(text: str, most: int = TEXT_MAX) -> Markup:
    more = Markup("")
    if len(text) > most:
        more = Markup('<p class="muted">{:,} more characters are in the ledger.</p>').format(
            len(text) - most
        )
    return Markup('<pre class="text">{}</pre>{}').format(visible_lines(text[:most]), more)


def result(result_json: str | None, image_url: str | None = None, most: int = TEXT_MAX) -> Markup:
    """The result of a call: its text and images, or its JSON.

    Image number N is loaded from `image_url`/N; without an address the images are embedded.
    """
    value = decoded(result_json)
    if value is None:
        return Markup("")
    texts = list(texts_of(value))
    blocks = [text_block("\n".join(texts), most)] if texts else []
    for number, (kind, data) in enumerate(images(value)):
        source = f"data:{kind};base64,{data}" if image_url is None else f"{image_url}/{number}"
        blocks.append(
            Markup('<img class="shot" loading="lazy" alt="Image {}" src="{}">').format(
                number + 1, source
            )
        )
    return Markup("").join(blocks) if blocks else _json(value, result_json or "", most)


def images(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The media type and the base64 data of every image in a result."""
    if depth > IMAGE_DEPTH_MAX:
        return
    if isinstance(value, list):
        for item in value:
            yield from images(item, depth + 1)
    elif isinstance(value, dict):
        # Anthropic nests an image in `source` with `media_type`; MCP has `mimeType` next to `data`.
        source = value.get("source") if isinstance(value.get("source"), dict) else value
        kind = source.get("media_type") or source.get("mimeType") if source else None
        data = source.get("data") if source else None
        if kind in IMAGES and isinstance(data, str) and _BASE64.fullmatch(data):
            yield str(kind), data
            return
        for member in value.values():
            yield from images(member, depth + 1)
