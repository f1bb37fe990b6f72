"""A document imported at every state of it ends in the same rows as its last state alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.material import Material
from agents_ledger.model.imports.sources import SourceFile
from tests.importers import test_chatgpt as chatgpt
from tests.importers import test_cline as cline
from tests.importers import test_cline_sessions as cline_sessions
from tests.importers import test_gemini as gemini
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths, result

NEWS = gemini.said("i1", "info", "An update is there.")
CHAT = (NEWS, gemini.ASK, gemini.LOOK, gemini.TELL, gemini.ASK2, gemini.TELL2)
AGAIN = (
    *chatgpt.LINE,
    chatgpt.node("a2", "u1", "assistant", "With stock."),
    chatgpt.node("u2", "a2", "user", "And salt?"),
    chatgpt.node("a3", "u2", "assistant", "A little."),
)
TASK = cline.FIRST + cline.SECOND


def chat(folder: Path, number: int) -> Path:
    return gemini.document(folder, *CHAT[:number])


def export(folder: Path, number: int) -> Path:
    return chatgpt.export(folder, chatgpt.conversation(*AGAIN[: number + 2]))


def task(folder: Path, number: int) -> Path:
    return cline.write(folder, TASK[: number * 3], cline.HISTORY[: number * 2])


def session(folder: Path, number: int) -> Path:
    cline_sessions.save(folder, cline_sessions.manifest(), f"{cline_sessions.NAME}.json")
    messages = cline_sessions.FIRST + cline_sessions.SECOND
    return cline_sessions.write(folder, messages[: number + 1])


@pytest.mark.parametrize("write", [chat, export, task, session])
def test_grown_is_the_same_as_whole(
    ledger: Ledger,
    new_address: Callable[[], str],
    tmp_path: Path,
    write: Callable[[Path, int], Path],
) -> None:
    grown, whole = tmp_path / "a", tmp_path / "b"
    for each in (grown, whole):
        each.mkdir()
    for number in range(1, 7):
        import_paths(ledger, write(grown, number))
    with Ledger.open(new_address()) as other:
        import_paths(other, write(whole, 6))
        assert result(ledger) == result(other)
    assert ledger.audit() == ()


@pytest.mark.parametrize("write", [chat, task, session])
def test_states_that_a_later_one_says_all_of_are_not_read_again(
    ledger: Ledger, tmp_path: Path, write: Callable[[Path, int], Path]
) -> None:
    read: list[str] = []
    document = Material.document

    def counted(self: Material, file: SourceFile) -> bytes:
        read.append(file.path)
        return document(self, file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Material, "document", counted)
        for number in range(1, 7):
            read.clear()
            import_paths(ledger, write(tmp_path, number))
            assert max(Counter(read).values(), default=0) <= 2  # the state before, and this one
    before = result(ledger)
    again = rederive(ledger)

    assert (again.written_turns, result(ledger)) == (0, before)


def test_a_state_that_says_more_than_the_last_is_read_on(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, gemini.document(tmp_path, *CHAT))
    import_paths(ledger, gemini.document(tmp_path, *CHAT[:2]))
    import_paths(ledger, gemini.document(tmp_path, *CHAT[:4]))

    assert ledger.query("SELECT count(*) FROM messages")[1] == [(len(CHAT),)]
    assert ledger.query("SELECT count(*) FROM source_files WHERE derived_version = -1")[1] == [(1,)]


def log(folder: Path, number: int) -> Path:
    made = Log(folder)
    for each in range(number):
        made.user(f"{each}a", "a question")
        made.assistant(f"{each}b", text("an answer"))
    return made.save()


@pytest.mark.parametrize("write", [chat, export, task, session, log])
def test_a_file_written_anew_with_the_same_content_is_not_derived_again(
    ledger: Ledger, tmp_path: Path, write: Callable[[Path, int], Path]
) -> None:
    path = write(tmp_path / "own", 6) if write is log else write(tmp_path, 6)
    import_paths(ledger, path)
    kept = ledger.query("SELECT path, generation, kept_bytes FROM source_files ORDER BY path")
    for file in [path] if path.is_file() else path.rglob("*.json"):
        os.utime(file, (1, 1))

    touched = import_paths(ledger, path)
    again = import_paths(ledger, path)

    assert (touched.derived_records, touched.read_bytes, touched.counts.skipped) == (0, 0, 1)
    assert again.counts.skipped == 1
    assert ledger.query("SELECT path, generation, kept_bytes FROM source_files ORDER BY path") == (
        kept
    )
    assert {row[0] for row in ledger.query("SELECT mtime_ns FROM source_files")[1]} == {10**9}
