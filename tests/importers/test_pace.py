"""A source that takes long is not derived at every change, and misses none."""

from __future__ import annotations

from pathlib import Path

from agents_ledger.importers.discovery import HistoryFile
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.importers.watch import LONG_SECONDS, REST, Throttle

LARGE = HistoryFile(
    Path("/h/.config/Cursor/User/globalStorage/state.vscdb"), SOURCES["cursor"], 9, 0
)
SMALL = HistoryFile(Path("/h/.claude/projects/p/s.jsonl"), SOURCES["claude-code"], 9, 0)


def test_a_long_import_is_followed_by_a_rest_and_a_short_one_is_not() -> None:
    now = [100.0]
    pace = Throttle(lambda: now[0])

    with pace.due([LARGE, SMALL]) as due:
        assert due == [LARGE, SMALL]
        now[0] += 2
    with pace.due([LARGE]) as due:
        assert due == []
    with pace.due([]) as due:
        assert due == []
    now[0] += 2 * REST + 1
    with pace.due([]) as due:
        assert due == [LARGE]  # what changed meanwhile
        now[0] += LONG_SECONDS / 2
    with pace.due([LARGE, SMALL]) as due:
        assert due == [LARGE, SMALL]
