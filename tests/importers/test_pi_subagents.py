"""Subagents of OpenClaw that its map has forgotten: it drops them an hour after their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from tests.importers.helping import import_paths, result
from tests.importers.test_pi import ONE, TWO, Transcript, call, openclaw, store

KEY = "agent:main:subagent:u1"
THREE = "00000000-0000-4000-8000-000000000003"
END = (
    "[Sun 2026-03-01 10:05 UTC] OpenClaw runtime context (internal):\n\n"
    "[Internal task completion event]\nsource: subagent\nsession_key: {key}\nsession_id: {id}\n"
    "type: subagent task\ntask: Look.\nstatus: completed successfully"
)
ASKED = (
    "[Sun 2026-03-01 10:00 UTC] [Subagent Context] You are a subagent.\n\n[Subagent Task]: Look."
)


def looking(folder: Path, session_id: str) -> Path:
    child = Transcript(folder, session_id)
    child.user(ASKED)
    child.say("Seen.")
    return child.save()


@pytest.mark.parametrize("parent_first", [True, False])
def test_what_tells_of_its_end_links_a_subagent_to_its_call(
    ledger: Ledger, tmp_path: Path, parent_first: bool
) -> None:
    folder = openclaw(tmp_path)
    parent = Transcript(folder)
    parent.user("Let somebody look.")
    parent.say("Asking.", call("s1", "sessions_spawn", task="Look."))
    details = {"status": "accepted", "childSessionKey": KEY}
    parent.result("s1", "", "sessions_spawn", details=details)
    parent.say("NO_REPLY")
    parent.user(END.format(key=KEY, id=TWO))
    parent.say("It was seen.")
    paths = [parent.save(), looking(folder, TWO)]

    for path in paths if parent_first else reversed(paths):
        import_paths(ledger, path)

    session = ledger.session(f"openclaw:{TWO}")
    assert (session.is_subagent, session.parent_session_label) == (True, f"openclaw:{ONE}")
    assert (session.spawn_tool_call_id, session.routing_key) == ("s1", KEY)
    assert not ledger.session(f"openclaw:{ONE}").is_subagent


def test_its_first_prompt_tells_a_subagent_whose_parent_is_not_there(
    ledger: Ledger, tmp_path: Path
) -> None:
    folder = openclaw(tmp_path)
    quoting = Transcript(folder, THREE)
    quoting.user("What does [Subagent Context] mean?")
    quoting.say("Nothing.")
    quoting.user(ASKED)
    quoting.say("Hm.")

    import_paths(ledger, looking(folder, TWO), quoting.save())

    assert ledger.session(f"openclaw:{TWO}").is_subagent
    assert not ledger.session(f"openclaw:{THREE}").is_subagent


def telling(folder: Path, session_id: str) -> Path:
    """A session that was told of a subagent's start and end; the call itself is lost."""
    parent = Transcript(folder, session_id)
    parent.user(f"Let somebody look for {session_id}.")
    parent.result(
        "s1", "", "sessions_spawn", details={"status": "accepted", "childSessionKey": KEY}
    )
    parent.user(END.format(key=KEY, id=TWO))
    parent.say("It was seen.")
    return parent.save()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_of_two_that_tell_of_a_subagent_the_same_is_its_parent_in_any_order(
    ledger: Ledger, tmp_path: Path, order: tuple[int, ...]
) -> None:
    folder = openclaw(tmp_path)
    paths = [telling(folder, ONE), looking(folder, TWO), telling(folder, THREE)]

    for number in order:
        import_paths(ledger, paths[number])

    assert ledger.session(f"openclaw:{TWO}").parent_session_label == f"openclaw:{THREE}"


def test_a_session_that_another_started_is_a_subagent_whatever_its_key_in_the_map(
    ledger: Ledger, tmp_path: Path
) -> None:
    folder = openclaw(tmp_path)
    child = Transcript(folder, TWO)
    child.user("Look.")
    child.say("Seen.")
    child.save()
    telling(folder, ONE)
    store(folder, agent_main_cron_1={"sessionId": TWO, "updatedAt": 1})

    import_paths(ledger, tmp_path)

    before = result(ledger)
    assert ledger.session(f"openclaw:{TWO}").is_subagent
    rederive(ledger)
    assert result(ledger) == before
