"""HTML elements as values: what is put into one is escaped unless it is markup already."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

Child = str | int | None  # None is left out


def element(name: str, *children: Child, **attributes: str | int | None) -> Markup:
    """An element. `class_` is the attribute class, `aria_label` aria-label; one that is
    None is left out."""
    start = "".join(
        f' {attribute.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for attribute, value in attributes.items()
        if value is not None
    )
    inner = "".join(escape(child) for child in children if child is not None)
    return Markup(f"<{name}{start}>{inner}</{name}>")  # noqa: S704 - all of it is escaped


def lines(children: Iterable[str | None]) -> Markup:
    """The children with a line break between them, which is a space between words."""
    return Markup("\n").join(child for child in children if child is not None)
