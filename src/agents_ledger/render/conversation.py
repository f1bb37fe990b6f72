"""Messages and tool calls, as pages and exports show them. A caller is put at the end of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from agents_ledger.model.text import humanize
from agents_ledger.model.text.sanitize import visible_lines
from agents_ledger.model.turns import Message, ToolCall
from agents_ledger.render import bodies
from agents_ledger.render.elements import element, lines
from agents_ledger.render.injected import injected_name, is_folded
from agents_ledger.render.summaries import argument, fit_line, outcome

STYLE = Path(__file__).with_suffix(".css")
PROMPT_MAX = 3000  # characters; of a longer prompt only the beginning is open
PROMPT_OPEN = 1500

Caller = Callable[[], Markup]


def thinking(text: str, caller: Caller | None = None) -> Markup:
    return element(
        "details",
        element("summary", "Thinking"),
        element("div", visible_lines(text), class_="text-body"),
        caller and caller(),
        class_="thinking",
    )


def message(
    message: Message, length: int, step: str = "", link: str = "", caller: Caller | None = None
) -> Markup:
    """`length` is that of the whole message: its content may be the beginning. `link` leads to it;
    `step` says what it is in its turn."""
    content = message.content or ""
    classes = " ".join(filter(None, ("msg", message.role, step)))
    anchor = f"m-{message.id}" if link else None
    who = _author(message)
    end = caller and caller()
    if is_folded(message):
        summary = lines(
            (
                element("span", fit_line(injected_name(message), 60), class_="who", title=who),
                element("span", humanize.size(length), class_="length"),
                element("span", fit_line(content[:200], 160), class_="arg"),
            )
        )
        body = element("div", _text(content), class_="message-body")
        return element(
            "details", element("summary", summary), body, end, class_=f"{classes} folded", id=anchor
        )
    if link:
        name = element("a", who, class_="who", href=link, title="Link to this message")
    else:
        name = element("p", who, class_="who")
    body = element("div", *_content(message.role, content, length), class_="message-body")
    return element("div", name, body, end, class_=classes, id=anchor)


def _author(message: Message) -> str:
    if message.source and message.source != "human":
        return f"{message.role} · {fit_line(message.source, 30)}"
    return message.role


def _content(role: str, content: str, length: int) -> tuple[Markup, ...]:
    if role == "assistant":
        return (element("div", bodies.markdown(content), class_="prose"),)
    if length <= PROMPT_MAX:
        return (whole_prompt(content),)
    parts = bodies.cut_prompt(content, PROMPT_OPEN)
    beginning, rest = _prompt(*parts)
    summary = element("summary", f"{length - len(parts[0]):,} more characters")
    return beginning, element("details", summary, rest, class_="rest")


def whole_prompt(text: str) -> Markup:
    """A prompt as Markdown if it was written as such, otherwise as it is."""
    return _prompt(text)[0]


def _prompt(*parts: str) -> list[Markup]:
    formatted = bodies.prompts(parts)
    if formatted is None:
        return [_text(part) for part in parts]
    return [element("div", html, class_="prose") for html in formatted]


def _text(text: str) -> Markup:
    return element("div", visible_lines(text), class_="text-body")


def call_summary(call: ToolCall, result_size: int | None = None) -> Markup:
    """A call in one line. `result_size` is given for a result that was not read."""
    words = (
        ("tool", fit_line(call.tool_name, 60)),
        ("arg", fit_line(argument(call.params_json), 240)),
        ("out", fit_line(outcome(call, result_size, 120), 120)),
    )
    return element("summary", lines(element("span", text, class_=name) for name, text in words))
