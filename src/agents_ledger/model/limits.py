"""How much the ledger reads, holds and writes at once."""

from __future__ import annotations

from msgspec import Struct

from agents_ledger.model.imports.interning import HELD_NAMES


class LedgerLimits(Struct, frozen=True, kw_only=True):
    """A database has them, and hands them to each transaction. Tests pass smaller ones."""

    # The word index
    index_turns: int = 250  # indexed in one transaction
    index_chars: int = 2_000_000  # of them: other writers wait for it
    index_read_turns: int = 25
    # Writes after which a handle indexes a full batch: its own turns and as many that others left.
    # Larger backlogs are left to servers, imports and watch, which have the time.
    index_writes: int = 125
    # Turns of one commit from which on they are indexed with it: they are in memory already, and
    # enough for the index to take them at once.
    index_commit_turns: int = 20
    # Only the beginning and the end of longer values are indexed, less of each in a turn with very
    # many calls, and never more of a turn than should be held in memory.
    indexed_values_chars: int = 8_000_000
    indexed_message_chars: int = 2_000_000
    indexed_turn_chars: int = 12_000_000

    # Between two searches of a process for writers that died
    recovery_pause_ms: int = 60_000

    # Search
    waiting_turns: int = 10_000  # not indexed yet, that are read for one page
    waiting_chars: int = 20_000_000
    waiting_read_turns: int = 50
    routing_turns: int = 1000  # with a word that are read, the newest
    near_turns: int = 200
    compared_vectors: int = 20_000
    vector_index_from: int = 20_000  # below that, comparing all is fast enough, and exact
    vector_pause_s: float = 10.0  # until a few new turns get their vectors

    # Threads and sessions
    context_turns: int = 32  # of the first page
    summary_piece_tokens: int = 60_000  # of a transcript in one request to a summariser
    holder_sessions: int = 1000  # with fewer sessions, all heads are read
    holder_turns: int = 20_000  # up to this number, the turns below are read

    # Daily totals: turns and days in one transaction
    total_turns: int = 2000
    total_days: int = 1000

    # Imports
    batch_bytes: int = 5 << 20  # of content in a transaction: other writers wait for it
    batch_turns: int = 200
    batch_derivations: int = 50
    derived_turns: int = 1000  # compared with the stored ones at once
    held_record_ids: int = 10_000
    held_names: int = HELD_NAMES  # of a tree, that are not packed
    held_places: int = 1000  # a tree may be of any size
    step_chars: int = 1 << 20  # of a large turn in one statement
    # By one statement: a turn of hundreds of megabytes is cleared in steps.
    deleted_steps: int = 100
    block_bytes: int = 4 << 20  # of an archived file; blocks of 1 MB take a tenth more


LIMITS = LedgerLimits()
