"""Addresses: what names a ledger opens it, and what cannot name one makes nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agents_ledger import Ledger, LedgerError, Refused
from agents_ledger.model.ids import new_id

with closing(sqlite3.connect(":memory:")) as _songs:
    _songs.execute("CREATE TABLE songs (name TEXT)")
    SONGS = _songs.serialize()  # a database of something else


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (None, "a ledger's address is text, not None"),
        (5, "a ledger's address is text, not 5"),
        ("", "'' is not the address of a ledger"),
        ("a\0b", "is not the address of a ledger"),
        (":memory:", "a ledger is not kept in memory"),
        ("file:x.db", "does not begin with file:"),
        ("mysql://host/db", "does not begin with mysql://"),
        ("sqlite://x.db", "does not begin with sqlite://"),
        ("sqlite:///x.db?read_from=standby", "is a file, which has no read_from"),
        ("x.db?a=b&schema=team", "is a file, which has no schema"),
    ],
)
def test_what_can_be_no_address_makes_no_file(
    given: Any, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(Refused, match=what) as refused:
        Ledger.open(given)
    assert refused.value.hint.endswith(".")

    assert list(tmp_path.iterdir()) == []


def test_a_file_may_be_named_by_a_path_or_with_a_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for address in (
        tmp_path / "a.db",
        "b:c.db",
        "sqlite:///d.db",
        f"sqlite:///{tmp_path}/f.db",
        "./file:e.db",
    ):
        Ledger.open(address).close()  # type: ignore[arg-type]

    made = {file.name for file in tmp_path.glob("*.db")}
    assert made == {"a.db", "b:c.db", "d.db", "file:e.db", "f.db"}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nobody tells of open files here")
@pytest.mark.parametrize("content", [b"", b"no database " * 400, SONGS])
def test_what_cannot_be_opened_is_not_held_open(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.db").write_bytes(content)
    opened = len(os.listdir("/proc/self/fd"))

    with pytest.raises(LedgerError) as error:
        Ledger.open(str(tmp_path / "some.db"), read_only=True)

    assert error.value.__traceback__ is not None  # an error that is kept keeps what it met
    assert len(os.listdir("/proc/self/fd")) == opened


@pytest.mark.parametrize("given", ["postgresql://u@h/d?bogus=1", "postgresql://u%zz@h/d"])
def test_a_postgresql_address_that_libpq_cannot_read_is_refused(given: str) -> None:
    with pytest.raises(Refused):
        Ledger.open(given)


def test_a_role_that_owns_its_schema_needs_no_right_to_create_one(postgres_server: str) -> None:
    name = f"owner_{new_id().lower()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        connection.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
        address = postgres_server.replace("//postgres:", f"//{name}:")
        with Ledger.open(f"{address}&schema={name}") as ledger:
            assert ledger.record("main", "q", "r").depth == 1
            assert ledger.audit() == ()
        connection.execute(f"DROP OWNED BY {name} CASCADE")
        connection.execute(f"DROP ROLE {name}")
