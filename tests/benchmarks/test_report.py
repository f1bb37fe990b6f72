"""The page that `make bench` writes says what was measured, and what was not."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import report
from benchmarks.charts import chart
from benchmarks.measure import Curve, Goal, Line

CURVES = [
    Curve("append", ((10.0, 2e-4), (100_000.0, 2.1e-4))),
    Curve("audit & co", ((10.0, 1e-3), (100_000.0, 0.5))),
]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    return tmp_path / "page.md"


def test_a_part_that_is_measured_again_replaces_its_figures_alone(page: Path) -> None:
    report.keep("one", "One", "load 1", 2.0, [Line("old figure", "1"), *CURVES])
    report.keep("two", "Two", "load 1", 2.0, [Line("other figure", "2")])
    report.keep("one", "One", "load 1", 2.0, [Line("new figure", "3"), *CURVES])

    report.write(["one", "two", "never measured"], "versions")

    said = page.read_text()
    assert "old figure" not in said
    assert "new figure" in said
    assert "other figure" in said
    assert report.CHART in said
    assert (page.parent / report.CHART).exists()


def test_a_goal_that_was_missed_is_said_at_the_top(page: Path) -> None:
    lines = [
        Line("good", "1", "2", 2.0, Goal(">=", 1)),
        Line("bad", "1", "2", 0.5, Goal(">=", 1)),
    ]
    report.keep("one", "One", "", 1.0, lines)

    report.write(["one"], "versions")

    said = page.read_text()
    assert "1 of 2 goals are met" in said
    assert "- bad: 0.50, goal >= 1" in said.split("## One")[0]


def test_where_a_peer_wins_is_said_at_the_top(page: Path) -> None:
    lines = [
        Line("peers, 100: append, quick", "1/s", "2/s", 0.5),
        Line("peers, 100: append, slow", "2/s", "1/s", 2.0),
        Line("peers, 100: bytes per exchange, small", "200", "100", 2.0),
        Line("peers, 100: bytes per exchange, large", "100", "200", 0.5),
    ]
    report.keep("peers", "Peers", "", 1.0, lines)

    report.write(["peers"], "versions")

    said = page.read_text().split("## Where a peer")[1].split("## Peers")[0]
    assert "quick" in said
    assert "small" in said
    assert "slow" not in said
    assert "large" not in said


def test_a_chart_draws_a_line_for_every_curve() -> None:
    drawn = ElementTree.fromstring(chart("Growth", CURVES))  # noqa: S314  our own

    space = "{http://www.w3.org/2000/svg}"
    lines = [each.get("points", "").split() for each in drawn.iter(f"{space}polyline")]
    assert [len(points) for points in lines] == [2, 2]
    flat, steep = ([float(point.split(",")[1]) for point in points] for points in lines)
    assert abs(flat[0] - flat[1]) < 10
    assert steep[0] - steep[1] > 100
    assert "audit & co" in [each.text for each in drawn.iter(f"{space}text")]
