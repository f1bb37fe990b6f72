"""Sessions of Claude Code that turn out to be others."""

from __future__ import annotations

import json
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths, result


def test_a_session_that_its_file_knows_by_another_id_leads_to_that_one(
    ledger: Ledger, tmp_path: Path
) -> None:
    other = "22222222-2222-4222-8222-222222222222"
    log = Log(tmp_path)
    log.path = tmp_path / "copy.jsonl"
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    import_paths(ledger, log.save())
    log.session = other
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone on."))

    import_paths(ledger, log.save())

    assert ledger.session(f"claude-code:{SESSION}").label == f"claude-code:{other}"
    assert [each.label for each in ledger.sessions()] == [f"claude-code:{other}"]
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before

    own = Log(tmp_path)  # here it is itself again
    own.user("c1", "Elsewhere.")
    own.assistant("c2", text("Here."))
    import_paths(ledger, own.save())

    assert ledger.session(f"claude-code:{SESSION}").label == f"claude-code:{SESSION}"
    assert len(ledger.sessions()) == 2


def test_a_session_known_by_another_id_leads_to_that_though_files_beside_it_share_turns(
    ledger: Ledger, tmp_path: Path
) -> None:
    third, other = (f"{number}{SESSION[1:]}" for number in "32")
    log = Log(tmp_path)
    log.path = tmp_path / "copy.jsonl"
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    fork = Log(tmp_path, third)
    fork.lines, fork.last = list(log.lines), log.last
    fork.user("c1", "Go elsewhere.")
    fork.assistant("c2", text("Gone elsewhere."))
    import_paths(ledger, log.save(), fork.save())
    log.session = other
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone on."))

    import_paths(ledger, log.save())

    assert ledger.session(f"claude-code:{SESSION}").label == f"claude-code:{other}"
    assert ledger.session(f"claude-code:{third}").label == f"claude-code:{third}"


def test_a_session_that_could_be_one_of_several_now_leads_to_none(
    ledger: Ledger, tmp_path: Path
) -> None:
    other = f"2{SESSION[1:]}"
    log = Log(tmp_path)
    log.path = tmp_path / "copy.jsonl"
    log.user("a1", "Find it.")
    log.assistant("a2", tool("t1", "Task", prompt="Search."))
    log.user("e1", "Search.", isSidechain=True, parentUuid=None)
    log.assistant("e2", text("Found."), isSidechain=True)
    import_paths(ledger, log.save())
    log.session = other
    log.result("a3", "t1", "Found.", parentUuid=uid("a2"))
    log.assistant("a4", text("Found it."))

    import_paths(ledger, log.save())

    label = f"claude-code:{SESSION}"
    assert ledger.session(label).label == label
    assert ledger.session(f"claude-code:{other}").status == "active"


def test_a_file_that_says_only_where_a_session_came_from_is_kept_and_makes_none(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.add("teleported-from", remoteSessionId="session_01A", branch="main", messageCount=0)

    report = import_paths(ledger, log.save())

    assert report.records == {("claude-code", "teleported-from", "unmapped"): 1}
    assert (report.faults, report.unrecognised) == ([], [])
    assert not ledger.sessions()


def test_a_file_that_goes_to_and_fro_between_two_ids_is_one_session(
    ledger: Ledger, tmp_path: Path
) -> None:
    other = "22222222-2222-4222-8222-222222222222"
    log = Log(tmp_path)
    log.path = tmp_path / "copy.jsonl"
    for number, name in enumerate((SESSION, other, SESSION, other)):
        log.session = name
        log.user(f"{number}1", "Go on.")
        log.assistant(f"{number}2", text("Gone on."))
        import_paths(ledger, log.save())

        assert [each.label for each in ledger.sessions()] == [f"claude-code:{name}"]
        for known in {SESSION, name}:
            assert ledger.session(f"claude-code:{known}").label == f"claude-code:{name}"
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before


def test_a_session_somebody_went_on_in_keeps_its_name(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.path = tmp_path / "copy.jsonl"
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    import_paths(ledger, log.save())
    ledger.record(f"claude-code:{SESSION}", "And mine?", "Here.")
    log.session = "22222222-2222-4222-8222-222222222222"
    log.user("b1", "Go on.")

    import_paths(ledger, log.save())

    assert ledger.session(f"claude-code:{SESSION}").label == f"claude-code:{SESSION}"


def test_a_fork_within_a_turn_hangs_on_the_whole_and_says_where_it_left(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Bash", command="ls"))
    log.result("a3", "t1", "a.py")
    fork = Log(tmp_path, "22222222-2222-4222-8222-222222222222")
    fork.lines, fork.last, fork.clock = list(log.lines), log.last, log.clock
    log.assistant("a4", text("One file."))
    fork.user("b1", "Stop. What else?")
    fork.assistant("b2", text("Nothing."))
    for path in (fork.save(), log.save()):
        import_paths(ledger, path)

    forked, first = (ledger.session(f"claude-code:{each.session}") for each in (fork, log))
    assert json.loads(str(forked.metadata_json))["forked_within"] == {uid("a1"): uid("a3")}
    assert "forked_within" not in str(first.metadata_json)
    assert [turn.id for turn in ledger.thread(forked.label).turns] == [uid("a1"), uid("b1")]
    assert ledger.query("SELECT count(*) FROM messages")[1] == [(5,)]
    with Ledger.open(str(tmp_path / "other.db")) as other:
        import_paths(other, log.path, fork.path)
        assert result(other) == result(ledger)
