"""Seals what was recorded before there was evidence, in the background, a batch at a time."""

from __future__ import annotations

from functools import partial

import msgspec

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.evidence import canonical, leaves
from agents_ledger.ledger.evidence.verification import BEHIND, SETTING
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.ids import now_ms
from agents_ledger.store.database import Transaction

TURNS_AT_ONCE = 200
BLOCKS_AT_ONCE = 8
MOVES_SETTING = (
    "evidence.moves"  # the id of the last move of before that is sealed, and of the last
)
SEALED = "sealed"


def is_behind(tx: Transaction) -> bool:
    return tx.run("setting", name=SETTING) == [(BEHIND,)]


def seal_more(core: Core) -> bool:
    """Seal a batch; whether there is more."""
    db = core.db
    if db.write(_seal_turns) or db.write(_seal_moves):
        return True
    blocks = db.read(lambda tx: tx.run("uncovered_blocks", after=-1, limit=BLOCKS_AT_ONCE))
    if blocks:
        sources = Sources(core)
        sealed = [
            leaves.block_leaf(
                file_id,
                path,
                generation,
                start,
                leaves.seal_block(sources.read(file_id, start, length)),
            )
            for file_id, path, generation, start, length in blocks
        ]
        db.write(partial(_add_missing, sealed=sealed))
        return True
    db.write(_finish)
    return False


def _seal_turns(tx: Transaction) -> bool:
    tx.run("lock_evidence")
    rows = tx.run("uncovered_turns", after="", limit=TURNS_AT_ONCE)
    leaves.add_all(tx, leaves.older_turn_leaves(tx, [row[0] for row in rows]) if rows else [])
    return bool(rows)


def _seal_moves(tx: Transaction) -> bool:
    tx.run("lock_evidence")
    after, upto = _moves(tx)
    rows = tx.run("moves_between", after=after, upto=upto, limit=TURNS_AT_ONCE)
    for move_id, label, thread_id, changed_at, reason, is_projected in rows:
        target = canonical.IMPORTED if is_projected else thread_id
        hashed = leaves.move_hash(label, target, changed_at, reason, None)
        tx.run("insert_move_evidence", subject=label, move_id=move_id, hash=hashed)
    if rows:
        value = f"{rows[-1][0]} {upto}"
        tx.run("set_setting", name=MOVES_SETTING, value=value, now=now_ms())
    return bool(rows)


def _moves(tx: Transaction) -> tuple[int, int]:
    rows = tx.run("setting", name=MOVES_SETTING)
    after, upto = rows[0][0].split() if rows else ("0", "0")
    return int(after), int(upto)


def _add_missing(tx: Transaction, sealed: list[leaves.Leaf]) -> None:
    tx.run("lock_evidence")
    leaves.add_all(tx, [leaf for leaf in sealed if not tx.run("evidence_of", subject=leaf.subject)])


def _finish(tx: Transaction) -> None:
    tx.run("lock_evidence")
    if is_behind(tx):
        now = now_ms()
        payload = msgspec.json.encode({"at": now}).decode()
        leaves.add_entry(tx, "coverage", "ledger", payload)
        tx.run("set_setting", name=SETTING, value=SEALED, now=now)
