"""Cells of databases that are too long to be held: kept all the same, told, and not read."""

from __future__ import annotations

import json
import random
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.parsing.databases import snapshot
from agents_ledger.importers.parsing.table_scan import select
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.limits import ImportLimits
from agents_ledger.importers.port.source import Table
from agents_ledger.importers.row_archive import UNCERTAIN
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.records import RowRecord, frame, part, parted, raw, records
from tests.importers import test_aix, test_openclaw_database, test_opencode
from tests.importers.cursor_made import bubble, chat, state_db
from tests.importers.helping import import_paths, result
from tests.importers.test_exclusion import import_without
from tests.importers.test_pi import ONE

GLOBAL = Path("Cursor/User/globalStorage/state.vscdb")
PAIR = (bubble("q1", 1, "What is new?", 1), bubble("a1", 2, "Two fixes.", 2))
NEXT = (bubble("q2", 1, "Which ones?", 3), bubble("a2", 2, "Those.", 4))
SECRET = "/home/me/secret"
LIMIT = 200_000
LONG = random.Random(5).randbytes(LIMIT).hex()


SMALL = ImportLimits(text_bytes=LIMIT, part_bytes=30_000)
SMALL_RECORDS = ImportLimits(text_bytes=LIMIT, part_bytes=30_000, record_bytes=LIMIT)


def rows_of(path: Path, table: str = "cursorDiskKV") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as opened:
        columns = [row[1] for row in opened.execute(f"PRAGMA table_info({table})")]
        kinds = ", ".join(f"{name}, typeof({name})" for name in columns)
        return sorted(opened.execute(f"SELECT {kinds} FROM {table}").fetchall(), key=repr)


def answers(ledger: Ledger, label: str) -> list[str | None]:
    return [turn.response.content for turn in ledger.thread(label).turns if turn.response]


def long_chat(path: Path, words: str = LONG) -> Path:
    said = chat("c", *PAIR, *NEXT) | {"bubbleId:c:a1": bubble("a1", 2, words, 2)}
    blob = {"composerData:blob": b"\xff\0" * LIMIT}
    return state_db(path, blob | said | chat("d", bubble("q3", 1, "?"), bubble("a3", 2, "!")))


def test_a_long_value_is_kept_and_told_and_the_rest_is_read(ledger: Ledger, tmp_path: Path) -> None:
    path = long_chat(tmp_path / GLOBAL)

    report = import_paths(ledger, path, limits=SMALL)

    told = [fault.what for fault in report.faults if "too long" in fault.what]
    size = len(json.dumps(bubble("a1", 2, LONG, 2)))
    assert f"a value of {size:,} bytes is kept, but too long to read: cursorDiskKV" in told[-1]
    assert told[-1].endswith("bubbleId:c:a1")
    assert len(told) == 2
    assert report.counts.failed == 0
    assert answers(ledger, "cursor:d") == ["!"]
    assert "Those." in answers(ledger, "cursor:c")
    again = import_paths(ledger, path, limits=SMALL)
    assert (again.faults, again.read_bytes) == ([], 0)
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before
    assert not ledger.audit()


def test_a_long_value_comes_back_as_it_was(ledger: Ledger, tmp_path: Path) -> None:
    path = long_chat(tmp_path / GLOBAL)
    import_paths(ledger, path, limits=SMALL)

    (out,) = export_source(ledger, "cursor:c", tmp_path / "out.vscdb")

    assert rows_of(out) == rows_of(path)


@pytest.mark.parametrize("changed", [LONG + LONG, LONG[::-1]])  # the second is as long as it was
def test_of_a_long_value_that_changed_both_are_kept(
    ledger: Ledger, tmp_path: Path, changed: str
) -> None:
    path = long_chat(tmp_path / GLOBAL)
    import_paths(ledger, path, limits=SMALL)
    path.unlink()
    state_db(path, {"composerData:e": {"name": "e"}})  # all stand elsewhere, and are compared
    long_chat(path, changed)

    report = import_paths(ledger, path, limits=SMALL)

    assert report.read_bytes > len(changed)
    (out,) = export_source(ledger, "cursor:c", tmp_path / "out.vscdb")
    assert rows_of(out) == rows_of(path)


def test_what_was_read_of_a_row_before_it_grew_too_long_stays(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR))
    import_paths(ledger, path, limits=SMALL)
    state_db(path, {"bubbleId:c:a1": bubble("a1", 2, LONG, 2)})

    import_paths(ledger, path, limits=SMALL)

    assert answers(ledger, "cursor:c") == ["Two fixes."]


def test_a_cell_with_a_text_that_takes_much_memory_is_not_read(
    ledger: Ledger, tmp_path: Path
) -> None:
    wide = "a" * (LIMIT // 3) + "\U0001f600"
    said = {
        "bubbleId:c:a1": bubble("a1", 2, wide, 2),
        "bubbleId:c:a2": json.dumps(bubble("a2", 2, wide, 4), ensure_ascii=False),
    }
    many = [bubble(f"m{n}", 2, "\U0001f600 " + "b" * 100, 5) for n in range(500)]
    inline = {"_v": 3, "composerId": "e", "conversation": [bubble("q9", 1, "?"), *many]}
    listed = {"composerData:e": json.dumps(inline, ensure_ascii=False)}
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR, *NEXT) | said | listed)

    report = import_paths(ledger, path, limits=SMALL)

    told = [f.what.rpartition(" ")[2] for f in report.faults if "too long" in f.what]
    assert told == ["bubbleId:c:a1", "bubbleId:c:a2"]
    assert len(ledger.thread("cursor:e").turns[0].messages) == 501
    (out,) = export_source(ledger, "cursor:c", tmp_path / "out.vscdb")
    assert rows_of(out) == rows_of(path)


@pytest.mark.parametrize("source", ["aix", "opencode", "openclaw"])
def test_a_long_value_of_any_source_is_told(ledger: Ledger, tmp_path: Path, source: str) -> None:
    if source == "aix":
        path, table, column = test_aix.sample(tmp_path / "aix.db"), "messages", "content"
    elif source == "opencode":
        path = test_opencode.database(tmp_path / "opencode.db", test_opencode.SAMPLE)
        table, column = "part", "data"
    else:
        path, table, column = _of_openclaw(tmp_path), "transcript_events", "event_json"
    with closing(sqlite3.connect(path)) as made:
        last = f"(SELECT max(rowid) FROM {table})"
        made.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {last}", (LONG,))
        made.commit()

    report = import_paths(ledger, path, limits=SMALL)

    told = [fault.what for fault in report.faults if "too long to read" in fault.what]
    assert len(told) == 1
    assert told[0].startswith(f"a value of {len(LONG):,} bytes is kept")
    assert f" {table} " in told[0]
    assert report.counts.failed == 0
    label = ledger.sessions()[0].label
    (out,) = export_source(ledger, label, tmp_path / "out.db")
    assert rows_of(out, table) == rows_of(path, table)


def _of_openclaw(folder: Path) -> Path:
    made = test_openclaw_database.Database(folder)
    made.tell(test_openclaw_database.a_log(folder / "log"))
    made.stand(ONE)
    return made.path


def test_a_long_value_that_is_damaged_is_passed_over(ledger: Ledger, tmp_path: Path) -> None:
    path = long_chat(tmp_path / GLOBAL)
    data = bytearray(path.read_bytes())
    at = data.index(LONG[LIMIT : LIMIT + 50].encode()) // 4096 * 4096
    data[at : at + 4] = b"\xff" * 4  # where the next page is
    path.write_bytes(data)

    report = import_paths(ledger, path, limits=SMALL)

    assert any("damaged in 1 place" in fault.what for fault in report.faults)
    assert answers(ledger, "cursor:d") == ["!"]


def test_a_table_without_rowids_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE t (id PRIMARY KEY, v) WITHOUT ROWID")
        made.execute("INSERT INTO t VALUES (1, ?)", (LONG,))
        made.commit()

    with snapshot(path, SMALL) as connection:
        found = list(select(connection, Table("t", ("id",)), ("id", "v"), SMALL))

    assert [raw(said) for _, said in found] == [LONG.encode()]


def in_folder(name: str, folder: str, words: str) -> dict[str, Any]:
    """A chat that stands in one cell, and says in it where it was held."""
    said = [bubble(f"{name}-q", 1, "What is new?"), bubble(f"{name}-a", 2, words + LONG)]
    place = {"workspaceIdentifier": {"uri": {"fsPath": folder}}}
    return {f"composerData:{name}": {"composerId": name, "conversation": said} | place}


def kept(ledger: Ledger) -> bytes:
    sources = Sources(ledger._core)
    return b"".join(b"".join(sources.stream(file.id)) for file in sources.all_files())


def test_a_long_chat_of_a_project_that_is_left_out_stays_out(
    ledger: Ledger, tmp_path: Path
) -> None:
    made = in_folder("c", SECRET, "hidden") | in_folder("d", "/home/me/open", "shown")
    path = state_db(tmp_path / GLOBAL, made)

    report = import_without(ledger, path, SECRET, limits=SMALL)

    assert (report.excluded.sessions, report.excluded.matched) == (1, {SECRET})
    assert b"hidden" not in kept(ledger)
    assert b"shown" in kept(ledger)
    assert not any("folders are excluded" in fault.what for fault in report.faults)


def test_a_chat_too_long_to_look_for_its_project_stays_out_until_nothing_is_excluded(
    ledger: Ledger, tmp_path: Path
) -> None:
    made = in_folder("c", SECRET, "hidden") | {"bubbleId:c:x": bubble("x", 2, "covert")}
    made |= in_folder("d", "/home/me/open", "shown")
    heads = [{"composerId": "d", "workspaceIdentifier": {"uri": {"fsPath": "/home/me/open"}}}]
    lists = {"composer.composerHeaders": {"allComposers": heads}}
    path = state_db(tmp_path / GLOBAL, made, lists)

    report = import_without(ledger, path, SECRET, limits=SMALL_RECORDS)

    assert [f.what for f in report.faults if "excluded" in f.what] == [f"1 session {UNCERTAIN}"]
    assert (report.excluded.sessions, report.excluded.matched) == (1, {SECRET})
    assert [word in kept(ledger) for word in (b"hidden", b"covert", b"shown")] == [0, 0, 1]
    import_paths(ledger, path, limits=SMALL_RECORDS)
    assert [word in kept(ledger) for word in (b"hidden", b"covert", b"shown")] == [1, 1, 1]


def test_what_only_a_list_too_long_to_look_through_may_tell_of_stays_out(
    ledger: Ledger, tmp_path: Path
) -> None:
    heads = {"composerId": "c", "workspaceIdentifier": {"uri": {"fsPath": SECRET}}, "name": LONG}
    lists = {"composer.composerHeaders": {"allComposers": [heads]}}
    said = (bubble("q", 1, "hidden"), bubble("a", 2, "covert"))
    path = state_db(tmp_path / GLOBAL, chat("c", *said), lists)

    report = import_without(ledger, path, SECRET, limits=SMALL_RECORDS)

    assert report.excluded.matched == {SECRET}
    assert kept(ledger) == b""


@pytest.mark.parametrize("kind", ["bubbleId", "messageRequestContext"])
def test_a_chat_whose_folder_may_stand_in_another_long_row_stays_out(
    ledger: Ledger, tmp_path: Path, kind: str
) -> None:
    made = chat("task-call_1", bubble("q", 1, "hidden"), bubble("a", 2, "covert"))
    of = "c" if kind == "bubbleId" else "task-call_1"
    path = state_db(tmp_path / GLOBAL, made | {f"{kind}:{of}:x": {"text": LONG}})

    import_without(ledger, path, SECRET, limits=SMALL_RECORDS)

    assert b"hidden" not in kept(ledger)


def test_parts_that_an_interrupted_import_left_are_no_rows() -> None:
    row = RowRecord("t", ("id",), ("id", "v"), (1, "x"))
    data = part(b"left") + part(b"own") + frame(row)

    assert [each.row for each in records([data])] == [row]
    ((framed, parts),) = parted([data])
    assert framed.row == row
    assert [data[at : at + length] for at, length in parts] == [part(b"left"), part(b"own")]


def test_a_long_value_takes_little_memory(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / GLOBAL
    said = chat("c", *PAIR) | {"bubbleId:c:a1": bubble("a1", 2, "a" * (60 << 20), 2)}
    state_db(path, said)
    del said
    tracemalloc.start()

    import_paths(ledger, path)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20
    file = Sources(ledger._core).file(str(path))
    assert file is not None
    assert file.kept_bytes > 60 << 20


def test_to_look_for_its_project_takes_a_long_value_once(ledger: Ledger, tmp_path: Path) -> None:
    made = in_folder("c", SECRET, "a" * (60 << 20))
    path = state_db(tmp_path / GLOBAL, made)
    del made
    tracemalloc.start()

    report = import_without(ledger, path, SECRET)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80 << 20
    assert report.excluded.sessions == 1
    assert kept(ledger) == b""
