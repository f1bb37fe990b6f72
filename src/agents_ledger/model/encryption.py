"""Files encrypted with a passphrase: AES-256-GCM in chunks, with a key that scrypt makes.

A file is a line that names the format, the salt, the prefix of the nonces, and chunks. The nonce of
each chunk counts it and marks the last one, so that none can be left out, moved or cut off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from agents_ledger.model.errors import Damaged, Refused
from agents_ledger.model.installation.extras import needed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"agents-ledger encrypted 1\n"
EXTENSION = ".enc"
CHUNK_BYTES = 1 << 20
_SALT_BYTES = 16
_PREFIX_BYTES = 7
_KEY_BYTES = 32
_TAG_BYTES = 16
_COUNTER_BYTES = 4
# 128 MB and half a second for each guess.
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 1 << 17, 8, 1


def is_encrypted(head: bytes) -> bool:
    """Whether a file begins as an encrypted one."""
    return head.startswith(MAGIC)


def check_available() -> None:
    """MissingExtra if files cannot be encrypted here."""
    with needed("encryption", "encrypting files"):
        import cryptography  # noqa: F401


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    if not passphrase:
        raise Refused("the passphrase is empty", "Choose one of several words.")
    with needed("encryption", "encrypting files"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    scrypt = Scrypt(salt=salt, length=_KEY_BYTES, n=_SCRYPT_N, r=_SCRYPT_R, p=_SCRYPT_P)
    return AESGCM(scrypt.derive(passphrase.encode()))


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    return prefix + number.to_bytes(_COUNTER_BYTES, "big") + bytes([last])


class EncryptingWriter:
    """Encrypts what is written to it, into a file that is whole when the block ends."""

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        salt = os.urandom(_SALT_BYTES)
        self._prefix = os.urandom(_PREFIX_BYTES)
        self._cipher = _cipher(passphrase, salt)
        self._file = file
        self._header = MAGIC + salt + self._prefix
        self._buffer = bytearray()
        self._number = 0
        file.write(self._header)

    def __enter__(self) -> Self:
        return self

    def write(self, data: bytes) -> None:
        """Add data."""
        self._buffer += data
        while len(self._buffer) > CHUNK_BYTES:
            self._flush(CHUNK_BYTES, last=False)

    def _flush(self, size: int, *, last: bool) -> None:
        nonce = _nonce(self._prefix, self._number, last=last)
        self._file.write(self._cipher.encrypt(nonce, bytes(self._buffer[:size]), self._header))
        del self._buffer[:size]
        self._number += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._flush(len(self._buffer), last=True)


def decrypted(file: IO[bytes], passphrase: str) -> Iterator[bytes]:
    """The content of an encrypted file. Refused: not the passphrase, or not as it was written."""
    header = file.read(len(MAGIC) + _SALT_BYTES + _PREFIX_BYTES)
    if not is_encrypted(header):
        raise Refused("this file is not one that agents-ledger encrypted")
    cipher = _cipher(passphrase, header[len(MAGIC) : len(MAGIC) + _SALT_BYTES])
    from cryptography.exceptions import InvalidTag

    prefix, size = header[-_PREFIX_BYTES:], CHUNK_BYTES + _TAG_BYTES
    chunk, number = file.read(size), 0
    while True:
        following = file.read(size)
        try:
            nonce = _nonce(prefix, number, last=not following)
            yield cipher.decrypt(nonce, chunk, header)
        except InvalidTag as error:
            if number:
                raise Damaged("the encrypted file is damaged, or was cut off") from error
            raise Refused(
                "the passphrase is wrong, or the file is damaged",
                "Try again with the passphrase it was encrypted with.",
            ) from error
        if not following:
            return
        chunk, number = following, number + 1
