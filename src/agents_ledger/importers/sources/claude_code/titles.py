"""Claude Code: titles of sessions that are in the files of others."""

from __future__ import annotations

from agents_ledger.importers.parsing.lenient_json import UUID
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.sources.claude_code.entries import ClaudeEntries
from agents_ledger.model.imports.sources import SourceTitle


class LeafTitles:
    """Titles in `summary` records, by the record that they name. Up to 2.0 they are mostly in the
    file of another session."""

    def __init__(self, material: Material, entries: ClaudeEntries) -> None:
        self._material = material
        self._entries = entries
        self._titles: dict[str, SourceTitle] = {}
        self._leaves: list[str] = []

    def add(self, leaf: str, line: SourceLine, text: str) -> None:
        file = line.file
        self._leaves.append(leaf)
        title = SourceTitle(leaf, file.id, file.path, file.generation, line.offset, text)
        if title.rank() >= self._titles.get(leaf, title).rank():
            self._titles[leaf] = title

    def finish(self) -> tuple[SourceTitle, ...]:
        """Add the titles in other files, and return those for other families."""
        self._add_from_other_files()
        for_others = tuple(
            title
            for leaf, title in self._titles.items()
            if self._entries.find(leaf) is None and UUID.fullmatch(leaf) and title.title
        )
        for leaf in self._leaves:
            is_here = self._entries.find(leaf) is not None
            self._material.count("summary", "derived" if is_here else "unmapped")
        return for_others

    def _add_from_other_files(self) -> None:
        """Only files in the folder of the record, or above it, count: the program looks nowhere
        else."""
        entries, own = self._entries, {file.id: file.path for file in self._material.files}
        names = map(entries.name, range(len(entries)))
        for title in self._material.titles(name for name in names if UUID.fullmatch(name)):
            present = self._titles.get(title.record_id, title)
            entry = entries.ids.get(title.record_id)
            paths = (own[file_id] for file_id in entries.files[entry])
            # Two projects may contain copies of the same records.
            is_near = any(path.startswith(title.folder) for path in paths)
            if is_near and title.file_id not in own and title.rank() >= present.rank():
                self._titles[title.record_id] = title

    def by_entry(self) -> dict[int, str]:
        named = ((self._entries.find(leaf), title.title) for leaf, title in self._titles.items())
        return {entry: title for entry, title in named if entry is not None}
