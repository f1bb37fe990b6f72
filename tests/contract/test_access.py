"""Tokens: a secret is told once, its hash is kept, and revoking it is for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agents_ledger import Ledger, NameTaken, NotFound, Refused, now_ms
from agents_ledger.ledger.maintenance import copying
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from tests.raw import Raw


@pytest.fixture
def tokens(ledger: Ledger) -> Tokens:
    return Tokens(ledger._core)


def test_a_token_is_found_by_its_secret_which_is_stored_nowhere(tokens: Tokens, raw: Raw) -> None:
    made, secret = tokens.create("laptop", ["write", "read"])

    assert tokens.find(secret) == made
    assert made.scopes == ("read", "write")
    assert tokens.find(secret[:-1]) is None
    assert not any(secret in str(value) for value in raw.execute("SELECT * FROM access_tokens")[0])


def test_a_revoked_token_opens_nothing_and_stays_listed(tokens: Tokens) -> None:
    made, secret = tokens.create("laptop")

    revoked = tokens.revoke("laptop")

    assert tokens.find(secret) is None
    assert revoked.revoked_at
    assert [token.id for token in tokens.all()] == [made.id]
    assert tokens.revoke(made.id).revoked_at == revoked.revoked_at


def test_an_expired_token_opens_nothing(tokens: Tokens) -> None:
    _, secret = tokens.create("short", expires_at=now_ms() - 1)
    _, lasting = tokens.create("long", expires_at=now_ms() + 60_000)

    assert tokens.find(secret) is None
    assert tokens.find(lasting)


def test_an_administrators_token_may_do_all_and_others_what_they_say(tokens: Tokens) -> None:
    admin, _ = tokens.create("admin", ["admin"])
    reader, _ = tokens.create("reader", ["read"])

    assert admin.may("import")
    assert reader.may("read")
    assert not reader.may("write")


def test_bad_wishes_are_refused(tokens: Tokens) -> None:
    with pytest.raises(Refused, match="there is no scope 'root'"):
        tokens.create("x", ["root"])  # type: ignore[list-item]
    with pytest.raises(Refused, match="needs a scope"):
        tokens.create("x", [])
    with pytest.raises(Refused, match="1 to 200 characters"):
        tokens.create(" ")
    with pytest.raises(NotFound, match="no token 'nobody'"):
        tokens.revoke("nobody")


@pytest.mark.finding("users-28")
def test_the_name_of_a_valid_token_is_taken(tokens: Tokens) -> None:
    tokens.create("expired", expires_at=now_ms() - 1)
    again, _ = tokens.create("expired")
    assert tokens.revoke("expired").id == again.id

    tokens.create("twin")
    with pytest.raises(NameTaken, match="there is a token 'twin' already") as caught:
        tokens.create("twin")
    assert "token revoke" in caught.value.hint
    assert tokens.revoke("twin").revoked_at is not None
    tokens.create("twin")
    assert len(tokens.all()) == 4


@pytest.mark.finding("users-28")
def test_a_name_is_given_once_to_many_at_once(tokens: Tokens) -> None:
    start = threading.Barrier(4)

    def create(name: str) -> bool:
        start.wait()
        try:
            tokens.create(name)
        except NameTaken:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        for number in range(20):
            results = [pool.submit(create, f"twin {number}") for _ in range(4)]
            assert sum(result.result() for result in results) == 1


def test_twins_of_an_earlier_version_are_revoked_by_id(tokens: Tokens, address: str) -> None:
    first, second = tokens.create("one")[0], tokens.create("two")[0]
    with Raw(address) as raw:
        raw.execute("UPDATE access_tokens SET name = 'twin'")

    with pytest.raises(Refused, match="2 tokens are called 'twin'") as caught:
        tokens.revoke("twin")
    assert caught.value.hint == f"Pass the id of one: {first.id}, {second.id}."
    tokens.revoke(first.id)
    assert tokens.revoke("twin").id == second.id


def test_ids_lead_to_valid_tokens_alone(tokens: Tokens) -> None:
    valid, revoked = tokens.create("valid")[0], tokens.create("revoked")[0]
    expired = tokens.create("expired", expires_at=now_ms() - 1)[0]
    tokens.revoke(revoked.id)

    assert tokens.get(valid.id) == valid
    assert [tokens.get(each) for each in (revoked.id, expired.id, "valid", "nobody")] == [None] * 4
    asked = {valid.id, revoked.id, expired.id, "nobody"}
    assert tokens.valid_ids(asked) == {valid.id}
    assert tokens.valid_ids({"nobody"}) == set()


def test_a_restored_or_copied_ledger_has_no_valid_token(
    tokens: Tokens, address: str, new_address: Callable[[], str], tmp_path: Path
) -> None:
    made, secret = tokens.create("revoked after the backup", ["admin"])
    saved = tmp_path / "saved.db"
    copying.backup(address, str(saved))
    copied, restored = new_address(), new_address()
    copying.copy(address, copied)
    tokens.revoke(made.id)
    copying.restore(str(saved), restored)

    for there in (copied, restored):
        with Ledger.open(there) as other:
            known = Tokens(other._core)
            assert known.find(secret) is None
            assert [(token.id, token.name) for token in known.all()] == [(made.id, made.name)]
            assert other.audit() == ()
