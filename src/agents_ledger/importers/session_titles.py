"""Finds the families that a title or project folder recorded in another file belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.sources import SourceFile, SourceTitle

# Claude Code: summaries name the last record of a session, which may be a part of a message.
OWN_ID = re.compile(rb'"uuid"\s{0,8}:\s{0,8}"([0-9A-Za-z-]{36})"')
# `"uuid": "` with white space, and 36 characters.
OWN_ID_MAX = 64  # bytes


def families(sources: Sources, titles: Iterable[SourceTitle]) -> dict[str, str]:
    """The families whose sessions, records or projects are named, with their sources.

    A record that is not a message of its own is searched in the folder of the title. A project is
    everything in that folder.
    """
    titles = list(titles)
    labels = [title.record_id for title in titles if title.kind == "session"]
    matches = sources.families_of_sessions(labels)
    records: dict[str, set[str]] = {}  # by folder
    for title in titles:
        if title.kind == "project":
            matches |= {file.family: file.source for file in sources.files_under(title.folder)}
        elif title.kind == "record":
            records.setdefault(title.folder, set()).add(title.record_id)
    for folder, record_ids in records.items():
        files = sources.files_of_records(sorted(record_ids))
        matches |= {file.family: file.source for file in files.values()}
        missing = {record_id.encode() for record_id in record_ids - files.keys()}
        for file in sources.files_under(folder) if missing else ():
            is_new = file.kind == "lines" and file.family not in matches
            if is_new and _has_record(sources, file, missing):
                matches[file.family] = file.source
    return matches


def _has_record(sources: Sources, file: SourceFile, record_ids: Set[bytes]) -> bool:
    """Whether a file has one of these records; it is read once, however many they are."""
    rest = b""
    for block in sources.stream(file.id):
        data = rest + block
        if not record_ids.isdisjoint(OWN_ID.findall(data)):
            return True
        # An id may be cut by the end of a block.
        rest = data[-OWN_ID_MAX:]
    return False
