"""archive, alias, note, history, undo and token, as a user calls them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents_ledger import Ledger, Turn
from tests.edges.conftest import Run


@pytest.fixture
def ledger(file: str) -> Iterator[Ledger]:
    with Ledger.open(file) as opened:
        yield opened


@pytest.fixture
def turns(ledger: Ledger) -> list[Turn]:
    return [ledger.record("main", text, "r") for text in ("one", "two")]


def test_a_session_is_archived_deleted_and_brought_back(
    run: Run, ledger: Ledger, turns: list[Turn]
) -> None:
    for words, status in (((), "archived"), (("--deleted",), "deleted"), (("--undo",), "active")):
        assert run("archive", "main", *words).out == f"main is {status}\n"
        assert ledger.session("main").status == status
    assert run("archive", "main", "--deleted", "--undo").code == 2
    assert run("archive", "nobody").code == 3
    assert ledger.session("main").status == "active"


def test_a_session_answers_to_an_alias(run: Run, ledger: Ledger, turns: list[Turn]) -> None:
    ledger.create_session("other")

    assert "has no aliases" in run("alias", "main").err
    assert "nick" in run("alias", "main", "nick").out
    assert ledger.session("nick").label == "main"
    assert [each["alias"] for each in run("alias", "nick", "--json").json["aliases"]] == ["nick"]
    assert run("alias", "main", "other").code == 4
    assert run("alias", "main", "").code == 5
    assert run("alias", turns[0].id, "x").code == 3


def test_people_write_on_a_session_and_take_it_back(
    run: Run, ledger: Ledger, turns: list[Turn]
) -> None:
    assert run("note", "main", "--title", "Mine", "--star").out == "main  starred · Mine\n"
    assert run("note", "main", "--text", "Look \x1b[31m.").out.count("\x1b") == 0
    noted = ledger.session("main")
    assert (noted.title, noted.starred, noted.note) == ("Mine", True, "Look \x1b[31m.")

    run("note", "main", "--title", "", "--text", "", "--no-star")

    bare = ledger.session("main")
    assert (bare.title, bool(bare.starred), bare.note) == (None, False, None)
    assert run("note", "main").code == 2


def test_a_move_is_listed_and_undone(run: Run, ledger: Ledger, turns: list[Turn]) -> None:
    first, second = turns
    moves = run("history", "main", "--json").json["moves"]
    assert [move["thread_id"] for move in moves][:2] == [second.id, first.id]
    limited = run("history", "main", "--limit", "1")
    assert second.id in limited.out
    assert first.id not in limited.out

    undone = run("undo", "main")
    assert undone.out == f"main is at {first.id}\n"
    assert "To restore its head: `agents-ledger undo main`" in undone.err
    assert "empty" not in undone.err
    assert ledger.head("main") == first.id
    assert run("undo", "main").out == f"main is at {second.id}\n"
    emptied = run("undo", "main", "--move", str(moves[1]["id"]))
    assert emptied.code == 0
    assert "It was empty before that move. No turn is removed: 2 turns kept." in emptied.err
    assert ledger.head("main") is None
    assert run("undo", "main", "--move", "999999").code == 3
    assert ledger.audit() == ()


def test_all_tokens_are_revoked_at_once(run: Run, ledger: Ledger) -> None:
    for name in ("laptop", "phone"):
        ledger.tokens.create(name)

    assert run("token", "revoke", "--all", "laptop").code == 2
    assert run("token", "list", "--all").code == 2
    assert "2 tokens revoked" in run("token", "revoke", "--all").err
    assert run("token", "revoke", "--all", "--json").json["revoked"] == 0
    assert all(token.revoked_at for token in ledger.tokens.all())
