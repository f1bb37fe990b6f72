"""opencode 2: a fork begins with copies of messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers import pipeline
from tests.importers.helping import import_paths, packed_result, result
from tests.importers.test_opencode_second import (
    MESSAGES,
    PROMPT,
    Message,
    agent,
    database,
    session,
    tree,
    upgraded,
    user,
    words,
)

FORK = session("ses_0", fork_session_id="ses_1", title="Fix (fork #1)")


def copied(messages: list[Message]) -> list[Message]:
    return [(f"msg_c{at}", "ses_0", *each[2:]) for at, each in enumerate(messages)]


def tokens(ledger: Ledger) -> int:
    ((found,),) = ledger.query("SELECT sum(total_tokens) FROM turns")[1]
    return int(found)


def test_a_fork_follows_the_turns_that_it_copied(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    more = [user("msg_4", 5, "This"), agent("msg_5", 6, words("Done"))]
    own = [user("msg_8", 9, "That", "ses_0"), agent("msg_9", 10, words("Done"), session="ses_0")]
    boundary = {"type": "before", "messageID": "msg_4"}
    database(path, [session(), {**FORK, "fork_boundary": boundary}], [*MESSAGES, *more])
    database(path, [], [*copied(MESSAGES), *own])

    import_paths(ledger, path)

    assert tree(ledger) == {"msg_1": None, "msg_4": "msg_1", "msg_8": "msg_1"}
    heads = dict(ledger.query("SELECT label, thread_id FROM sessions")[1])
    assert heads == {"opencode:ses_1": "msg_4", "opencode:ses_0": "msg_8"}
    assert tokens(ledger) == 4 * 118
    assert ledger.audit() == ()
    assert packed_result(tmp_path, path) == result(ledger)


@pytest.mark.parametrize("told_by", ["first", "second"])
def test_a_fork_of_an_upgraded_session_counts_nothing_twice(
    new_address: Callable[[], str], tmp_path: Path, told_by: str
) -> None:
    path = tmp_path / "opencode.db"
    migrated = [*upgraded(path), user("msg_6", 7, "And?"), agent("msg_7", 8, words("So"))]
    if told_by == "first":  # nothing was changed since
        with closing(sqlite3.connect(path)) as made:
            made.execute("UPDATE message SET time_updated = json_extract(data, '$.time.created')")
            made.commit()
    own = [user("msg_8", 9, "That", "ses_0"), agent("msg_9", 10, words("!"), session="ses_0")]
    with Ledger.open(new_address()) as ledger:
        import_paths(ledger, database(path, [session()], migrated))
        database(path, [FORK], [*copied(migrated), *own])

        import_paths(ledger, path)

        shared = {PROMPT: None, "msg_4": PROMPT, "msg_6": "msg_4"}
        assert tree(ledger) == {**shared, "msg_8": "msg_6"}
        assert tokens(ledger) == 5 * 118
        assert ledger.audit() == ()
        grown = result(ledger)
        pipeline.rederive(ledger)
        assert result(ledger) == grown
    with Ledger.open(new_address()) as ledger:
        import_paths(ledger, path)
        assert result(ledger) == grown


def test_a_copy_that_differs_is_a_turn_and_later_copies_count_once(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / "opencode.db"
    more = [user("msg_4", 5, "This"), agent("msg_5", 6, words("Done"))]
    copies = copied([*MESSAGES, *more])
    copies[2] = agent("msg_c2", 4, words("Later"), session="ses_0")
    database(path, [session(), FORK], [*MESSAGES, *more])

    import_paths(ledger, database(path, [], copies))

    assert tree(ledger) == {"msg_1": None, "msg_4": "msg_1", "msg_c0": None}
    assert ledger.session("opencode:ses_0").thread_id == "msg_4"
    assert ledger.audit() == ()


def test_a_prompt_after_a_copied_question_is_imported(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    asked = [*MESSAGES, user("msg_4", 5, "This")]
    own = user("msg_8", 9, "That", "ses_0")
    database(path, [session(), FORK], asked)

    import_paths(ledger, database(path, [], [*copied(asked), own]))

    said = ledger.query("SELECT content FROM messages WHERE turn_id = 'msg_c3' ORDER BY id")[1]
    assert said == [("That",), ("This",)]
    assert tree(ledger) == {"msg_1": None, "msg_4": "msg_1", "msg_c3": "msg_1"}


def test_a_session_is_not_a_fork_of_itself(ledger: Ledger, tmp_path: Path) -> None:
    once = [user("msg_4", 1, "Once"), agent("msg_5", 1, words("Said"))]
    again = [user("msg_6", 1, "Again"), agent("msg_7", 1, words("Said too"))]
    alone = session(fork_session_id="ses_1")
    path = database(tmp_path / "opencode.db", [alone], [*once, *again])
    with closing(sqlite3.connect(path)) as made:
        made.execute("UPDATE session_message SET seq = 0")
        made.commit()

    import_paths(ledger, path)

    assert tree(ledger) == {"msg_4": None, "msg_6": "msg_4"}
