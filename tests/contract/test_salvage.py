"""Salvage: everything readable of a damaged file comes into a sound ledger, and what is missing is
listed."""

from __future__ import annotations

import shutil
import sqlite3
import struct
import time
from pathlib import Path

import pytest

from agents_ledger import Damaged, Ledger, NotFound, Refused, Turn
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from agents_ledger.ledger.maintenance.salvage import Salvaged, salvage
from agents_ledger.store.salvage.sqlite_records import columns_of
from agents_ledger.store.text import unescape
from tests.conftest import ticking_clock
from tests.raw import Raw
from tests.trust import specimen

PAGE = 4096
QUICKLY = 20.0  # seconds


@pytest.fixture(scope="module")
def specimen_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Turn]]:
    """A ledger file, and its turns; to be copied."""
    folder = tmp_path_factory.mktemp("specimen")
    with ticking_clock():
        return folder / "ledger.db", specimen.make(folder / "ledger.db", folder)


@pytest.fixture
def whole(
    specimen_file: tuple[Path, dict[str, Turn]], tmp_path: Path
) -> tuple[Path, dict[str, Turn]]:
    """A ledger file of the test's own, and its turns."""
    path, turns = specimen_file
    return Path(shutil.copy(path, tmp_path)), dict(turns)


def salvaged_from(path: Path) -> tuple[Salvaged, dict[str, Turn]]:
    """What salvage tells, and the turns of the new ledger, which is sound and can be written."""
    before = path.read_bytes()
    new = path.with_name("new.db")
    salvaged = salvage(str(path), str(new))
    assert path.read_bytes() == before
    with Ledger.open(str(new), create=False) as ledger:
        turns = specimen.whole(ledger)
        assert ledger.audit() == () == salvaged.findings
        assert list(specimen.escapes(ledger)) == []
        ledger.record("main", "and on it goes", "r")
        assert ledger.audit() == ()
    return salvaged, turns


def change(path: Path, sql: str, *values: object) -> None:
    """Change rows as damage would: no rule is asked."""
    connection = sqlite3.connect(path, isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA ignore_check_constraints=ON")
    connection.execute(sql, values)
    connection.close()


def roots(path: Path) -> dict[str, int]:
    with Raw(str(path)) as raw:
        return dict(raw.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0"))


def overwrite(path: Path, page: int, count: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xa5" * PAGE * count)


def told(salvaged: Salvaged, words: str) -> list[str]:
    """The ids of what is missing for a reason with these words."""
    return [missing.id for missing in salvaged.missing if words in missing.what]


def test_nothing_is_missing_from_a_sound_ledger(whole: tuple[Path, dict[str, Turn]]) -> None:
    path, turns = whole

    salvaged, found = salvaged_from(path)

    assert found == turns
    assert salvaged.complete
    assert salvaged.missing == ()


def test_what_only_the_log_has_is_read(whole: tuple[Path, dict[str, Turn]], tmp_path: Path) -> None:
    path, _ = whole
    copied = tmp_path / "open.db"
    with Ledger.open(str(path)) as ledger:
        turn = ledger.record("main", "only in the log", "r")
        for suffix in ("", "-wal"):
            copied.with_name(f"open.db{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())

    salvaged, found = salvaged_from(copied)

    assert found[turn.id] == turn
    assert salvaged.complete


@pytest.mark.parametrize("pages", [5, 0xFFFFFFFF])
def test_a_log_with_a_page_far_behind_the_end_is_read_quickly(
    whole: tuple[Path, dict[str, Turn]], pages: int
) -> None:
    path, _ = whole
    overwrite(path, roots(path)["names"])  # so that orphaned rows are searched for
    header = struct.pack(">6I", 0x377F0682, 3007000, PAGE, 0, 1, 2)
    sums = log_checksum(header, (0, 0))
    frame, content = struct.pack(">2I", 0xFFFFFFF0, pages), bytes(PAGE)
    frame_sums = log_checksum(content, log_checksum(frame, sums))
    log = header + struct.pack(">2I", *sums) + frame + struct.pack(">4I", 1, 2, *frame_sums)
    path.with_name(f"{path.name}-wal").write_bytes(log + content)

    started = time.monotonic()
    salvage(str(path), str(path.with_name("new.db")))

    assert time.monotonic() - started < QUICKLY


def log_checksum(data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """The checksum of a write-ahead log, of little-endian numbers."""
    first, second = sums
    for even, odd in struct.iter_unpack("<2I", data):
        first = (first + even + second) % (1 << 32)
        second = (second + odd + first) % (1 << 32)
    return first, second


def test_every_index_may_be_lost(whole: tuple[Path, dict[str, Turn]]) -> None:
    path, turns = whole
    for name, page in roots(path).items():
        if name.startswith(("idx_", "sqlite_autoindex")):
            overwrite(path, page)

    salvaged, found = salvaged_from(path)

    assert found == turns
    assert salvaged.complete


def test_places_and_segments_are_derived_anew(whole: tuple[Path, dict[str, Turn]]) -> None:
    path, turns = whole
    overwrite(path, roots(path)["segments"])

    _, found = salvaged_from(path)

    assert found == turns


@pytest.mark.parametrize(
    "sql",
    [
        "VACUUM INTO '{path}'",
        "ATTACH '{path}' AS other",
        "CREATE TABLE a (b); SELECT 1",
        "CREATE TABLE a (b)\0",
        "CREATE TABLE a AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 9)"
        " SELECT * FROM c",
    ],
)
def test_the_text_of_a_damaged_schema_is_not_run(
    whole: tuple[Path, dict[str, Turn]], tmp_path: Path, sql: str
) -> None:
    path, turns = whole
    written = tmp_path / "written"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema=ON")
    text = sql.format(path=written)
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'turns'", (text,))
    connection.close()

    _, found = salvaged_from(path)

    assert found == turns
    assert not written.exists()
    assert columns_of(text) == []


@pytest.mark.parametrize("page", [1, "sqlite_master"])
def test_a_lost_schema_does_not_lose_the_rows(
    whole: tuple[Path, dict[str, Turn]], page: int | str
) -> None:
    path, turns = whole
    first = 1 if page == 1 else path.read_bytes().index(b"CREATE TABLE turns") // PAGE + 1
    overwrite(path, first)

    salvaged, found = salvaged_from(path)

    assert found.keys() >= turns.keys()
    assert salvaged.remarks != ()
    assert not salvaged.complete


def test_a_lost_turn_is_rebuilt_so_that_its_thread_stays_whole(
    whole: tuple[Path, dict[str, Turn]],
) -> None:
    path, turns = whole
    with Ledger.open(str(path), read_only=True) as ledger:
        thread = ledger.ancestry("main")
    change(path, "DELETE FROM turns WHERE id = ?", thread[5])

    salvaged, found = salvaged_from(path)

    assert told(salvaged, "The row of a turn was lost") == [thread[5]]
    assert found[thread[5]].messages == turns[thread[5]].messages
    assert found[thread[5]].parent_turn_id == thread[4]
    with Ledger.open(str(path.with_name("new.db"))) as ledger:
        assert ledger.ancestry("main")[: len(thread)] == thread


def test_a_turn_whose_parent_is_lost_without_a_trace_stands_below_an_empty_one(
    whole: tuple[Path, dict[str, Turn]],
) -> None:
    path, _ = whole
    with Ledger.open(str(path), read_only=True) as ledger:
        lost, child = ledger.ancestry("main")[5:7]
    for table, key in (("turns", "id"), ("messages", "turn_id"), ("tool_calls", "turn_id")):
        change(path, f"DELETE FROM {table} WHERE {key} = ?", lost)
    change(path, "DELETE FROM places WHERE turn_id = ?", lost)

    _, found = salvaged_from(path)

    assert found[child].parent_turn_id == lost
    assert (found[lost].messages, found[lost].parent_turn_id) == ((), None)
    assert "lost" in str(found[lost].error)


def test_lost_messages_and_calls_are_listed_by_their_turn(
    whole: tuple[Path, dict[str, Turn]],
) -> None:
    path, turns = whole
    turn = next(turn for turn in turns.values() if turn.tool_calls and turn.response)
    change(path, "DELETE FROM messages WHERE turn_id = ?", turn.id)
    change(path, "DELETE FROM tool_calls WHERE turn_id = ?", turn.id)

    salvaged, found = salvaged_from(path)

    assert found[turn.id].messages == ()
    assert told(salvaged, "lost messages that asked") == [turn.id]
    assert told(salvaged, "lost its response") == [turn.id]
    assert told(salvaged, "lost tool calls") == [turn.id]


def test_a_session_whose_head_is_lost_goes_back_to_the_last_turn_that_is_left(
    whole: tuple[Path, dict[str, Turn]],
) -> None:
    path, _ = whole
    with Ledger.open(str(path), read_only=True) as ledger:
        *_, before, head = ledger.ancestry("side")
    for table, key in (("turns", "id"), ("messages", "turn_id"), ("places", "turn_id")):
        change(path, f"DELETE FROM {table} WHERE {key} = ?", head)

    salvaged, _ = salvaged_from(path)

    assert told(salvaged, "head of a session is lost") == ["side"]
    with Ledger.open(str(path.with_name("new.db"))) as ledger:
        assert ledger.head("side") == before


def test_a_lost_session_is_rebuilt_from_its_history(whole: tuple[Path, dict[str, Turn]]) -> None:
    path, _ = whole
    with Ledger.open(str(path), read_only=True) as ledger:
        head = ledger.head("side")
    change(path, "DELETE FROM sessions WHERE label = 'side'")

    salvaged, _ = salvaged_from(path)

    assert told(salvaged, "row of a session was lost") == ["side"]
    with Ledger.open(str(path.with_name("new.db"))) as ledger:
        assert ledger.head("side") == head


def test_text_that_is_no_utf_8_is_kept_as_far_as_it_goes(
    whole: tuple[Path, dict[str, Turn]],
) -> None:
    path, turns = whole
    message = next(iter(turns.values())).messages[-1]
    change(path, "UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = ?", message.id)

    salvaged, found = salvaged_from(path)

    assert next(iter(found.values())).messages[-1].content == "a�b"
    assert told(salvaged, "content cannot be read") == [message.id]


@pytest.mark.parametrize("stored", ["a\0b", "a\x1ab", "a\x1a0041b"])
def test_text_that_is_not_escaped_as_the_ledger_stores_it_is_normalised(
    whole: tuple[Path, dict[str, Turn]], stored: str
) -> None:
    path, turns = whole
    message = next(iter(turns.values())).messages[-1]
    change(path, "UPDATE messages SET content = ? WHERE id = ?", stored, message.id)

    salvaged, found = salvaged_from(path)

    assert next(iter(found.values())).messages[-1].content == unescape(stored)
    assert told(salvaged, "content cannot be read") == [message.id]


@pytest.mark.parametrize("damaged", ["\0", "\x1a-", "\x1a0041"])
def test_a_row_whose_key_is_not_escaped_as_the_ledger_stores_it_is_dropped(
    whole: tuple[Path, dict[str, Turn]], damaged: str
) -> None:
    path, turns = whole
    turn_id = next(iter(turns))
    change(path, "UPDATE turns SET id = ? || id WHERE id = ?", damaged, turn_id)

    salvaged, found = salvaged_from(path)

    assert found.keys() == turns.keys()  # the turn is rebuilt from its messages
    assert len(told(salvaged, "turns: its key is damaged")) == 1


def test_a_row_without_a_key_is_dropped(whole: tuple[Path, dict[str, Turn]]) -> None:
    path, turns = whole
    change(path, "UPDATE turns SET id = NULL WHERE id = ?", next(iter(turns)))

    salvaged, found = salvaged_from(path)

    assert found.keys() == turns.keys()
    assert len(told(salvaged, "turns: its key is damaged")) == 1


def test_an_index_with_too_few_values_names_no_lost_rows(
    whole: tuple[Path, dict[str, Turn]],
) -> None:
    path, _ = whole
    pages = roots(path)
    data = bytearray(path.read_bytes())
    short, long = (
        (pages[name] - 1) * PAGE
        for name in ("sqlite_autoindex_names_1", "sqlite_autoindex_session_imports_1")
    )
    data[long : long + PAGE] = data[short : short + PAGE]
    path.write_bytes(data)
    overwrite(path, pages["session_imports"])

    salvaged, _ = salvaged_from(path)

    assert not salvaged.complete


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE turns SET status = 'compleTed', role = 'x'",
        "UPDATE turns SET parent_turn_id = id",
        "UPDATE turns SET projected = 1",
        "UPDATE turns SET request_hash = NULL, completed_at = NULL",
        "UPDATE turns SET query_message_ids = '[\"'",
        "UPDATE messages SET role = 'x'",
        "UPDATE messages SET sequence = -5 - sequence",
        "UPDATE tool_calls SET status = 'running', message_id = 'gone'",
        "UPDATE tool_calls SET sequence = 0",
        "UPDATE compactions SET summarized_through_turn_id = 'gone'",
        "DELETE FROM compactions",
        "UPDATE system_prompts SET content = 'x' || content",
        "DELETE FROM system_prompts",
        "DELETE FROM names",
        "UPDATE names SET session_label = 'gone'",
        "DELETE FROM session_history",
        "UPDATE sessions SET spawn_tool_call_id = 'gone'",
        "UPDATE sessions SET thread_id = 'gone'",
        "DELETE FROM source_blocks",
        "DELETE FROM source_files",
        "DELETE FROM turn_sources",
        "DELETE FROM bus_tasks",
        "DELETE FROM bus_turns",
        "DELETE FROM messages WHERE id LIKE 'task:%'",
        "UPDATE bus_messages SET turn_id = NULL",
        "UPDATE bus_calls SET status = 'in_progress'",
        "UPDATE queue SET status = 'claimed'",
        "DELETE FROM sessions",
        "DELETE FROM turns",
        "DELETE FROM messages",
        "UPDATE places SET persona_id = x'00', system_prompt_hash = 'gone'",
    ],
)
def test_whatever_is_lost_the_new_ledger_is_sound(
    whole: tuple[Path, dict[str, Turn]], sql: str
) -> None:
    path, turns = whole
    change(path, sql)

    salvaged, found = salvaged_from(path)

    assert found.keys() >= turns.keys()
    assert not salvaged.complete


def test_a_turn_that_was_being_written_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(str(path)) as ledger:
        ledger.record("main", "q", "r")
        turn = ledger.turn("main", "live")
        turn.stream("so far")
        for suffix in ("", "-wal"):
            (tmp_path / f"cut.db{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
        turn.respond("whole")

    salvage(str(tmp_path / "cut.db"), str(tmp_path / "new.db"))

    with Ledger.open(str(tmp_path / "new.db")) as ledger:
        assert ledger.get_turn(turn.id).status == "failed"
        assert [m.content for m in ledger.get_turn(turn.id).messages] == ["live", "so far"]
        assert ledger.audit() == ()


def test_half_of_a_file_is_salvaged(whole: tuple[Path, dict[str, Turn]]) -> None:
    path, _ = whole
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3 + 100])

    salvaged, _ = salvaged_from(path)

    assert any("ends within a page" in remark for remark in salvaged.remarks)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 100_000, b"\0" * 5000])
def test_a_file_without_a_ledger_is_refused_clearly(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "none.db").write_bytes(content)

    with pytest.raises(Damaged):
        salvage(str(tmp_path / "none.db"), str(tmp_path / "new.db"))

    assert [path.name for path in tmp_path.iterdir()] == ["none.db"]


def test_salvage_overwrites_nothing_and_needs_a_file(
    whole: tuple[Path, dict[str, Turn]], tmp_path: Path
) -> None:
    path, _ = whole
    (tmp_path / "taken.db").write_text("mine")

    with pytest.raises(Refused, match="exists already"):
        salvage(str(path), str(tmp_path / "taken.db"))
    with pytest.raises(NotFound, match="there is no file"):
        salvage(str(tmp_path / "gone.db"), str(tmp_path / "new.db"))
    with Ledger.open(str(path)), pytest.raises(Refused, match="is open in this process"):
        salvage(str(path), str(tmp_path / "new.db"))

    assert (tmp_path / "taken.db").read_text() == "mine"
    assert not (tmp_path / "new.db").exists()


def test_access_tokens_are_revoked(tmp_path: Path) -> None:
    """A revocation may be among what is lost."""
    path = tmp_path / "ledger.db"
    with Ledger.open(str(path)) as ledger:
        _, secret = Tokens(ledger._core).create("agent", ["read"])
    salvage(str(path), str(tmp_path / "new.db"))

    with Ledger.open(str(tmp_path / "new.db")) as ledger:
        assert Tokens(ledger._core).find(secret) is None
