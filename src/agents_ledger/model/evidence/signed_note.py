"""Checkpoints as signed notes: https://c2sp.org/signed-note, https://c2sp.org/tlog-checkpoint.

A note names a log, its size and its root, and is signed with Ed25519. Verifiers know a signer by
its key: NAME+HASH+BASE64.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from agents_ledger.model.errors import Refused
from agents_ledger.model.installation.extras import needed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ED25519 = b"\x01"
_DASH = "\N{EM DASH}"
_KEY_HASH_BYTES = 4
_NOTE = re.compile(
    rf"^(?P<text>(?P<origin>\S[^\n]*)\n(?P<size>0|[1-9]\d*)\n(?P<root>[A-Za-z0-9+/]+=*)\n"
    rf"(?:[^\n]+\n)*)\n(?P<signatures>(?:{_DASH} [^\n]+\n)+)",
    re.MULTILINE,
)
_SIGNATURE = re.compile(rf"^{_DASH} (\S+) (\S+)$", re.MULTILINE)


class PublicKey(NamedTuple):
    """The key of a signer, as verifiers know it."""

    name: str
    key: bytes

    @property
    def hash(self) -> bytes:
        """Which key made a signature."""
        return sha256(self.name.encode() + b"\n" + ED25519 + self.key).digest()[:_KEY_HASH_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.hash.hex()}+{b64encode(ED25519 + self.key).decode()}"

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """A key from its text, or Refused."""
        name, _, rest = text.strip().partition("+")
        key_hash, _, encoded = rest.partition("+")
        try:
            decoded = b64decode(encoded, validate=True)
        except (Base64Error, ValueError):
            decoded = b""
        key = cls(name, decoded[1:])
        if not name or decoded[:1] != ED25519 or key.hash.hex() != key_hash:
            raise Refused(f"{text!r:.80} is not a verifier key", "It looks like NAME+HASH+BASE64.")
        return key


class Signer(NamedTuple):
    """Who signs checkpoints."""

    name: str
    seed: bytes  # the private key

    @classmethod
    def generate(cls, name: str) -> Signer:
        """A signer with a new key."""
        with needed("evidence", "signing checkpoints"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> PublicKey:
        """What verifiers know it by."""
        return PublicKey(self.name, self._key().public_key().public_bytes_raw())

    def _key(self) -> Ed25519PrivateKey:
        with needed("evidence", "signing checkpoints"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)

    def sign(self, data: bytes) -> bytes:
        """The signature of some bytes."""
        return self._key().sign(data)


class Checkpoint(NamedTuple):
    """How long a log is, and what its root is."""

    origin: str
    size: int
    root: bytes
    note: str
    is_signed: bool | None = None  # None: by nobody whose key is known


def checkpoint_text(origin: str, size: int, root: bytes) -> str:
    """What is signed."""
    return f"{origin}\n{size}\n{b64encode(root).decode()}\n"


def signed(text: str, signers: Sequence[Signer]) -> str:
    """The note of a text."""
    lines = []
    for signer in signers:
        signature = signer.public.hash + signer.sign(text.encode())
        lines.append(f"{_DASH} {signer.name} {b64encode(signature).decode()}\n")
    return f"{text}\n{''.join(lines)}"


def checkpoints_of(text: str, keys: Sequence[PublicKey]) -> Iterator[Checkpoint]:
    """The checkpoints in a text, such as a file to which they were appended."""
    for note in _NOTE.finditer(text):
        yield Checkpoint(
            note["origin"],
            int(note["size"]),
            b64decode(note["root"] + "=="),
            note[0],
            _is_signed(note["text"].encode(), note["signatures"], keys),
        )


def _is_signed(text: bytes, signatures: str, keys: Sequence[PublicKey]) -> bool | None:
    """Whether a known key signed the text, and no signature of a known key is wrong."""
    verdicts = []
    for name, encoded in _SIGNATURE.findall(signatures):
        try:
            signature = b64decode(encoded, validate=True)
        except (Base64Error, ValueError):
            return False
        for key in keys:
            if key.name == name and key.hash == signature[:_KEY_HASH_BYTES]:
                verdicts.append(_verifies(key, signature[_KEY_HASH_BYTES:], text))
    return all(verdicts) if verdicts else None


def _verifies(key: PublicKey, signature: bytes, text: bytes) -> bool:
    with needed("evidence", "verifying checkpoints"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key.key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
