"""Proofs that a turn is in the log, which can be verified without the ledger and without this
program (docs/explanation/evidence.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.evidence import canonical, checkpoints, stored_content
from agents_ledger.ledger.evidence.openings import Opening
from agents_ledger.ledger.evidence.signers import SignerFile
from agents_ledger.ledger.evidence.stored_blocks import read_block, values_of_block
from agents_ledger.ledger.evidence.stored_content import StoredLeaf, StoredTurn
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import Conflict, Damaged, NotFound
from agents_ledger.model.evidence import merkle
from agents_ledger.model.installation.extras import needed
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import unescape

FORMAT = "agents-ledger proof 1"
_SIGN1_TAG = 18
_ALGORITHM, _CONTENT_TYPE, _KEY_ID, _CLAIMS = 1, 3, 4, 15  # headers of COSE
_EDDSA = -8
_ISSUER, _SUBJECT = 1, 2  # claims of CWT
CONTENT_TYPE = "application/vnd.agents-ledger.proof+json"


class _Log(NamedTuple):
    """The log as the latest checkpoint has it; without one, as it is."""

    hashes: list[bytes]
    checkpoint: str | None


def prove(core: Core, target: str) -> dict[str, Any]:
    """A proof of a turn: of its own leaf, or, if it was imported, of the source records that it was
    derived from."""
    signer = checkpoints.signer_of(core)
    sources = Sources(core)
    with core.db.snapshot():
        proof = core.db.read(partial(_prove, sources=sources, target=target))
    proof["keys"] = [] if signer is None else [str(key) for key in signer.keys]
    return proof


def _prove(tx: Transaction, sources: Sources, target: str) -> dict[str, Any]:
    turn_id = threads.resolve(tx, target)
    if turn_id is None:
        raise NotFound(f"session {target!r} is empty")
    turn = stored_content.read_turn(tx, turn_id)
    log = _read_log(tx)
    if turn.is_projected:
        leaves = [_prove_block(tx, sources, log, subject) for subject in _blocks_of(tx, turn_id)]
    else:
        leaves = [_prove_turn(tx, log, turn_id, turn)]
    return {
        "format": FORMAT,
        "turn": turn_id,
        "size": len(log.hashes),
        "root": merkle.root_of(log.hashes).hex(),
        "checkpoint": log.checkpoint,
        "leaves": leaves,
    }


def _read_log(tx: Transaction) -> _Log:
    latest = checkpoints.latest(tx)
    size = latest.size or tx.run("evidence_size")[0][0]
    rows = tx.run("evidence_hashes", after=0, upto=size)
    return _Log([bytes(row[0]) for row in rows], latest.note or None)


def _leaf(tx: Transaction, kind: str, subject: str) -> StoredLeaf:
    for row in tx.run("evidence_of", subject=subject):
        if row[1] == kind:
            return StoredLeaf(*row)
    raise NotFound(
        f"{kind} {subject} is not covered yet",
        "It was recorded before there was evidence; it is sealed in the background.",
    )


def _included(log: _Log, leaf: StoredLeaf, data: bytes) -> dict[str, Any]:
    if merkle.leaf_hash(data) != leaf.hash:
        raise Damaged(f"{leaf.kind} {leaf.subject} is not what its leaf covers", "Run `verify`.")
    if leaf.position < 0:
        raise Conflict(f"{leaf.kind} {leaf.subject} is not sequenced yet", "Retry in a second.")
    if leaf.position > len(log.hashes):
        raise Conflict(
            f"{leaf.kind} {leaf.subject} is behind the last checkpoint",
            "Take one with `agents-ledger checkpoint`, then retry.",
        )
    path = merkle.inclusion(log.hashes, leaf.position - 1)
    return {"index": leaf.position - 1, "path": [node.hex() for node in path]}


def _opened(opening: Opening, values: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """Every value with its salt; of a removed one, nothing."""
    return {
        label: {"salt": salt, "value": value.decode(errors="replace")}
        for label, value in values.items()
        if label not in opening.removed and (salt := opening.salt(label)) is not None
    }


def _prove_turn(tx: Transaction, log: _Log, turn_id: str, turn: StoredTurn) -> dict[str, Any]:
    leaf = _leaf(tx, "turn", turn_id)
    opening = Opening.of(leaf.opening or b"")
    text = canonical.content_text(turn.content, opening.commit, opening.removed)
    place = _place_with_move(tx, leaf, turn, canonical.hash_of_text(text))
    data = canonical.turn_data(canonical.hash_of_text(text), place)
    return {
        "kind": "turn",
        "content": text,
        "place": list(place),
        "values": _opened(opening, stored_content.values_of(turn.content)),
        **_included(log, leaf, data),
    }


def _place_with_move(
    tx: Transaction, leaf: StoredLeaf, turn: StoredTurn, content: str
) -> canonical.Place:
    """The place of a turn, and the move to it under the label that its session had then."""
    if leaf.move_id is None:
        return turn.place
    move = stored_content.read_moves(tx, [leaf.move_id]).get(leaf.move_id)
    if move is None:
        raise Damaged(f"the move {leaf.move_id} to turn {leaf.subject} is gone", "Run `verify`.")
    former = [row[1] for row in tx.run("evidence_renames") if row[0] == unescape(move.label)]
    for label in (move.label, *former):
        place = turn.place._replace(session_label=label, moved_at=move.changed_at)
        if canonical.leaf_of_turn(content, place) == leaf.hash:
            return place
    return turn.place


def _blocks_of(tx: Transaction, turn_id: str) -> list[str]:
    return [row[0] for row in tx.run("blocks_of_turn", turn_id=turn_id)]


def _prove_block(tx: Transaction, sources: Sources, log: _Log, subject: str) -> dict[str, Any]:
    leaf = _leaf(tx, "source", subject)
    block = read_block(tx, sources, subject)
    if block is None:
        raise Damaged(f"the source records {subject} are gone", "Run `verify`.")
    opening = Opening.of(leaf.opening or b"")
    values = values_of_block(block, opening)
    path, *commitments = (
        opening.removed.get(label) or opening.commit(label, value)
        for label, value in values.items()
    )
    data = canonical.source_data(path, block.file.generation, block.start, commitments)
    return {
        "kind": "source",
        "path_commitment": path,
        "generation": block.file.generation,
        "start": block.start,
        "commitments": commitments,
        "values": _opened(opening, values),
        **_included(log, leaf, data),
    }


def signed_statement(proof: Mapping[str, Any], signer: SignerFile) -> bytes:
    """A proof as a signed statement of SCITT (RFC 9943): a COSE_Sign1 whose payload is it, its
    issuer the log, its subject the turn."""
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
