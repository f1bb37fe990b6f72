"""Reads blocks of source records, as evidence covers them."""

from __future__ import annotations

from typing import NamedTuple

from agents_ledger.ledger.evidence import canonical, leaves
from agents_ledger.ledger.evidence.openings import Opening
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.evidence.merkle import leaf_hash
from agents_ledger.store.database import Transaction
from agents_ledger.store.tables import stored_rows


class CoveredFile(NamedTuple):
    path: str
    generation: int


class CoveredBlock(NamedTuple):
    file: CoveredFile
    start: int
    data: bytes


def read_block(tx: Transaction, sources: Sources, subject: str) -> CoveredBlock | None:
    file_id, start = map(int, subject.split("/"))
    row = stored_rows.block(tx, file_id, start)
    if row is None:
        return None
    path, generation, length = row
    return CoveredBlock(CoveredFile(path, generation), start, sources.read(file_id, start, length))


def values_of_block(block: CoveredBlock, opening: Opening) -> dict[str, bytes]:
    records = opening.pieces(block.data)
    values = {leaves.record_label(number): record for number, record in enumerate(records)}
    return {"path": block.file.path.encode(), **values}


def block_hash(block: CoveredBlock, opening: Opening) -> bytes:
    commitments = [
        opening.removed.get(label) or opening.commit(label, value)
        for label, value in values_of_block(block, opening).items()
    ]
    data = canonical.source_data(
        commitments[0], block.file.generation, block.start, commitments[1:]
    )
    return leaf_hash(data)
