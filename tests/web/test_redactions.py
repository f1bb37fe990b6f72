"""Values are removed over HTTP and from a page, by administrators, after a look at them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest

from agents_ledger.ledger.maintenance.access_tokens import Tokens
from tests.contract.test_redaction import TOKEN
from tests.web.conftest import Running

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def served(
    own_server: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Running:
    monkeypatch.setenv("AGENTS_LEDGER_REDACTION_KEY", str(tmp_path / "redaction.key"))
    running = own_server()
    running.ledger.record("main", f"use {TOKEN}", "done")
    return running


def test_it_is_previewed_then_removed_and_listed(served: Running) -> None:
    selection = {"text": TOKEN}

    preview = served.ask("/api/v1/redactions/preview", method="POST", body=selection)
    assert (preview.status, preview.json["turns"]) == (201, 1)
    assert TOKEN not in preview.text
    asked = {"selection": selection, "reason": "leaked"}
    done = served.ask("/api/v1/redactions", method="POST", body=asked)
    assert done.status == 201
    assert done.json["scrubbed_at"] is not None
    listed = served.ask("/api/v1/redactions").json

    assert [(each["id"], each["reason"]) for each in listed] == [(done.json["id"], "leaked")]
    assert TOKEN not in repr(served.ledger.thread("main"))
    assert served.ask("/api/v1/redactions", method="POST", body=asked).status == 404


def test_only_administrators_may(served: Running) -> None:
    secret = Tokens(served.ledger._core).create("reader", ["read", "write"])[1]
    asked = {"selection": {"text": TOKEN}, "reason": "leaked"}

    for path, body in (
        ("/api/v1/redactions", asked),
        ("/api/v1/redactions/preview", asked["selection"]),
    ):
        assert served.ask(path, method="POST", body=body, token=secret).status == 403
    assert served.ask("/api/v1/redactions", token=secret).status == 403
    assert served.ask("/redact", token=secret).status == 403
    assert TOKEN in repr(served.ledger.thread("main"))


def test_the_page_shows_what_would_go_before_it_asks(served: Running) -> None:
    def send(**fields: str) -> str:
        body = urlencode(fields).encode()
        return served.ask("/redact", method="POST", body=body, headers=FORM).text

    assert "Show what would be removed" in served.ask("/redact").text
    looked = send(kind="all")
    assert "Remove for good" in looked
    assert "messages.content" in looked
    assert TOKEN not in looked
    assert TOKEN in repr(served.ledger.thread("main"))

    done = send(kind="all", reason="leaked", confirmed="yes")

    assert "Backups, copies and exports made before still contain it" in done
    assert "leaked" in served.ask("/redact").text
    assert TOKEN not in repr(served.ledger.thread("main"))
    assert "Nothing matches" in send(kind="all")
