"""Proofs and checkpoints as others see them: a verifier in another language, and COSE's own."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import cbor2
import pytest

from agents_ledger import Ledger, NotFound, Refused, StoreUnavailable
from agents_ledger.ledger.evidence import checkpoints
from agents_ledger.ledger.evidence.forgetting import Forgetting
from agents_ledger.model.evidence.signed_note import PublicKey, checkpoints_of
from tests.builders import a_full_turn, chain
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent
VERIFIER = ROOT / "docs" / "verifier" / "verify_proof.mjs"
NODE = shutil.which("node")
with_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's keys."""
    folder = tmp_path / "keys"
    monkeypatch.setenv("AGENTS_LEDGER_EVIDENCE", str(folder))
    return folder


@pytest.fixture
def kept(ledger: Ledger, tmp_path: Path) -> Path:
    """The file that checkpoints are appended to."""
    file = tmp_path / "kept" / "checkpoints"
    file.parent.mkdir()
    ledger.evidence.set_up(str(file))
    return file


def verified(proof: dict[str, Any], folder: Path, *words: str) -> dict[str, Any]:
    """What the verifier prints; empty if it refuses."""
    file = folder / "proof.json"
    file.write_text(json.dumps(proof), encoding="utf-8")
    command = [str(NODE), str(VERIFIER), str(file), *words]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (ran.returncode == 0) == bool(ran.stdout), ran.stderr
    return json.loads(ran.stdout) if ran.stdout else {}


def test_the_verifier_is_short_and_uses_nothing_else() -> None:
    source = VERIFIER.read_text(encoding="utf-8")

    assert len(source.splitlines()) <= 300
    imported = [line.rpartition("from ")[2] for line in source.splitlines() if "import {" in line]
    assert imported == ['"node:crypto";', '"node:fs";']


@with_node
def test_a_proof_is_verified_without_the_ledger(ledger: Ledger, kept: Path, tmp_path: Path) -> None:
    chain(ledger, "main", 5)
    turn = ledger.record("main", **a_full_turn())
    ledger.rename("main", "renamed")
    ledger.evidence.checkpoint()

    proof = ledger.prove(turn.id)
    key = str(ledger.evidence.signer.keys[0]) if ledger.evidence.signer else ""
    shown = verified(proof, tmp_path, "--key", key, "--checkpoint", str(kept))

    assert shown["holds"]
    assert shown["signers"]
    [leaf] = shown["leaves"]
    assert leaf["turn"]["model"] == "claude-opus-5"
    said = [step["content"] for step in leaf["steps"] if step["what"] == "message"]
    assert said == [message.content for message in ledger.get_turn(turn.id).messages]


@with_node
def test_a_forged_proof_is_refused(ledger: Ledger, kept: Path, tmp_path: Path) -> None:
    chain(ledger, "main", 5)
    turn = ledger.record("main", "may I?", "yes")
    ledger.evidence.checkpoint()
    proof = json.dumps(ledger.prove(turn.id))
    assert verified(json.loads(proof), tmp_path)
    leaf, size = json.loads(proof)["leaves"][0], json.loads(proof)["size"]
    content, index = leaf["content"], leaf["index"]

    forgeries = [
        proof.replace('"yes"', '"no!"'),
        proof.replace("completed", "cancelled"),
        proof.replace(f'"index": {index}', f'"index": {index - 1}'),
        proof.replace('"main"', '"other"'),
        proof.replace(turn.id, turn.id[::-1]),
        proof.replace('"salt": "', '"salt": "00'),
        proof.replace(f"\\n{size}\\n", f"\\n{size + 1}\\n"),
        proof.replace(json.dumps(content), json.dumps(content + "c")),
    ]
    for forged in forgeries:
        assert forged != proof
        assert verified(json.loads(forged), tmp_path) == {}
    other = PublicKey("agents-ledger/other", bytes(32))
    assert verified(json.loads(proof), tmp_path, "--key", str(other)) == {}


@with_node
def test_the_proof_of_an_imported_turn_has_its_records(
    ledger: Ledger, kept: Path, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Question?")
    log.assistant("a2", text("Answer."))
    import_paths(ledger, log.save())
    ledger.evidence.checkpoint()
    label = ledger.sessions()[0].label

    [leaf] = verified(ledger.prove(label), tmp_path)["leaves"]

    assert leaf["path"] == str(log.path)
    assert [json.loads(record)["type"] for record in leaf["records"]] == ["user", "assistant"]


@with_node
def test_a_redacted_turn_is_still_proven(ledger: Ledger, kept: Path, tmp_path: Path) -> None:
    turn = ledger.record("main", "a secret", "an answer")

    def redact(tx: Any) -> None:
        forgetting = Forgetting(tx, "turn", turn.id)
        tx.execute("UPDATE messages SET content = '[gone]' WHERE content = 'a secret'")
        forgetting.finish(reason="a secret", at=1)

    ledger._core.db.restore(redact)
    ledger.evidence.checkpoint()
    proof = ledger.prove(turn.id)

    assert "a secret" not in json.dumps(proof)
    [leaf] = verified(proof, tmp_path)["leaves"]
    assert [step["content"] for step in leaf["steps"]] == ["(redacted)", "an answer"]


def test_a_proof_is_a_signed_statement_that_cose_verifies(ledger: Ledger, kept: Path) -> None:
    from pycose.keys.curves import Ed25519
    from pycose.keys.okp import OKPKey
    from pycose.messages.sign1message import Sign1Message

    turn = ledger.record("main", "q", "r")
    ledger.evidence.checkpoint()
    proof = ledger.prove(turn.id)

    decoded = cbor2.loads(ledger.evidence.statement(proof))
    assert decoded.tag == 18
    protected, unprotected, payload, signature = decoded.value
    # Not Sign1Message.decode(), which wants other types than newer versions of cbor2 give.
    parts = [protected, dict(unprotected), payload, signature]
    message = Sign1Message.from_cose_obj(parts, allow_unknown_attributes=True)

    signer = ledger.evidence.signer
    assert signer is not None
    message.key = OKPKey(crv=Ed25519, x=signer.keys[0].key)
    assert message.verify_signature()
    assert json.loads(message.payload or b"") == proof


# -- checkpoints --------------------------------------------------------------------------------


def test_the_key_is_private_and_not_in_the_ledger(
    ledger: Ledger, address: str, kept: Path, keys: Path
) -> None:
    ledger.record("main", "q", "r")
    ledger.evidence.checkpoint()

    [file] = keys.iterdir()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    private = json.loads(file.read_text())["private"]
    assert private not in repr(ledger.evidence.signer)
    if not address.startswith("postgres"):
        for part in Path(address).parent.glob(f"{Path(address).name}*"):
            assert private.encode() not in part.read_bytes()


def test_with_a_new_key_the_checkpoints_of_both_hold(ledger: Ledger, kept: Path) -> None:
    ledger.record("main", "q", "r")
    ledger.evidence.checkpoint()
    before = ledger.evidence.signer
    ledger.evidence.new_key()
    ledger.record("main", "q", "r")
    ledger.evidence.checkpoint()
    after = ledger.evidence.signer
    assert before is not None
    assert after is not None

    assert before.keys[0] != after.keys[0]
    assert before.keys[0] in after.keys
    for key, expected in ((before, [True, True, None]), (after, [True, True, True])):
        found = checkpoints_of(kept.read_text(), key.keys)
        assert [checkpoint.is_signed for checkpoint in found] == expected
    verification = ledger.verify(str(kept))
    assert verification.holds
    assert (verification.checkpoints, verification.unverified) == (3, 0)


def test_a_ledger_is_verified_with_the_key_alone_on_another_machine(
    ledger: Ledger, kept: Path, keys: Path
) -> None:
    ledger.record("main", "q", "r")
    ledger.evidence.checkpoint()
    signer = ledger.evidence.signer
    assert signer is not None
    shutil.rmtree(keys)

    assert ledger.verify(str(kept)).unverified == 1
    assert ledger.verify(str(kept), keys=[str(signer.keys[0])]).unverified == 0
    forged = kept.with_name("forged")
    forged.write_text(kept.read_text().replace("\n2\n", "\n1\n"))
    [finding] = ledger.verify(str(forged), keys=[str(signer.keys[0])]).findings
    assert (finding.what, finding.kind) == ("forged", "checkpoint")


def test_checkpoints_are_taken_on_close_by_count_and_by_time(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    address, kept = new_address(), tmp_path / "kept"

    def taken() -> int:
        return len(list(checkpoints_of(kept.read_text(), ()))) if kept.exists() else 0

    with Ledger.open(address) as ledger:
        ledger.evidence.set_up(str(kept))
        ledger.record("main", "q", "r")
    assert taken() == 1
    with Ledger.open(address) as ledger:
        ledger.evidence.set_up(None, every_leaves=5)
        chain(ledger, "main", 5)
        until(lambda: taken() == 2)
    with Ledger.open(address) as ledger:
        ledger.evidence.set_up(None, every_leaves=1000, every_seconds=1)
        ledger.record("main", "q", "r")
        count = taken()
        until(lambda: taken() > count)
    with Ledger.open(address) as ledger:
        assert ledger.verify(str(kept)).holds


@contextmanager
def receiving(status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A server that notes what is posted to it, and its address."""
    posted: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/checkpoints", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_checkpoints_are_posted_to_an_address(ledger: Ledger) -> None:
    with receiving() as (url, posted):
        ledger.evidence.set_up(url)
        ledger.record("main", "q", "r")
        taken = ledger.evidence.checkpoint()

    assert taken is not None
    assert posted == [taken.note]


def test_a_redirect_is_not_followed() -> None:
    with receiving(302) as (url, posted), pytest.raises(StoreUnavailable, match="not accepted"):
        checkpoints.send(url, "a note")
    assert posted == ["a note"]


def test_without_a_key_nothing_is_signed(ledger: Ledger, tmp_path: Path) -> None:
    ledger.record("main", "q", "r")

    with pytest.raises(NotFound, match="takes no checkpoints"):
        ledger.evidence.checkpoint()
    (tmp_path / "empty").write_text("")
    with pytest.raises(Refused, match="has no checkpoints"):
        ledger.verify(str(tmp_path / "empty"))
    until(lambda: ledger.verify().waiting == 0)
    assert ledger.prove("main")["checkpoint"] is None
