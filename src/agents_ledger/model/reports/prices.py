"""What models cost. The figures are data, in prices.csv, with their date."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("prices.csv")
_AS_OF = re.compile(r"As of: (\S+)")
# What providers and agents add to the name of a model, in the order in which it is removed:
# claude-opus-4-8[1m] of Claude Code, us.anthropic.claude-opus-4-8-v1:0 of Bedrock,
# anthropic/claude-opus-4.8 of OpenRouter, anthropic:claude-opus-4-8 of pydantic-ai,
# claude-opus-4-8@20260701 of Vertex, gpt-5.2-2025-12-11 of OpenAI.
_ADDITIONS = (
    r"\[\w+\]$",
    r"-v\d+(:\d+)?$",
    r"^.*[/:]",
    r"^([a-z]+\.)*(amazon|anthropic|deepseek|google|mistral|openai|qwen|zai)\.",
    r"[-@](20\d{6}|20\d\d-\d\d-\d\d|latest|default)$",
)


class Price(NamedTuple):
    """US dollars for a million tokens of a kind: a token costs as many millionths of a dollar."""

    input: float
    cached_input: float
    cache_write: float  # kept for minutes
    output: float
    long_cache_write: float


@cache
def _table() -> tuple[str, dict[str, Price]]:
    import csv

    text = _FILE.read_text(encoding="utf-8")
    dated = _AS_OF.search(text)
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return dated[1] if dated else "", {_spelled(row["model"]): _price(row) for row in rows}


def _price(row: dict[str, str]) -> Price:
    input_ = float(row["input"])
    cached, write = row["cached_input"], row["cache_write"]
    hour = row["long_cache_write"]
    minutes = float(write) if write else input_
    return Price(
        input_,
        float(cached) if cached else input_,
        minutes,
        float(row["output"]),
        float(hour) if hour else minutes,
    )


def as_of() -> str:
    """The day the prices were taken, as in 2026-08-05."""
    return _table()[0]


def all_prices() -> dict[str, Price]:
    """The price of every model of the table, by name as it is compared: with - for each dot."""
    return dict(_table()[1])


@cache
def price(model: str | None) -> Price | None:
    """The price of a model, however its name is spelled; None: none is known.

    Similar names are not matched.
    """
    prices = _table()[1]
    name = (model or "").lower()
    return prices.get(_spelled(name)) or prices.get(_spelled(_without_additions(name)))


def _spelled(name: str) -> str:
    return name.replace(".", "-")


def _without_additions(name: str) -> str:
    for addition in _ADDITIONS:
        name = re.sub(addition, "", name)
    return name
