"""Files encrypted with a passphrase: all of it comes back, and nothing that was changed does."""

from __future__ import annotations

from io import BytesIO

import pytest

from agents_ledger.model import encryption
from agents_ledger.model.encryption import EncryptingWriter, decrypted
from agents_ledger.model.errors import Damaged, LedgerError, Refused

PASSPHRASE = "three plain words"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "_SCRYPT_N", 1 << 4)
    monkeypatch.setattr(encryption, "CHUNK_BYTES", 64)


def encrypted(data: bytes) -> bytes:
    file = BytesIO()
    with EncryptingWriter(file, PASSPHRASE) as writer:
        for at in range(0, len(data), 50):
            writer.write(data[at : at + 50])
    return file.getvalue()


def content(data: bytes, passphrase: str = PASSPHRASE) -> bytes:
    return b"".join(decrypted(BytesIO(data), passphrase))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 128, 1000])
def test_what_was_written_comes_back(size: int) -> None:
    data = bytes(number % 251 for number in range(size))

    stored = encrypted(data)

    assert content(stored) == data
    assert encryption.is_encrypted(stored)
    assert stored != encrypted(data)
    assert size < 16 or data not in stored


def test_another_passphrase_is_refused() -> None:
    with pytest.raises(Refused, match="passphrase is wrong"):
        content(encrypted(b"text"), "another")


def test_every_changed_byte_is_noticed() -> None:
    stored = encrypted(bytes(200))

    for at in range(len(stored)):
        changed = bytearray(stored)
        changed[at] ^= 1
        with pytest.raises(LedgerError):
            content(bytes(changed))


def test_a_chunk_cannot_be_left_out_moved_or_cut_off() -> None:
    stored = encrypted(bytes(range(200)))
    header = len(stored) - (200 + 4 * 16)
    chunk = 64 + 16
    first, second = stored[header : header + chunk], stored[header + chunk : header + 2 * chunk]
    rest = stored[header + 2 * chunk :]

    for changed in (first + rest, second + first + rest, first + second):
        with pytest.raises((Damaged, Refused)):
            content(stored[:header] + changed)


def test_an_empty_passphrase_and_another_file_are_refused() -> None:
    with pytest.raises(Refused, match="empty"):
        EncryptingWriter(BytesIO(), "")
    with pytest.raises(Refused, match="not one that"):
        content(b"SQLite format 3\0")
