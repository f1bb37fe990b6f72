"""Whatever stands in the tables and files, the readers make something of it or report it."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agents_ledger import Ledger
from agents_ledger.importers.sources.aix.rules import TABLES as AIX
from agents_ledger.importers.sources.opencode.rules import TABLES as OPENCODE
from agents_ledger.importers.sources.opencode.rules import TYPES
from agents_ledger.importers.sources.pi.database import TABLES as OPENCLAW
from tests.importers.cursor_made import headers, state_db
from tests.importers.helping import import_paths, result
from tests.importers.test_exclusion import import_without

LEFT = "/w"
IDS = st.sampled_from(["a", "b", "task-a", "c", ""])
CURSOR_NAMES = (
    "type bubbleId id text rawText createdAt timingInfo toolFormerData tool name toolCallId status"
    " params rawArgs result additionalData composerData conversation conversationMap tabs tabId"
    " bubbles allComposers composerId fullConversationHeadersOnly latestConversationSummary"
    " summary truncationLastBubbleIdInclusive subComposerIds subagentInfo parentComposerId"
    " thinking context codeBlocks content multiFileLinterErrors errors range checkpointId"
    " workspaceIdentifier uri fsPath folderSelections absolutePath projectLayouts rootPath"
    " modelConfig modelName lastUpdatedAt role message"
)
OPENCODE_NAMES = (
    "id type role sessionID messageID parentID time created text tool callID state status input"
    " output metadata sessionId summary revert messageID files url error data name tokens cache"
    " content sessionID skills source uri command shellID model snapshot"
)
COLUMNS = (
    "id session_id message_id parent_id role content sequence timestamp data revert status"
    " metadata_json raw_json child_session_id parent_session_id file_path idx kind phase"
    " capability message start_line start_col line_number directory worktree workspace_path"
    " project_id session_key current_session_id seq event_json event_zstd entry_json created_at"
    " key type fork_session_id time_created time_updated"
)
OPENCLAW_NAMES = (
    "type id parentId timestamp cwd message role content text toolCallId toolName usage input"
    " summary firstKeptEntryId sessionId updatedAt spawnedBy session compaction user assistant"
)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(),
    IDS,
    st.just("task"),
    st.just(LEFT),
    st.just(48),
    st.text(max_size=5),
)


def values(names: str) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(names.split())
    return st.recursive(
        PLAIN,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
        max_leaves=25,
    )


def cell(names: str) -> st.SearchStrategy[Any]:
    return st.one_of(
        values(names).map(json.dumps),
        st.none(),
        st.binary(max_size=6),
        st.integers(-(1 << 63), (1 << 63) - 1),
    )


def rows(names: str) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    others = cell(names)
    drawn = {"type": st.sampled_from([*TYPES, "other"])}
    row = st.tuples(
        *(IDS if column.endswith("id") else drawn.get(column, others) for column in COLUMNS.split())
    )
    return st.lists(row, max_size=3)


CURSOR_KEYS = st.one_of(
    st.builds("composerData:{}".format, IDS),
    st.builds("bubbleId:{}:{}".format, IDS, IDS),
    st.builds("checkpointId:{}:{}".format, IDS, IDS),
    st.builds("messageRequestContext:{}:{}".format, IDS, IDS),
    st.builds("agentKv:blob:{}".format, IDS),
)
ITEM_KEYS = st.sampled_from(
    [
        "composer.composerData",
        "composer.composerHeaders",
        "workbench.panel.aichat.view.aichat.chatdata",
    ]
)
DATABASES = {
    "opencode.db": (OPENCODE, rows(OPENCODE_NAMES)),
    "aix.db": (AIX, rows(CURSOR_NAMES)),
    "openclaw-agent.sqlite": (OPENCLAW, rows(OPENCLAW_NAMES)),
}
QUIET = settings(
    max_examples=settings().max_examples // 20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    phases=[Phase.generate],
)


def imported(folder: Path, path: Path) -> None:
    with Ledger.open(str(folder / "ledger.db")) as ledger:
        report = import_paths(ledger, path)
        assert report.counts.failed == 0, report.faults
        assert ledger.audit() == ()
        again = import_paths(ledger, path)
        assert (again.read_bytes, again.written_turns) == (0, 0)
        whole = result(ledger)
    with Ledger.open(str(folder / "without.db")) as ledger:
        report = import_without(ledger, path, LEFT)
        assert report.counts.failed == 0, report.faults
        assert ledger.audit() == ()
        assert import_without(ledger, path, LEFT).read_bytes == 0
        import_paths(ledger, path)  # what is no longer left out comes in
        assert result(ledger) == whole


@QUIET
@given(
    st.dictionaries(CURSOR_KEYS, cell(CURSOR_NAMES), max_size=8),
    st.dictionaries(ITEM_KEYS, cell(CURSOR_NAMES), max_size=2),
    st.dictionaries(IDS, st.tuples(PLAIN, cell(CURSOR_NAMES)), max_size=2),
)
def test_any_rows_of_cursor(
    disk: dict[str, Any], items: dict[str, Any], heads: dict[str, tuple[Any, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = state_db(Path(folder) / "state.vscdb", disk, items)
        headers(path)
        with closing(sqlite3.connect(path)) as made:
            rows = [(name, place, 1, value) for name, (place, value) in heads.items()]
            made.executemany("INSERT INTO composerHeaders VALUES (?, ?, ?, ?)", rows)
            made.commit()
        imported(Path(folder), path)


@pytest.mark.parametrize("name", DATABASES)
@QUIET
@given(st.data())
def test_any_rows_of_other_databases(name: str, data: st.DataObject) -> None:
    tables, drawn = DATABASES[name]
    columns = COLUMNS.split()
    places = ", ".join("?" for _ in columns)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        with closing(sqlite3.connect(path)) as made:
            for table in tables:
                keyed = f", UNIQUE ({', '.join(table.key)})" if table.key else ""
                made.execute(f"CREATE TABLE `{table.name}` ({', '.join(columns)}{keyed})")
                insert = f"INSERT OR REPLACE INTO `{table.name}` VALUES ({places})"
                made.executemany(insert, data.draw(drawn))
            made.commit()
        imported(Path(folder), path)
