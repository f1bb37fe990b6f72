"""One item in parts: gzip, base64, cut."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import uuid
import zlib
from typing import Any

import msgspec
import pytest

from agents_ledger import Ledger, RequestRefused
from agents_ledger.importers import requests
from tests.importers.test_requests import item, label
from tests.raw import Raw


def import_chunk(ledger: Ledger, request: Any, **limits: int) -> dict[str, Any]:
    """The answer to a chunk, as a program in another language gets it."""
    answer: dict[str, Any] = msgspec.to_builtins(requests.import_chunk(ledger, request, **limits))
    return answer


def packed(said: Any) -> str:
    return base64.b64encode(gzip.compress(json.dumps(said).encode())).decode()


def chunk(data: str, index: int, total: int, **more: Any) -> dict[str, Any]:
    return {
        "source": "aix",
        "mode": "backfill",
        "idempotencyKey": "k1",
        "uploadId": "u1",
        "chunkIndex": index,
        "chunkTotal": total,
        "encoding": "gzip+base64",
        "data": data,
        "sourceProvider": "cursor",
        "sourceSessionId": "s1",
        "sourceSessionFingerprint": "f1",
        **more,
    }


def halves(said: Any) -> tuple[str, str]:
    data = packed(said)
    return data[:101], data[101:]


def parts_waiting(ledger: Ledger) -> int:
    return int(ledger.query("SELECT count(*) FROM session_import_chunk_parts")[1][0][0])


def test_staged_then_completed(ledger: Ledger) -> None:
    first, second = halves(item())
    staged = import_chunk(ledger, chunk(first, 0, 2))
    assert uuid.UUID(staged["runId"])
    assert staged == {
        "ok": True,
        "runId": staged["runId"],
        "uploadId": "u1",
        "status": "staged",
        "received": 1,
        "total": 2,
    }
    done = import_chunk(ledger, chunk(second, 1, 2))
    assert (done["status"], done["received"], done["total"]) == ("completed", 2, 2)
    assert done["runId"] == done["import"]["runId"] == staged["runId"]
    assert done["import"]["results"][0]["sessionLabel"] == label()
    assert ledger.session(label()).thread_id is not None
    assert parts_waiting(ledger) == 0
    assert import_chunk(ledger, chunk(second, 1, 2)) == done  # the answer was lost on its way
    assert parts_waiting(ledger) == 0
    assert ledger.audit() == ()


def test_parts_come_in_any_order_and_twice(ledger: Ledger) -> None:
    first, second = halves(item())
    assert import_chunk(ledger, chunk(second, 1, 2))["received"] == 1
    assert import_chunk(ledger, chunk(second, 1, 2))["received"] == 1
    assert import_chunk(ledger, chunk(first, 0, 2))["status"] == "completed"


def test_parts_may_be_encoded_one_by_one(ledger: Ledger) -> None:
    data = gzip.compress(json.dumps(item()).encode())
    for index, piece in enumerate((data[:100], data[100:])):
        answer = import_chunk(ledger, chunk(base64.b64encode(piece).decode(), index, 2))
    assert answer["status"] == "completed"


def test_a_hash_is_checked(ledger: Ledger) -> None:
    data = json.dumps(item()).encode()
    good = hashlib.sha256(data).hexdigest()
    with pytest.raises(RequestRefused, match=r"^chunk_payload_sha256_mismatch\b"):
        import_chunk(ledger, chunk(packed(item()), 0, 1, payloadSha256="00"))
    assert import_chunk(ledger, chunk(packed(item()), 0, 1, payloadSha256=good))["ok"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"uploadId": ""}, "chunk_upload_id_required"),
        ({"chunkIndex": 2}, "chunk_index_out_of_range"),
        ({"chunkIndex": -1}, "chunk_index_out_of_range"),
        ({"chunkIndex": True}, "chunk_index_out_of_range"),
        ({"chunkTotal": 0}, "chunk_index_out_of_range"),
        ({"chunkTotal": "2"}, "chunk_index_out_of_range"),
        ({"data": ""}, "chunk_upload_empty"),
        ({"encoding": "plain"}, "chunk_encoding_unsupported:plain"),
        ({"sourceProvider": ""}, "source_provider_required"),
        ({"source": "else where"}, "source_unsupported"),
        ({"idempotencyKey": ""}, "idempotency_key_required"),
    ],
)
def test_a_part_is_refused(ledger: Ledger, change: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        import_chunk(ledger, chunk(halves(item())[0], 0, 2) | change)
    assert caught.value.code == code
    assert parts_waiting(ledger) == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"chunkTotal": 3}, "chunk_total_mismatch"),
        ({"mode": "tail"}, "chunk_mode_mismatch"),
        ({"idempotencyKey": "k2"}, "chunk_idempotency_key_mismatch"),
        ({"personaId": "other"}, "chunk_persona_id_mismatch"),
        ({"sourceProvider": "codex"}, "chunk_source_provider_mismatch"),
        ({"sourceSessionId": "s2"}, "chunk_source_session_id_mismatch"),
        ({"sourceSessionFingerprint": "f2"}, "chunk_source_session_fingerprint_mismatch"),
    ],
)
def test_a_part_of_another_upload_is_refused(
    ledger: Ledger, change: dict[str, Any], code: str
) -> None:
    first, second = halves(item())
    import_chunk(ledger, chunk(first, 0, 2))
    with pytest.raises(RequestRefused, match=rf"^{code}\b"):
        import_chunk(ledger, chunk(second, 1, 2) | change)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("no base64!", "chunk_payload_decode_failed"),
        (encoded(b"no gzip"), "chunk_payload_decode_failed"),
        (encoded(gzip.compress(b"{}", mtime=0)[:-4]), "chunk_payload_decode_failed"),
        (encoded(gzip.compress(b"{", mtime=0)), "chunk_payload_json_invalid"),
        (encoded(gzip.compress(b"[]", mtime=0)), "chunk_payload_json_invalid"),
        (encoded(gzip.compress(b"[" * 300 + b"]" * 300, mtime=0)), "chunk_payload_too_large"),
        (
            encoded(gzip.compress(b"[" + b"[]," * 600_000 + b"1]", mtime=0)),
            "chunk_payload_too_large",
        ),
        (packed(item(sourceProvider="codex")), "chunk_item_source_provider_mismatch"),
        (packed(item("s2")), "chunk_item_source_session_id_mismatch"),
        (packed(item(fingerprint="f2")), "chunk_item_source_session_fingerprint_mismatch"),
    ],
)
def test_what_the_parts_hold_is_refused(ledger: Ledger, data: str, code: str) -> None:
    with pytest.raises(RequestRefused, match=rf"^{code}\b"):
        import_chunk(ledger, chunk(data, 0, 1))
    assert ledger.sessions() == ()


def test_what_unpacks_to_too_much_is_refused(ledger: Ledger) -> None:
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(64)), packer.flush()])
    with pytest.raises(RequestRefused, match=r"^chunk_payload_too_large\b"):
        import_chunk(ledger, chunk(encoded(bomb), 0, 1), item_max=1 << 20)


def test_too_many_parts_are_refused(ledger: Ledger) -> None:
    first, second = halves(item())
    item_max = (len(first) + 10) * 3 // 4
    import_chunk(ledger, chunk(first, 0, 2), item_max=item_max)
    with pytest.raises(RequestRefused, match=r"^chunk_payload_too_large\b"):
        import_chunk(ledger, chunk(second, 1, 2), item_max=item_max)


def test_a_bad_part_can_be_sent_again(ledger: Ledger) -> None:
    first, second = halves(item())
    import_chunk(ledger, chunk(first[::-1], 0, 2))
    with pytest.raises(RequestRefused, match=r"^chunk_payload_decode_failed\b"):
        import_chunk(ledger, chunk(second, 1, 2))
    assert import_chunk(ledger, chunk(first, 0, 2))["status"] == "completed"


def test_parts_nobody_went_on_with_are_dropped(ledger: Ledger, raw: Raw) -> None:
    first, _ = halves(item())
    import_chunk(ledger, chunk(first, 0, 2))
    raw.execute("UPDATE session_import_chunk_parts SET created_at = 1")
    import_chunk(ledger, chunk(first, 0, 2, uploadId="u2", idempotencyKey="k2"))
    assert ledger.query("SELECT upload_id FROM session_import_chunk_parts")[1] == [("u2",)]


def test_a_key_used_for_another_item_is_refused(ledger: Ledger) -> None:
    import_chunk(ledger, chunk(packed(item()), 0, 1))
    with pytest.raises(RequestRefused, match=r"^idempotency_key_payload_mismatch\b"):
        import_chunk(ledger, chunk("x", 0, 2, uploadId="u2", sourceSessionId="s2"))


def test_a_failed_item_says_so(ledger: Ledger) -> None:
    bad = item(turns=7)
    answer = import_chunk(ledger, chunk(packed(bad), 0, 1))
    assert answer["import"]["failed"] == 1
    assert answer["import"]["results"][0]["reason"] == "payload_invalid"
