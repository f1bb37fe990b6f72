"""Proofs as signed statements of SCITT (RFC 9943): COSE_Sign1, by the key of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agents_ledger.ledger.evidence.signers import SignerFile
from agents_ledger.model.installation.extras import needed

_SIGN1_TAG = 18
_ALGORITHM, _CONTENT_TYPE, _KEY_ID, _CLAIMS = 1, 3, 4, 15  # headers of COSE
_EDDSA = -8
_ISSUER, _SUBJECT = 1, 2  # claims of CWT
CONTENT_TYPE = "application/vnd.agents-ledger.proof+json"


def signed_statement(proof: Mapping[str, Any], signer: SignerFile) -> bytes:
    """The statement: its payload is the proof, its issuer the log, its subject the turn."""
    with needed("evidence", "an export as a signed statement"):
        import cbor2

    claims = {_ISSUER: signer.origin, _SUBJECT: proof["turn"]}
    protected = cbor2.dumps(
        {
            _ALGORITHM: _EDDSA,
            _CONTENT_TYPE: CONTENT_TYPE,
            _KEY_ID: signer.signer.public.hash,
            _CLAIMS: claims,
        }
    )
    payload = msgspec.json.encode(proof)
    signature = signer.signer.sign(cbor2.dumps(["Signature1", protected, b"", payload]))
    statement: bytes = cbor2.dumps(cbor2.CBORTag(_SIGN1_TAG, [protected, {}, payload, signature]))
    return statement
