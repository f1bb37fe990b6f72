"""Numbers as pictures."""

from __future__ import annotations

from datetime import date, timedelta

from agents_ledger.web.pages.charts import bar_length, every_period, heat_map, stacked_bars
from agents_ledger.web.pages.usage import presets


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
