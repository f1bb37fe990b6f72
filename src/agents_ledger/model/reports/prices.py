"""What models cost. The figures are data, in prices.csv, with their date."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("prices.csv")
_AS_OF = re.compile(r"As of: (\S+)")
# The version of a model: claude-opus-4-5-20251101, gpt-5.2-2025-12-11.
_VERSION = re.compile(r"-(20\d{6}|20\d\d-\d\d-\d\d|latest)$")


class Price(NamedTuple):
    """US dollars for a million tokens of a kind: a token costs as many millionths of a dollar."""

    input: float
    cached_input: float
    cache_write: float
    output: float


@cache
def _table() -> tuple[str, dict[str, Price]]:
    text = _FILE.read_text(encoding="utf-8")
    dated = _AS_OF.search(text)
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return dated[1] if dated else "", {row["model"]: _price(row) for row in rows}


def _price(row: dict[str, str]) -> Price:
    input_ = float(row["input"])
    cached, write = row["cached_input"], row["cache_write"]
    return Price(
        input_,
        float(cached) if cached else input_,
        float(write) if write else input_,
        float(row["output"]),
    )


def as_of() -> str:
    """The day the prices were taken, as in 2026-08-05."""
    return _table()[0]


@cache
def price(model: str | None) -> Price | None:
    """The price of a model, with or without a version and a maker before its name; None: none is
    known. Similar names are not matched."""
    prices = _table()[1]
    name = (model or "").rpartition("/")[2].lower()
    return prices.get(name) or prices.get(_VERSION.sub("", name))
