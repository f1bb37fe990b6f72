"""Numbers as pictures."""

from __future__ import annotations

from agents_ledger.web.pages.charts import bars, every_day, heat_map


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


def test_few_bars_are_narrow() -> None:
    [bar] = bars([("2026-03-02", 5)])
    assert (bar.height, bar.width < 3) == (100, True)
    assert bars([]) == bars([("a", 0)]) == ()


def test_days_without_a_value_are_included() -> None:
    found = every_day([("1970-01-01", 9), ("2026-03-01", 1), ("2026-03-04", 2)], 120)
    assert found == [("2026-03-01", 1), ("2026-03-02", 0), ("2026-03-03", 0), ("2026-03-04", 2)]
    assert len(every_day([("2020-01-01", 1), ("2026-03-04", 2)], 120)) == 120
    assert every_day([], 9) == []
