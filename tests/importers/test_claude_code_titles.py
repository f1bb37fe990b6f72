"""What Claude Code calls its sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers import session_titles
from agents_ledger.importers.pipeline import rederive
from agents_ledger.ledger.projection import source_records
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.text import IDS_AT_ONCE
from tests.importers.claude_log import SESSION, Log, a_log, text, uid
from tests.importers.helping import import_paths, result


@pytest.mark.parametrize("name", [uid("a2"), "redacted"])
def test_a_summary_is_the_title_of_the_session_whose_record_it_names(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), uuid=name)
    log.add("summary", summary="A beginning", leafUuid=name)
    log.add("summary", summary="Of a file that is gone", leafUuid=uid("99"))
    report = import_paths(ledger, log.save())

    assert ledger.session(f"claude-code:{SESSION}").title == "A beginning"
    assert report.records["claude-code", "summary", "derived"] == 1
    assert report.records["claude-code", "summary", "unmapped"] == 1


def elsewhere(folder: Path, *leafs: str) -> Path:
    """A later session, whose file begins with what others are called."""
    log = Log(folder, "22222222-2222-4222-8222-222222222222")
    for number, leaf in enumerate(leafs):
        log.add("summary", summary=f"Title {number}", leafUuid=leaf)
    log.user("c1", "Another thing.")
    log.assistant("c2", text("Done."))
    return log.save()


@pytest.mark.parametrize("order", ["title first", "title last", "together"])
@pytest.mark.parametrize("leaf", ["a2", "a3"])  # a message, and a piece of one
@pytest.mark.parametrize("folder", ["", "other"])
def test_a_title_in_another_file_goes_to_the_session_it_names(
    ledger: Ledger, tmp_path: Path, leaf: str, order: str, folder: str
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), api="m")
    log.assistant("a3", text("And done."), api="m")
    paths = [log.save(), elsewhere(tmp_path / folder, uid(leaf), uid("99"))]
    if order == "together":
        import_paths(ledger, *paths)
    else:
        for path in paths if order == "title last" else reversed(paths):
            import_paths(ledger, path)

    assert ledger.session(f"claude-code:{SESSION}").title == (None if folder else "Title 0")
    assert ledger.session("claude-code:22222222-2222-4222-8222-222222222222").title is None
    before = result(ledger)
    again = import_paths(ledger, *paths)
    assert (again.derived_records, again.written_turns) == (0, 0)
    rederive(ledger)
    assert result(ledger) == before


def test_the_last_record_with_a_title_tells_it_wherever_that_stands(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.add("summary", summary="Of its own", leafUuid=uid("a2"))
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone on."))
    import_paths(ledger, log.save())
    assert ledger.session(f"claude-code:{SESSION}").title == "Of its own"

    import_paths(ledger, elsewhere(tmp_path, uid("b2")))
    assert ledger.session(f"claude-code:{SESSION}").title == "Title 0"

    log.add("custom-title", customTitle="Mine", sessionId=SESSION)
    import_paths(ledger, log.save())
    assert ledger.session(f"claude-code:{SESSION}").title == "Mine"


def titles_alone(folder: Path, name: str, *said: tuple[str, str]) -> Path:
    log = Log(folder, name)
    for title, leaf in said:
        log.add("summary", summary=title, leafUuid=leaf)
    return log.save()


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 1, 0)])
def test_of_several_files_with_a_title_the_last_by_name_tells_it(
    ledger: Ledger, tmp_path: Path, order: tuple[int, ...]
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), api="m")
    log.assistant("a3", text("And done."), api="m")
    log.add("summary", summary="By itself", leafUuid=uid("a3"))
    paths = [
        log.save(),
        titles_alone(tmp_path, "00000000-0000-4000-8000-000000000000", ("Before", uid("a3"))),
        titles_alone(tmp_path, "33333333-0000-4000-8000-000000000000", ("After", uid("a3"))),
    ]
    for number in order:
        import_paths(ledger, paths[number])

    assert ledger.session(f"claude-code:{SESSION}").title == "After"
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before


def test_a_title_is_shown_though_the_import_died_before(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    import_paths(ledger, log.save())
    later = elsewhere(tmp_path, uid("a2"))
    with monkeypatch.context() as patch:
        patch.setattr(session_titles, "families", interrupted)
        with pytest.raises(KeyboardInterrupt):
            import_paths(ledger, later)
    assert ledger.session(f"claude-code:{SESSION}").title != "Title 0"

    import_paths(ledger, later)

    assert ledger.session(f"claude-code:{SESSION}").title == "Title 0"
    assert import_paths(ledger, later).derived_records == 0


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_one_record_is_called_something_in_two_folders(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path / "b")
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), api="m")
    log.assistant("a3", text("And done."), api="m")
    import_paths(ledger, log.save())
    name = "22222222-2222-4222-8222-222222222222"
    for folder in ("b", "c"):
        titles_alone(tmp_path / folder, name, (f"In {folder}", uid("a3")))

    import_paths(ledger, tmp_path)

    assert ledger.session(f"claude-code:{SESSION}").title == "In b"


def test_a_piece_whose_id_two_blocks_share_is_found(
    limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), api="m")
    log.assistant("a3", text("And done."), api="m")
    path = log.save()
    ledger = limited(block_bytes=path.read_bytes().index(uid("a3").encode()) + 20)
    import_paths(ledger, path)

    import_paths(ledger, elsewhere(tmp_path, uid("a3")))

    assert ledger.session(f"claude-code:{SESSION}").title == "Title 0"


class Watched(bytes):
    """Bytes that count how often something was looked for in them."""

    looked = 0

    def __radd__(self, before: bytes) -> Watched:
        return Watched(bytes(before) + bytes(self))

    def __contains__(self, key: object) -> bool:
        Watched.looked += 1
        return bytes(key) in bytes(self) if isinstance(key, bytes) else False


@pytest.mark.parametrize("number", [30, 3000])
def test_many_titles_of_nothing_are_looked_for_as_one(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    leafs = [(f"Title {each}", uid(f"{each:x}")) for each in range(number)]
    path = titles_alone(tmp_path, "22222222-2222-4222-8222-222222222222", *leafs)
    stream, run = source_records.Sources.stream, source_records._run
    asked: list[str] = []

    def watched(self: source_records.Sources, file_id: int) -> Iterator[bytes]:
        asked.append("stream")
        return map(Watched, stream(self, file_id))

    def counted(statement: str, ids: str, tx: Transaction) -> list[Row]:
        asked.append(statement)
        return run(statement, ids, tx)

    monkeypatch.setattr(Watched, "looked", 0)
    monkeypatch.setattr(source_records.Sources, "stream", watched)
    monkeypatch.setattr(source_records, "_run", counted)
    import_paths(ledger, path)

    assert asked.count("stream") == 2  # to derive it, and to look for them
    assert Watched.looked <= 10
    assert 1 <= asked.count("source_file_of_records") <= 1 + number // IDS_AT_ONCE


def test_a_title_for_what_comes_later_derives_nothing_else(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    import_paths(ledger, log.save())

    report = import_paths(ledger, elsewhere(tmp_path, uid("99")))

    assert report.derived_records == 3


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("kinds", "title"),
    [
        (("custom-title", "ai-title"), "One"),  # what a person said counts before a machine's idea
        (("ai-title", "ai-title"), "Two"),
        ((None, "ai-title"), "Two"),
        (("ai-title", None), "One"),
    ],
)
def test_of_two_copies_of_a_session_the_higher_title_counts_then_the_last(
    ledger: Ledger,
    tmp_path: Path,
    kinds: tuple[str | None, ...],
    title: str,
    order: tuple[int, ...],
) -> None:
    fields = {"ai-title": "aiTitle", "custom-title": "customTitle"}
    paths = []
    for folder, kind in zip(("One", "Two"), kinds, strict=True):
        log = a_log(tmp_path / folder)
        if kind is not None:
            log.add(kind, **{fields[kind]: folder})
        paths.append(log.save())

    for number in order:
        import_paths(ledger, paths[number])

    assert ledger.session(f"claude-code:{SESSION}").title == title
