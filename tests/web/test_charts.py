"""Numbers as pictures."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agents_ledger.web.pages.charts import (
    bar_length,
    day_bars,
    every_period,
    heat_map,
    stacked_bars,
    treemap,
)
from agents_ledger.web.pages.usage import _short_paths, presets


def test_a_heat_map_spans_the_days_with_turns() -> None:
    few = heat_map({"2026-03-03": 4, "2026-03-04": 8})
    assert few is not None
    assert (few.weeks, few.first, few.last) == (5, "2026-02-02", "2026-03-04")
    assert [(day.day, day.level) for day in few.days if day.turns] == [
        ("2026-03-03", 3),
        ("2026-03-04", 4),
    ]
    months = heat_map({"2026-01-07": 1, "2026-03-04": 8})
    assert months is not None
    assert (months.weeks, months.first) == (9, "2026-01-05")
    years = heat_map({"2020-01-07": 1, "2026-03-04": 8})
    assert years is not None
    assert (years.weeks, len(years.months)) == (53, 13)


def test_a_heat_map_of_one_day_or_no_day() -> None:
    one = heat_map({"2026-03-02": 1})  # a Monday
    assert one is not None
    assert (one.weeks, one.last, one.days[-1].column) == (5, "2026-03-02", 4)
    assert heat_map({}) is None
    assert heat_map({"1970-01-01": 7, "2026-03-02": 0}) is None


def test_bars_span_the_chart_and_stack_up_to_their_value() -> None:
    days = every_period(date(2026, 3, 1), date(2026, 3, 4), "day")
    values = {"2026-03-01": {"a": 30, "b": 10}, "2026-03-04": {"b": 20}}

    chart = stacked_bars(days, values, {"a": 0, "b": 1}, str)

    assert days == ["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"]
    assert [bar.x + bar.width / 2 for bar in chart.bars] == [12.5, 37.5, 62.5, 87.5]
    assert [tick.at for tick in chart.periods] == [12.5, 37.5, 62.5, 87.5]
    assert [(tick.at, tick.text) for tick in chart.values][::4] == [(100, "0"), (0, "40")]
    assert [(part.y, part.height) for part in chart.bars[0].parts] == [(25, 75), (0, 25)]


def test_bars_grow_longer_with_the_time_that_a_chart_shows() -> None:
    start = date(2025, 12, 29)
    spans = [start + timedelta(days=days) for days in (119, 120, 839, 840)]
    assert [bar_length(start, last) for last in spans] == ["day", "week", "week", "month"]
    assert every_period(start, date(2026, 1, 12), "week") == ["2026-W01", "2026-W02", "2026-W03"]
    assert every_period(start, date(2026, 2, 1), "month") == ["2025-12", "2026-01", "2026-02"]


def test_presets_count_from_today() -> None:
    periods = presets(date(2026, 11, 18), date(2026, 8, 3))

    assert periods["7d"][1:] == (date(2026, 11, 12), date(2026, 11, 18))
    assert periods["last-month"][1:] == (date(2026, 10, 1), date(2026, 10, 31))
    assert periods["active"][1:] == (date(2026, 7, 28), date(2026, 8, 3))


def test_day_bars_end_with_the_last_day_and_show_the_smallest_value() -> None:
    bars = day_bars({"2026-03-01": 1000, "2026-03-03": 1}, date(2026, 3, 4), str, count=4)
    assert [bar.day for bar in bars] == ["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"]
    assert [bar.height for bar in bars] == [100, 0, 4, 0]
    assert [bar.x for bar in bars] == [0, 25, 50, 75]
    assert bars[2].text == "2026-03-03: 1"


@given(st.lists(st.integers(0, 10**12), max_size=24))
def test_the_areas_of_a_treemap_are_its_values_and_cover_it_once(values: list[int]) -> None:
    tiles = treemap([(str(at), value) for at, value in enumerate(values)])
    total = sum(values)
    assert sorted(tile.value for tile in tiles) == sorted(filter(None, values))
    assert [tile.value for tile in tiles] == sorted((tile.value for tile in tiles), reverse=True)
    for tile in tiles:
        assert tile.x >= 0
        assert tile.y >= 0
        assert tile.x + tile.width <= 100.01
        assert tile.y + tile.height <= 100.01
        if tile.value * 10_000 > total:  # smaller ones are rounded
            area = tile.width * tile.height / 10_000
            assert abs(area - tile.value / total) < 0.001
    for at, one in enumerate(tiles):
        for other in tiles[at + 1 :]:
            apart_x = one.x + one.width <= other.x + 0.01 or other.x + other.width <= one.x + 0.01
            apart_y = one.y + one.height <= other.y + 0.01 or other.y + other.height <= one.y + 0.01
            assert apart_x or apart_y


def test_projects_are_called_by_their_last_folder_unless_two_are_the_same() -> None:
    paths = ["/home/me/shop", "/work/a/api", "/work/b/api", "C:\\me\\site", "/"]
    assert _short_paths(paths) == {
        "/home/me/shop": "shop",
        "/work/a/api": "a/api",
        "/work/b/api": "b/api",
        "C:\\me\\site": "site",
    }
