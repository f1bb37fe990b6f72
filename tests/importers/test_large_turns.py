"""A turn may be larger than what memory shall hold: the agent worked for hours on one prompt."""

from __future__ import annotations

import gc
import pickle
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agents_ledger import Ledger
from agents_ledger.importers.parsing.text_size import JSON_STRING, has_text_exceeding
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.transcript.spill_file import LazySequence, SpillFile
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.projection import reconcile
from agents_ledger.ledger.search import documents
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.model.turns import MessageCodeblock, MessageFile, Turn
from agents_ledger.store.database import open_database
from tests.engines import on_sqlite
from tests.importers import test_memory, test_opencode
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.codex_log import Rollout
from tests.importers.helping import HOLDS_NOTHING, import_paths, packed_result, result

OTHER = "22222222-2222-4222-8222-222222222222"
SHORT_TEXTS = ImportLimits(text_bytes=10_000)
SAID = "words of the output " * 1000


def of_claude_code(folder: Path, calls: int, said: str = SAID) -> Path:
    log = Log(folder)
    log.user("a1", "Work on it.")
    for number in range(calls):
        log.assistant(f"b{number:04}", text("Looking."), api=f"m{number}")
        block = tool(f"t{number}", "Read", file_path=f"/x/{number}.py")
        log.assistant(f"c{number:04}", block, api=f"m{number}")
        log.result(f"d{number:04}", f"t{number}", said, toolUseResult={"stdout": said})
    log.assistant("e1", text("Done."))
    return log.save()


def of_codex(folder: Path, calls: int, said: str = SAID) -> Path:
    log = Rollout(folder)
    log.start(1)
    log.ask("Work on it.")
    for number in range(calls):
        log.call(f"call_{number}", output=said, cmd="make")
        log.event("exec_command_end", call_id=f"call_{number}", stdout=said, exit_code=number % 2)
    log.say("Done.")
    return log.save()


Made = Callable[[Path, int], Path]


@pytest.mark.parametrize("made", [of_claude_code, of_codex])
def test_a_turn_that_waits_in_a_file_is_written_as_it_is(
    made: Made, ledger: Ledger, tmp_path: Path
) -> None:
    path = made(tmp_path, 7)
    import_paths(ledger, path)
    before = result(ledger)

    assert packed_result(tmp_path, path) == before
    assert len(before["turns"]) == 1
    assert len(before["tool_calls"]) == 7


@pytest.mark.parametrize("made", [of_claude_code, of_codex])
def test_a_turn_with_more_calls_takes_no_more_memory(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = ImportLimits(held_bytes=100_000, held_turn_bytes=100_000, held_turn_chars=100_000)
    limits = LedgerLimits(step_chars=100_000, block_bytes=100_000)
    most: list[int] = []
    add = reconcile.Projector.add

    def measured(self: reconcile.Projector, *values: object, **named: object) -> None:
        gc.collect()
        tracemalloc.start()
        add(self, *values, **named)  # type: ignore[arg-type]
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    monkeypatch.setattr(reconcile.Projector, "add", measured)
    for calls in (50, 50, 150, 150):  # each twice: one of them may make what is made once
        folder = tmp_path / str(len(most))
        folder.mkdir()
        database = open_database(str(folder / "ledger.db"), limits=limits)
        with Ledger(Core(database)) as ledger:
            import_paths(ledger, made(folder, calls), limits=held)

    assert (min(most[2:]) - min(most[:2])) / 100 < len(SAID) / 5  # of which each says twice as much


def test_of_a_large_turn_what_was_set_aside_is_read_and_changed() -> None:
    def built(limits: ImportLimits) -> Turn:
        builder = TurnBuilder("turn", None, limits)
        builder.message("a", "user", "Half \ud83d of a letter.", at=1)
        builder.message("b", "assistant", "Yes.", at=2, codeblocks=[MessageCodeblock("x = 1")])
        builder.call("c", "Edit", {"path": "x"}, at=3, message_id="b")
        builder.call("d", "Task", {}, at=4, message_id="b", spawned="child")
        builder.call("e", "Bash", {}, at=5)
        builder.add_files("b", [MessageFile("written", "x")])
        builder.result("c", "done", at=6)
        builder.message("f", "user", "And?", at=7)
        return builder.build()

    held, aside = built(LIMITS), built(HOLDS_NOTHING)

    assert isinstance(aside.messages, LazySequence)
    assert (tuple(aside.messages), tuple(aside.tool_calls)) == (held.messages, held.tool_calls)
    assert list(aside.messages[1:]) == list(held.messages[1:])
    assert aside.messages[-1] == held.messages[-1]
    assert aside.response_message_id == held.response_message_id == "b"
    assert [call.status for call in held.tool_calls] == ["completed", "cancelled", "cancelled"]


def test_what_is_read_back_to_be_changed_is_set_aside_again() -> None:
    builder = TurnBuilder("turn", None, ImportLimits(held_turn_chars=1_000_000))
    tracemalloc.start()
    for number in range(50):
        builder.call(f"c{number}", "Write", {"content": "x" * 300_000}, at=1)
    for number in range(50):
        builder.result(f"c{number}", "ok", at=2)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 2_000_000
    assert {call.status for call in builder.build().tool_calls} == {"completed"}


def test_another_process_gets_a_large_turn_whole() -> None:
    builder = TurnBuilder("turn", None, HOLDS_NOTHING)
    builder.message("a", "user", "Begin.", at=1)
    turn = builder.build()

    sent = pickle.loads(pickle.dumps(turn))  # noqa: S301 - as the import does

    assert sent.messages == tuple(turn.messages)


def test_steps_are_tuples_where_a_turn_is_decoded() -> None:
    builder = TurnBuilder("turn", None)
    builder.message("a", "user", "Begin.", at=1)
    turn = builder.build()

    assert msgspec.json.decode(msgspec.json.encode(turn), type=Turn) == turn
    assert isinstance(turn.messages, tuple)


def test_values_are_set_aside_in_any_order() -> None:
    aside = SpillFile()
    spots = [aside.put(value) for value in ("one", "two" * 100_000)]

    assert aside.read(spots[1]) == "two" * 100_000
    spots.append(aside.put(["three"]))
    assert [aside.read(spot) for spot in spots] == ["one", "two" * 100_000, ["three"]]


def test_where_no_file_can_be_made_the_others_go_on_and_the_next_import_too(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = of_claude_code(tmp_path, 7), Log(tmp_path, OTHER)
    small.user("f1", "Begin.")
    small.assistant("f2", text("Done."))
    limits = ImportLimits(held_turn_chars=50_000)
    with monkeypatch.context() as full:
        full.setenv("TMPDIR", "chosen")
        full.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        report = import_paths(ledger, large, small.save(), limits=limits)
    (fault,) = report.faults
    assert "missing" in fault.what
    assert (report.counts.imported, report.counts.failed) == (1, 1)

    report = import_paths(ledger, large, limits=limits)

    assert (report.faults, report.counts.imported, report.read_bytes) == ([], 1, 0)
    assert len(ledger.get_turn(uid("a1")).tool_calls) == 7


def test_a_large_turn_that_grows_is_written_anew_some_at_a_time(
    limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    ledger = limited(deleted_steps=2)
    lines = of_claude_code(tmp_path, 7).read_bytes().splitlines(keepends=True)
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(b"".join(lines[:-5]))
    import_paths(ledger, path)
    path.write_bytes(b"".join(lines))
    import_paths(ledger, path)

    with Ledger.open(str(tmp_path / "other.db")) as other:
        import_paths(other, path)
        assert result(other) == result(ledger)


# -- what of it is found ----------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 1000])  # put in with its commit, or when it is asked for
def test_of_very_many_calls_the_beginning_and_the_end_are_found(
    together: int, limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    ledger = limited(index_commit_turns=together, indexed_values_chars=10_000)
    said = f"firstword {'filler ' * 200} middleword {'filler ' * 200} lastword"
    path = of_claude_code(tmp_path, 10, said)
    import_paths(ledger, path)

    for _ in range(2):
        found = {word: len(ledger.search(f"{word}word").hits) for word in ("first", "last")}
        assert found == {"first": 1, "last": 1}
        assert not ledger.search("middleword").hits
        ledger._core.index(least=1)


@on_sqlite  # a server's index has turns that are done
@pytest.mark.parametrize("seal", [True, False])
def test_a_turn_that_is_still_written_is_found_by_as_much(
    seal: bool, limited: Callable[..., Ledger]
) -> None:
    ledger = limited(indexed_values_chars=10_000)
    said = f"firstword {'filler ' * 200} middleword {'filler ' * 200} lastword"
    with ledger.turn("main", "Work on it.") as turn:
        for _ in range(10):
            with turn.tool_call("Bash", {}) as call:
                call.complete(said)
        if seal:
            turn.respond("Done.")

        hits = [len(ledger.search(f"{w}word").hits) for w in ("first", "middle", "last")]
        assert hits == [1, 0, 1]
        if not seal:
            turn.respond("Done.")


def test_of_no_turn_more_is_indexed_than_memory_should_hold() -> None:
    builder = TurnBuilder("turn", None)
    builder.message("a", "user", "Begin.", at=1)
    for number in range(40):
        builder.message(f"m{number}", "assistant", "words " * 100, at=2)
        builder.call(f"c{number}", "Bash", {"lines": ["words"] * 100}, at=3)
        builder.result(f"c{number}", None, at=4, status="failed", error="no " * 100)

    document = documents.of_turn(builder.build(), LedgerLimits(indexed_turn_chars=10_000))

    assert document.letters == sum(len(piece.text) for piece in document.pieces) == 10_000
    assert document.pieces[0].text == "Begin."


def test_a_file_that_several_say_was_read_is_there_once() -> None:
    builder = TurnBuilder("turn", None)
    builder.message("a", "assistant", "Reading.", at=1)
    builder.call("c", "Read", {"file_path": "x.py"}, at=2)
    builder.result("c", "text", at=3)
    builder.add_files("a", [MessageFile("read", "x.py"), MessageFile("written", "x.py")])
    builder.add_files("a", [MessageFile("written", "x.py")])

    files = documents.of_turn(builder.build()).files

    assert [(file.path, file.written, file.tool_name) for file in files] == [
        ("x.py", False, "Read"),
        ("x.py", True, None),
    ]


def test_of_a_turn_with_few_calls_more_is_found(
    limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    ledger = limited(indexed_values_chars=10_000)
    said = f"{'filler ' * 200} middleword {'filler ' * 200}"

    import_paths(ledger, of_claude_code(tmp_path, 2, said))

    assert len(ledger.search("middleword").hits) == 1


def test_of_a_very_long_message_the_beginning_and_the_end_are_found(
    limited: Callable[..., Ledger],
) -> None:
    ledger = limited(indexed_message_chars=1000)
    long = f"firstword {'filler ' * 200} middleword {'filler ' * 200} lastword"
    ledger.record("main", long, "fine")

    assert [len(ledger.search(f"{w}word").hits) for w in ("first", "middle", "last")] == [1, 0, 1]


# -- texts that are too long ------------------------------------------------------------------


PLAIN = b"a" * 1000


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (PLAIN, False),
        (PLAIN * 2, True),
        (PLAIN + b'", "' + PLAIN, False),
        (PLAIN + rb"\"" + PLAIN, True),
        (PLAIN + "ä".encode(), False),  # a letter of one byte in memory
        (PLAIN + "中".encode(), True),
        ("中".encode() * 500, False),  # three bytes here, and two in memory
        (PLAIN + rb"\u4e2d", True),
        (PLAIN + rb"\u001b", False),
        (PLAIN + rb"C:\\users", False),  # no escaped letter
        (PLAIN + rb"C:\\\u4e2d", True),
        (rb"\u4e2d" * 500, False),
        (rb"\\u" * 600, True),
        (PLAIN[:300] + "😀".encode(), True),
        (PLAIN[:300] + rb"\ud83d\ude00", True),
        (PLAIN[:200] + "😀".encode(), False),
        ("😀".encode() * 250, False),
        (PLAIN + '", "b": "😀'.encode(), False),
    ],
)
def test_a_text_is_too_long_by_the_memory_it_takes(said: bytes, expected: bool) -> None:
    assert has_text_exceeding(b'{"a": ["%b"]}' % said, 1100) is expected


def test_what_is_cut_off_inside_a_text_is_looked_at_once() -> None:
    said = b'{"type": "user", "message": "%b' % (rb"\"a" * 1000)

    assert [len(found) for found in JSON_STRING.findall(said)] == [6, 6, 9, 3001]


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("chats/session-2026-01-01-00000000.json", test_memory.of_gemini_document),
        ("chatgpt/conversations.json", test_memory.of_chatgpt),
        ("claude/conversations.json", test_memory.of_claude_ai),
        ("tasks/1/ui_messages.json", test_memory.of_cline),
        ("tasks/1/api_conversation_history.json", test_memory.of_cline_history),
        ("cline/s/s.messages.json", test_memory.of_cline_session),
    ],
)
def test_of_a_document_only_the_message_with_that_text_is_not_read(
    path: str, made: Callable[[int], bytes], ledger: Ledger, *, tmp_path: Path
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_bytes(made(20))
    import_paths(ledger, file)
    whole = [turn for (turn,) in ledger.query("SELECT id FROM turns ORDER BY id")[1]]
    head, said, rest = made(20).rpartition(b'"said"')
    file.write_bytes(head + b'"%b"' % (b"long " * 4000) + rest)

    with Ledger.open(str(tmp_path / "other.db")) as other:
        report = import_paths(other, file, limits=SHORT_TEXTS)
        found = [turn for (turn,) in other.query("SELECT id FROM turns ORDER BY id")[1]]

    assert said
    assert "read" in report.faults[0].what
    assert len(report.faults) == 1
    assert found == whole


def test_a_record_with_a_text_that_is_too_long_is_kept_and_reported(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("x" * 20_000))
    log.assistant("a3", text("An answer."))

    report = import_paths(ledger, log.save(), limits=SHORT_TEXTS)

    fault, gap = report.faults
    assert (fault.line, "too long to read" in fault.what) == (2, True)
    assert (gap.line, "is missing" in gap.what) == (3, True)
    assert report.counts.imported == 1
    assert report.records["claude-code", "(overlong)", "malformed"] == 1
    assert [m.content for m in ledger.get_turn(uid("a1")).messages] == ["Begin.", "An answer."]


def test_an_output_beside_its_session_that_is_too_long_is_shown_as_its_record_does(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Bash", command="ls"))
    beside = tmp_path / SESSION / "tool-results" / "b1.txt"
    beside.parent.mkdir(parents=True)
    beside.write_text("😀" + "long " * 1000)
    log.result("a3", "t1", f"<persisted-output>\nsaved to: {beside}\nPreview: long")

    report = import_paths(ledger, log.save(), beside, limits=SHORT_TEXTS)

    assert [fault.path for fault in report.faults] == [str(beside)]
    (call,) = ledger.get_turn(uid("a1")).tool_calls
    assert "Preview: long" in (call.result_json or "")


def test_a_file_of_opencode_with_a_text_that_is_too_long_is_reported(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = test_opencode.storage(tmp_path / "opencode", test_opencode.SAMPLE)
    (long,) = root.rglob("prt_8.json")
    long.write_bytes(long.read_bytes().replace(b'"text": "', b'"text": "' + b"long " * 3000, 1))

    report = import_paths(ledger, root, limits=SHORT_TEXTS)

    assert [fault.path for fault in report.faults] == [str(long)]
    assert report.counts.imported == 1
