"""A turn may be larger than what memory shall hold: the agent worked for hours on one prompt."""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers import building, places, reader
from agents_ledger.importers.aside import Aside, ReadAgain
from agents_ledger.importers.building import TurnBuilder
from agents_ledger.importers.reader import has_long_text
from agents_ledger.ledger import documents, projected_turns, projection, sources
from agents_ledger.model.turns import MessageCodeblock, MessageFile, Turn
from tests.importers.claude_log import Log, text, tool, uid
from tests.importers.codex_log import Rollout
from tests.importers.helping import import_paths, packed_result, result

OTHER = "22222222-2222-4222-8222-222222222222"
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
    for module, name in (
        (reader, "HOLD_MAX"),
        (building, "HELD_LETTERS"),
        (places, "HELD_BYTES"),
        (projected_turns, "LETTERS_AT_ONCE"),
        (sources, "BLOCK_BYTES"),
    ):
        monkeypatch.setattr(module, name, 100_000)
    most: list[int] = []
    add = projection.Projector.add

    def measured(self: projection.Projector, *values: object, **named: object) -> None:
        gc.collect()
        tracemalloc.start()
        add(self, *values, **named)  # type: ignore[arg-type]
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    monkeypatch.setattr(projection.Projector, "add", measured)
    for calls in (50, 50, 150, 150):  # each twice: one of them may make what is made once
        folder = tmp_path / str(len(most))
        folder.mkdir()
        with Ledger.open(str(folder / "ledger.db")) as ledger:
            import_paths(ledger, made(folder, calls))

    assert (min(most[2:]) - min(most[:2])) / 100 < len(SAID) / 5  # of which each says twice as much


def test_of_a_large_turn_what_was_set_aside_is_read_and_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def built() -> Turn:
        builder = TurnBuilder("turn", None)
        builder.message("a", "user", "Half \ud83d of a letter.", at=1)
        builder.message("b", "assistant", "Yes.", at=2, codeblocks=[MessageCodeblock("x = 1")])
        builder.call("c", "Edit", {"path": "x"}, at=3, message_id="b")
        builder.call("d", "Task", {}, at=4, message_id="b")
        builder.call("e", "Bash", {}, at=5)
        builder.add_files("b", [MessageFile("written", "x")])
        builder.result("c", "done", at=6)
        builder.spawned("d", "child")
        builder.message("f", "user", "And?", at=7)
        return builder.build()

    held = built()
    monkeypatch.setattr(building, "HELD_LETTERS", 0)
    aside = built()

    assert isinstance(aside.messages, ReadAgain)
    assert (tuple(aside.messages), tuple(aside.tool_calls)) == (held.messages, held.tool_calls)
    assert list(aside.messages[1:]) == list(held.messages[1:])
    assert aside.messages[-1] == held.messages[-1]
    assert aside.response_message_id == held.response_message_id == "b"
    assert [call.status for call in held.tool_calls] == ["completed", "cancelled", "cancelled"]


def test_values_are_set_aside_in_any_order() -> None:
    aside = Aside()
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
    monkeypatch.setattr(building, "HELD_LETTERS", 50_000)
    with monkeypatch.context() as full:
        full.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        report = import_paths(ledger, large, small.save())
    (fault,) = report.faults
    assert "missing" in fault.what
    assert (report.counts.imported, report.counts.failed) == (1, 1)

    report = import_paths(ledger, large)

    assert (report.faults, report.counts.imported, report.read_bytes) == ([], 1, 0)
    assert len(ledger.get_turn(uid("a1")).tool_calls) == 7


# -- what of it is found ----------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 1000])  # put in with its commit, or when it is asked for
def test_of_very_many_calls_the_beginning_and_the_end_are_found(
    together: int, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents_ledger.ledger.waiting.TOGETHER", together)
    monkeypatch.setattr(documents, "VALUES_MAX", 10_000)
    said = f"firstword {'filler ' * 200} middleword {'filler ' * 200} lastword"
    path = of_claude_code(tmp_path, 10, said)
    import_paths(ledger, path)

    for _ in range(2):
        found = {word: len(ledger.search(f"{word}word").hits) for word in ("first", "last")}
        assert found == {"first": 1, "last": 1}
        assert not ledger.search("middleword").hits
        ledger._core.index(least=1)


def test_of_a_turn_with_few_calls_more_is_found(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "VALUES_MAX", 10_000)
    said = f"{'filler ' * 200} middleword {'filler ' * 200}"

    import_paths(ledger, of_claude_code(tmp_path, 2, said))

    assert len(ledger.search("middleword").hits) == 1


def test_of_a_very_long_message_the_beginning_and_the_end_are_found(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MESSAGE_MAX", 1000)
    long = f"firstword {'filler ' * 200} middleword {'filler ' * 200} lastword"
    ledger.record("main", long, "fine")

    assert [len(ledger.search(f"{w}word").hits) for w in ("first", "middle", "last")] == [1, 0, 1]


# -- texts that are too long ------------------------------------------------------------------


def texts(letters: int) -> Iterator[tuple[bytes, bool]]:
    """JSON, and whether a text of so many letters in it is too long where those may take so many
    bytes."""
    plain = b"a" * letters
    yield b'{"a": "%b"}' % plain, False
    yield b'{"a": "%b"}' % (plain * 2), True
    yield b'{"a": ["%b", "%b"]}' % (plain, plain), False
    yield b'{"a": "%b\xc3\xa4"}' % plain, False  # a letter of one byte in memory
    yield b'{"a": "%b\xe4\xb8\xad"}' % plain, True
    yield b'{"a": "%b\\u4e2d"}' % plain, True
    yield b'{"a": "%b\\u001b"}' % plain, False
    yield b'{"a": "%b\xf0\x9f\x98\x80"}' % plain[: letters // 3], True
    yield b'{"a": "%b\\ud83d\\ude00"}' % plain[: letters // 3], True
    yield b'{"a": "%b\xf0\x9f\x98\x80"}' % plain[: letters // 5], False
    yield b'{"a": "%b", "b": "\xf0\x9f\x98\x80"}' % plain, False
    yield b'{"a": "%b' % (plain * 2), False  # cut off: it is no text


@pytest.mark.parametrize("number", range(12))
def test_a_text_is_too_long_by_the_memory_it_takes(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TEXT_MAX", 1100)
    data, expected = list(texts(1000))[number]

    assert has_long_text(data) is expected


def test_a_record_with_a_text_that_is_too_long_is_kept_and_reported(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TEXT_MAX", 10_000)
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("x" * 20_000))
    log.assistant("a3", text("An answer."))

    report = import_paths(ledger, log.save())

    fault, gap = report.faults
    assert (fault.line, "too long to read" in fault.what) == (2, True)
    assert (gap.line, "is not there" in gap.what) == (3, True)
    assert report.counts.imported == 1
    assert report.records["claude-code", "(overlong)", "malformed"] == 1
    assert [m.content for m in ledger.get_turn(uid("a1")).messages] == ["Begin.", "An answer."]
