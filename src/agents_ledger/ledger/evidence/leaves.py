"""Writes the leaves of the log, in the transaction of what they cover."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import astuple

from agents_ledger.ledger.evidence import canonical, stored_content
from agents_ledger.ledger.evidence.canonical import (
    CALL,
    CODEBLOCK,
    COMPACTION,
    FILE,
    LINT,
    MESSAGE,
    TURN,
    MessageDetails,
    Place,
    TurnContent,
    stored,
)
from agents_ledger.model.evidence.merkle import leaf_hash
from agents_ledger.model.ids import new_seed
from agents_ledger.model.turns import Message, MessageFile, Turn
from agents_ledger.store.database import Transaction

SEQUENCED_AT_ONCE = 5000

_turn_values = attrgetter(*TURN.all)
_message_values = attrgetter(*MESSAGE.all)
_call_values = attrgetter(*CALL.all)
_file_values = attrgetter(*FILE.all)
_lint_values = attrgetter(*LINT.all)
_codeblock_values = attrgetter(*CODEBLOCK.plain[1:], *CODEBLOCK.values)
_compaction_values = attrgetter(*COMPACTION.all)


class TurnSeal(NamedTuple):
    """The hash of a turn's content, and the seed of its salts."""

    seed: bytes
    content: str


class Leaf(NamedTuple):
    """A row of the log; `label`: of the session whose last move it covers."""

    kind: str
    subject: str
    hash: bytes
    opening: bytes | None = None
    label: str | None = None
    payload: str | None = None


def seal(turn: Turn) -> TurnSeal:
    """The seal of a turn as it will be stored, with all its messages and calls."""
    seed = new_seed()
    details = {m.id: _details(m) for m in turn.messages if m.has_details}
    compaction = turn.compaction
    content = TurnContent(
        stored(_turn_values(turn)),
        [stored(_message_values(message)) for message in turn.messages],
        [stored(_call_values(call)) for call in turn.tool_calls],
        details,
        None if compaction is None else stored(_compaction_values(compaction)),
    )
    return TurnSeal(seed, canonical.content_hash(content, canonical.seeded(seed)))


def _details(message: Message) -> MessageDetails:
    return MessageDetails(
        [stored(_file_values(file)) for file in _distinct(message.files)],
        [stored(_lint_values(lint)) for lint in message.lints],
        [
            stored((number, *_codeblock_values(block)))
            for number, block in enumerate(message.codeblocks)
        ],
    )


def _distinct(files: Sequence[MessageFile]) -> list[MessageFile]:
    """The files that are stored: of files with the same line, the first is stored."""
    first: dict[tuple[object, ...], MessageFile] = {}
    for file in files:
        kind, path, line_start, _ = astuple(file)
        first.setdefault((kind, path, -1 if line_start is None else line_start), file)
    return list(first.values())


def turn_leaf(turn_id: str, sealed: TurnSeal, place: Place) -> Leaf:
    """The leaf of a turn, and of the move to it, if the place names a session."""
    leaf = canonical.leaf_of_turn(sealed.content, Place(*stored(place)))
    return Leaf("turn", turn_id, leaf, sealed.seed, place.session_label)


def stored_turn_leaf(
    tx: Transaction, turn_id: str, label: str | None = None, moved_at: int | None = None
) -> Leaf:
    """The leaf of a turn that is stored and sealed now; of the move to it, if there was one."""
    turn = stored_content.read_turn(tx, turn_id, just_written=True)
    seed = new_seed()
    content = canonical.content_hash(turn.content, canonical.seeded(seed))
    # What was read is in stored form, the label is not.
    place = turn.place
    if label is not None:
        place = place._replace(session_label=str(stored((label,))[0]), moved_at=moved_at)
    leaf = canonical.leaf_of_turn(content, place)
    return Leaf("turn", turn_id, leaf, seed, label)


def older_turn_leaves(tx: Transaction, turn_ids: Sequence[str]) -> list[Leaf]:
    """The leaves of turns that were sealed before there was evidence; without their moves."""
    found = []
    for turn_id, turn in stored_content.read_turns(tx, turn_ids).items():
        seed = new_seed()
        content = canonical.content_hash(turn.content, canonical.seeded(seed))
        found.append(Leaf("turn", turn_id, canonical.leaf_of_turn(content, turn.place), seed))
    return found


def add(tx: Transaction, leaf: Leaf) -> None:
    tx.run("insert_evidence", **leaf._asdict())


def add_all(tx: Transaction, leaves: Sequence[Leaf]) -> None:
    tx.run_many("insert_evidence", leaves)


def sequence(tx: Transaction) -> bool:
    """Give positions to leaves that wait for them, in the order they were written; whether more may
    wait. On SQLite none does."""
    tx.run("lock_evidence")
    return tx.change("sequence_evidence", limit=SEQUENCED_AT_ONCE) == SEQUENCED_AT_ONCE


def cover_move(tx: Transaction, label: str, *, former: str | None = None) -> None:
    """Cover the last move of a session. `former`: its label before, if it was renamed."""
    thread_id, changed_at, reason, is_projected = tx.run("move_to_cover", label=label)[0]
    target = canonical.IMPORTED if is_projected else thread_id
    hashed = move_hash(label, target, changed_at, reason, former)
    add(tx, Leaf("move", label, hashed, label=label, payload=former))


def move_hash(
    label: str, target: str | None, changed_at: int, reason: str, former: str | None
) -> bytes:
    return leaf_hash(canonical.move_data(*stored((label, target, changed_at, reason, former))))


def add_entry(
    tx: Transaction, kind: str, subject: str, payload: str, *, opening: bytes | None = None
) -> None:
    """Add what has no row of its own."""
    leaf = leaf_hash(canonical.entry_data(kind, *stored((subject, payload))))
    add(tx, Leaf(kind, subject, leaf, opening, payload=payload))


# -- source records ---------------------------------------------------------------------------


class BlockSeal(NamedTuple):
    """The commitments of a block's records, and the seed of their salts."""

    seed: bytes
    commitments: list[str]


def seal_block(data: bytes) -> BlockSeal:
    seed = new_seed()
    commit = canonical.seeded(seed)
    records = enumerate(canonical.pieces(data))
    return BlockSeal(seed, [commit(record_label(number), record) for number, record in records])


def record_label(number: int) -> str:
    return f"r{number}"


def block_leaf(file_id: int, path: str, generation: int, start: int, sealed: BlockSeal) -> Leaf:
    (path,) = stored((path,))
    path_commitment = canonical.seeded(sealed.seed)("path", path.encode())
    data = canonical.source_data(path_commitment, generation, start, sealed.commitments)
    return Leaf("source", block_subject(file_id, start), leaf_hash(data), sealed.seed)


def block_subject(file_id: int, start: int) -> str:
    return f"{file_id}/{start}"
