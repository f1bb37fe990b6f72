"""Limits of an import, as values: tests pass smaller ones."""

from __future__ import annotations

from msgspec import Struct

from agents_ledger.model.imports.interning import HELD_NAMES


class ImportLimits(Struct, frozen=True, kw_only=True):
    """Whatever exceeds `record_bytes` or `text_bytes` is archived and reported, but not parsed."""

    # A value of 100 MB took 650 MB of memory when rows were read whole.
    record_bytes: int = 64 << 20
    # Of one text, as Python holds it: up to four bytes a character.
    # A text is held two or three times: as bytes, as a value, as a bound parameter.
    text_bytes: int = 28 << 20
    # Records of larger families are read again instead of held.
    held_bytes: int = 24 << 20
    # A database value that exceeds text_bytes is archived in such parts.
    part_bytes: int = 4 << 20
    batch_bytes: int = 4 << 20  # files archived in one commit, before compression
    batch_files: int = 200
    chunk_bytes: int = 8 << 20  # of a file, read at once
    read_bytes: int = 4 << 20  # of the events of a database, read in the order they were kept
    held_turn_bytes: int = 8 << 20  # a turn with longer records reads them again
    # Of a turn that is built; each takes up to four bytes. One turn of 400 MB took 893 MB when it
    # was held whole (docs/decisions/0021).
    held_turn_chars: int = 4 << 20
    # Files are archived and derived in batches, the next twice as large: the first sessions are
    # there at once, and sessions that share turns are seldom apart.
    first_batch_bytes: int = 4 << 20
    # Most sessions have fewer records, whose names and values are not packed.
    held_names: int = HELD_NAMES
    held_values: int = 4096


LIMITS = ImportLimits()
