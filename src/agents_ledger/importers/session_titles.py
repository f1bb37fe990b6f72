"""Titles that stand in another file than their session, and folders of projects: whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.sources import SourceFile, SourceTitle

OWN_ID = re.compile(rb'"uuid"\s{0,8}:\s{0,8}"([0-9A-Za-z-]{36})"')
OWN_ID_MAX = 64  # bytes


def families(sources: Sources, titled: Iterable[SourceTitle]) -> dict[str, str]:
    """The families whose sessions or records are named, and their source. A record that is no
    message of its own, as a piece of one, is looked for in the folder of the title: it counts for
    no other. A project is all that is there."""
    titled = list(titled)
    found = sources.families_of_sessions(each.record_id for each in titled if each.names_session)
    records: dict[str, set[str]] = {}  # by folder
    for each in titled:
        if each.names_project:
            found |= {file.family: file.source for file in sources.files_under(each.folder)}
        elif not each.names_session:
            records.setdefault(each.folder, set()).add(each.record_id)
    for folder, names in records.items():
        known = sources.files_of_records(sorted(names))
        found |= {file.family: file.source for file in known.values()}
        pieces = {name.encode() for name in names - known.keys()}
        for file in sources.files_under(folder) if pieces else ():
            if file.kind == "lines" and file.family not in found and _has(sources, file, pieces):
                found[file.family] = file.source
    return found


def _has(sources: Sources, file: SourceFile, names: Set[bytes]) -> bool:
    """Whether one of them stands in a file, as an id of its own; however many they are, the file is
    passed over once."""
    before = b""
    for block in sources.stream(file.id):
        data = before + block
        if not names.isdisjoint(OWN_ID.findall(data)):
            return True
        before = data[-OWN_ID_MAX:]
    return False
