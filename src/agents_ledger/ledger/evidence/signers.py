"""Who signs the checkpoints of a ledger on this machine, and where they go.

Both are in a file of the user, not in the ledger: whoever can write to the ledger must not be able
to sign for it, nor have this machine write or send anything elsewhere.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path

import msgspec
from msgspec import Struct

from agents_ledger.model.errors import Refused
from agents_ledger.model.evidence.signed_note import PublicKey, Signer
from agents_ledger.model.ids import is_id
from agents_ledger.model.installation import settings
from agents_ledger.store.files import write_privately

EVERY_LEAVES = 1000
EVERY_SECONDS = 60


class SignerFile(Struct, kw_only=True):
    """The key of a ledger, the public keys it had before, and the destination of checkpoints."""

    ledger: str
    private: str  # base64
    former: tuple[str, ...] = ()
    destination: str | None = None
    every_leaves: int = EVERY_LEAVES
    every_seconds: int = EVERY_SECONDS

    def __repr__(self) -> str:
        """Without the key, which may end up in a log."""
        return f"SignerFile({self.origin}, destination={self.destination!r})"

    @property
    def origin(self) -> str:
        """The name of the log in its checkpoints, and that of its signer."""
        return f"agents-ledger/{self.ledger}"

    @property
    def signer(self) -> Signer:
        return Signer(self.origin, b64decode(self.private))

    @property
    def keys(self) -> tuple[PublicKey, ...]:
        return (self.signer.public, *map(PublicKey.parse, self.former))

    def save(self) -> None:
        write_privately(path_of(self.ledger), msgspec.json.encode(self).decode())


def path_of(ledger_id: str) -> Path:
    if not is_id(ledger_id) or "/" in ledger_id or ledger_id.startswith("."):
        raise Refused(f"{ledger_id!r:.80} cannot be the id of a ledger")
    return settings.evidence_folder() / f"{ledger_id}.json"


def load(ledger_id: str) -> SignerFile | None:
    """The file of a ledger; None: checkpoints of it are not signed here."""
    file = path_of(ledger_id)
    try:
        return msgspec.json.decode(file.read_bytes(), type=SignerFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}", "Restore it from a copy.") from error


def new(ledger_id: str) -> SignerFile:
    signer = Signer.generate(f"agents-ledger/{ledger_id}")
    return SignerFile(ledger=ledger_id, private=b64encode(signer.seed).decode())


def rotated(file: SignerFile) -> SignerFile:
    """The file with a new key."""
    replaced = new(file.ledger)
    former = (str(file.signer.public), *file.former)
    return msgspec.structs.replace(file, private=replaced.private, former=former)
