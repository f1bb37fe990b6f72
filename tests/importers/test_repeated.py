"""Names that stand twice in one object: told, wherever they stand; the last value counts."""

from __future__ import annotations

import codecs
import json
import re
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_ledger import Ledger
from agents_ledger.importers.parsing import duplicate_keys
from agents_ledger.importers.parsing.duplicate_keys import is_sound, repeated_name
from tests.importers.helping import import_paths, result
from tests.trust.shapes import write_all

FIRST_NAME = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*")\s*:')
TWICE = "stands twice in one object"


class Object(list[tuple[str, Any]]):
    """Names and values as they stand in some JSON."""


NAMES = st.sampled_from(["a", "b", 'q"', "back\\", "é", "\n", ":"])
VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.sampled_from([1e6, 1e-7, 1.5, 1e22, -0.0])
    | st.sampled_from(['"a": 1', '{"a":1,"a":2}', "\\", '\\"', "}"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(st.tuples(NAMES, inner), max_size=3).map(Object)
    ),
    max_leaves=12,
)


def written(value: Any, *, spaced: bool, plain: bool) -> str:
    """The JSON of a value, names as often as they stand there."""
    if isinstance(value, Object):
        colon, comma = (" : ", " , ") if spaced else (":", ",")
        pairs = (
            json.dumps(name, ensure_ascii=plain) + colon + written(each, spaced=spaced, plain=plain)
            for name, each in value
        )
        return "{" + comma.join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(each, spaced=spaced, plain=plain) for each in value) + "]"
    return json.dumps(value, ensure_ascii=plain)


def says_twice(value: Any) -> bool:
    if isinstance(value, Object):
        names = [name for name, _ in value]
        return len(set(names)) < len(names) or any(says_twice(each) for _, each in value)
    return isinstance(value, list) and any(map(says_twice, value))


@given(VALUES, st.booleans(), st.booleans())
def test_a_name_is_told_when_and_only_when_an_object_has_it_twice(
    value: Any, spaced: bool, plain: bool
) -> None:
    data = written([value], spaced=spaced, plain=plain).encode()

    assert (repeated_name(data) is not None) == says_twice(value)
    assert not (is_sound(data) and says_twice(value))


def test_a_name_is_the_same_however_it_is_written() -> None:
    assert repeated_name(rb'{"role":1,"ro\u006ce":2}') == "role"


def test_what_a_string_holds_is_no_name_even_where_the_string_never_ends() -> None:
    assert repeated_name(rb'{"a":"{\"b\":1,\"b\":2}"}') is None
    assert repeated_name(rb'{"a":"' + rb"\"b\":" * 200_000) is None  # in no time


@pytest.mark.parametrize("data", [b'{"a":1,"a":1e6}', b'{"a":1,"a":1e5 }'])
def test_a_lost_value_is_noticed_though_another_came_back_longer(data: bytes) -> None:
    assert not is_sound(data)
    assert repeated_name(data) == "a"


def test_what_is_nested_without_end_takes_little_memory() -> None:
    data = b'{"a":' * 1_000_000
    tracemalloc.start()
    try:
        assert repeated_name(data) is None
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_of_long_json_no_values_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_keys, "AT_ONCE", 10)

    assert is_sound(b'{"a":1}')
    assert not is_sound(b'{"a":1,"b":2}')


def _say_twice(path: Path, mark: bytes) -> bool:
    """Give the first name of a file's JSON, or of a database's, once more before it."""
    if path.read_bytes().startswith(b"SQLite"):
        return _say_twice_in_cells(path)
    data, found = FIRST_NAME.subn(rb"{\1:null,\1:", path.read_bytes(), count=1)
    path.write_bytes((mark if path.suffix in (".json", ".jsonl") else b"") + data)
    return bool(found) and path.suffix in (".json", ".jsonl")


def _say_twice_in_cells(path: Path) -> bool:
    changed = 0
    with closing(sqlite3.connect(path)) as database, database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for column in database.execute(f"SELECT * FROM {table} LIMIT 0").description:
                for rowid, cell in database.execute(f"SELECT rowid, {column[0]} FROM {table}"):
                    if isinstance(cell, str) and FIRST_NAME.match(cell.encode()):
                        twice = FIRST_NAME.sub(rb"{\1:null,\1:", cell.encode(), count=1).decode()
                        sql = f"UPDATE {table} SET {column[0]} = ? WHERE rowid = ?"
                        changed += database.execute(sql, (twice, rowid)).rowcount
    return changed > 0


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_it_is_told_of_every_source_and_nothing_else_is_shown(tmp_path: Path, mark: bytes) -> None:
    write_all(tmp_path / "histories")
    with Ledger.open(str(tmp_path / "once.db")) as ledger:
        once = import_paths(ledger, tmp_path / "histories")
        shown = result(ledger)
    files = [path for path in sorted((tmp_path / "histories").rglob("*")) if path.is_file()]
    twice = {str(path) for path in files if _say_twice(path, mark)}

    with Ledger.open(str(tmp_path / "twice.db")) as ledger:
        report = import_paths(ledger, tmp_path / "histories")
        assert [row[2:6] for row in result(ledger)["turns"]] == [r[2:6] for r in shown["turns"]]
        assert [row[3] for row in result(ledger)["messages"]] == [r[3] for r in shown["messages"]]
        assert not ledger.audit()

    assert not [fault for fault in once.faults if TWICE in fault.what]
    assert report.counts == once.counts
    told = {fault.path for fault in report.faults if TWICE in fault.what}
    assert twice - told == set(report.without_reader)  # a map whose first session is none
    assert len(told) > 30
