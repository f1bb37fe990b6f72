"""Titles that stand in another file than their session: whose they are."""

from __future__ import annotations

import os
from collections.abc import Mapping

from agents_ledger.ledger.sources import Sources
from agents_ledger.model.sources import SourceFile


def families(sources: Sources, titled: Mapping[str, str]) -> dict[str, str]:
    """The families that have these records, and their source. `titled`: the records, each with the
    file that named it. One that is no message of its own, as a piece of one, is looked for in the
    files beside that."""
    known = sources.files_of_records(sorted(titled))
    found = {file.family: file.source for file in known.values()}
    beside: dict[str, set[bytes]] = {}  # by folder
    for record_id in titled.keys() - known.keys():
        folder = os.path.join(os.path.dirname(titled[record_id]), "")
        beside.setdefault(folder, set()).add(record_id.encode(errors="replace"))
    for folder, names in beside.items():
        for file in sources.files_under(folder):
            if file.kind == "lines" and file.family not in found and _has(sources, file, names):
                found[file.family] = file.source
    return found


def _has(sources: Sources, file: SourceFile, names: set[bytes]) -> bool:
    """Whether one of them stands in a file, as an id of its own."""
    marks = [b'"uuid":"%s"' % name for name in names] + [b'"uuid": "%s"' % name for name in names]
    longest = max(map(len, marks))
    before = b""
    for block in sources.stream(file.id):
        data = before + block
        if any(mark in data for mark in marks):
            return True
        before = data[-longest:]
    return False
