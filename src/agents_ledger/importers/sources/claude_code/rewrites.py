"""Claude Code: history that stands in a file once more, under new ids.

Versions 2.0.29 to 2.1.12 split records of several blocks when a session is resumed. From the first
of them on, all records are written again, one for each block, and what comes next hangs on these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from agents_ledger.importers.sources.claude_code import records
from agents_ledger.importers.sources.claude_code.nodes import Nodes
from agents_ledger.importers.sources.claude_code.records import Record
from agents_ledger.importers.transcript.turn_tree import NONE, as_text
from agents_ledger.model.imports.interning import Numbering


class Answers:
    """The answers of one file, to notice when one comes again."""

    def __init__(self) -> None:
        self.again = False
        self._known = Numbering(forgets=True)
        self._last = ("", NONE)

    def add(self, answer: str, number: int, above: int, before: int) -> None:
        """A piece of an answer: the record above it, and the one before it in its file. Pieces
        that were written at once hang on each other, or on what was written meanwhile."""
        if answer != self._last[0] or above not in (self._last[1], before):
            known = len(self._known)
            self.again |= self._known.add(answer) < known
        self._last = (answer, number)

    def end(self) -> None:
        """Something is asked: no more pieces follow."""
        self._last = ("", NONE)


def repeated(nodes: Nodes, chain: Iterable[int]) -> dict[int, int]:
    """The records of a file that repeat others of it, and those. A record repeats another if both
    say the same and hang on the same. What has no id of the API may have been said twice: it is
    repeated if what hangs on it is, or if it was said in the same instant."""
    first: dict[bytes, int] = {}  # by what they hang on and say
    meant: dict[int, int] = {}  # what a record is instead, for those that hang on it
    unsure: dict[int, int] = {}  # what may be repeated, and what it hangs on
    found: dict[int, int] = {}
    for number in dict.fromkeys(chain):
        record = records.read(nodes.places.bytes_of(number))
        hangs_on = nodes.parents[number] if record.parent_uuid else NONE
        above = meant.get(hangs_on, hangs_on)
        blocks = records.blocks_of(record)
        if not blocks:
            meant[number] = above
            continue
        original = first.setdefault(_key(above, record, blocks[0]), number)
        if original == number or len(blocks) > 1:
            for block in blocks[1:]:
                first.setdefault(_key(number, record, block), number)
            continue
        meant[number] = original
        unsure[number] = hangs_on
        at = number if _api_id(record, blocks[0]) else NONE
        while at in unsure:
            found[at], at = meant[at], unsure.pop(at)
    same = (each for each in unsure if 0 < nodes.ats[each] == nodes.ats[meant[each]])
    return found | {each: meant[each] for each in same}


def _api_id(record: Record, block: dict[str, Any]) -> str | None:
    return (record.message and record.message.id) or as_text(block.get("tool_use_id"))


def _key(above: int, record: Record, block: dict[str, Any]) -> bytes:
    call = as_text(block.get("id")) or as_text(block.get("tool_use_id"))
    said = repr((above, record.type, _api_id(record, block), call or block))
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=16).digest()
