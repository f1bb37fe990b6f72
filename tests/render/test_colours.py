"""The colours of pages and exports."""

from __future__ import annotations

import re

from agents_ledger.render.conversation import STYLE

_COLOUR = re.compile(r"(--[\w-]+): (#\w+);")
_PAIR = re.compile(r"(--[\w-]+): light-dark\((#\w+), (#\w+)\);")


def test_colours_are_the_same_with_and_without_light_dark() -> None:
    css = STYLE.read_text("utf-8")
    plain, supported = css.split("@supports (color: light-dark(")
    light, dark = plain.split("@media screen and (prefers-color-scheme: dark)")
    pairs = _PAIR.findall(supported)

    assert pairs
    assert "light-dark(" not in plain
    assert _COLOUR.findall(light) == [(name, colour) for name, colour, _ in pairs]
    assert _COLOUR.findall(dark) == [(name, colour) for name, _, colour in pairs]
