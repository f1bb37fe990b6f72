"""Cursor: what a record says of a chat, however many bubbles it lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.parsing.json_values import BROKEN, encoded, loose, pruned
from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_text
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.records import raw

FIELD_MAX = 4000  # bytes of a field that is not read: a longer one is a state of the editor


class ComposerData(Struct, rename="camel"):
    """What a record says of a chat. Anything may be missing, or be something else."""

    composer_id: Any = None
    name: Any = None
    subtitle: Any = None
    created_at: Any = None
    last_updated_at: Any = None
    status: Any = None
    unified_mode: Any = None
    force_mode: Any = None
    is_agentic: Any = None
    is_archived: Any = None
    is_best_of_n_subcomposer: Any = None
    model_config: Any = None
    conversation: Any = None
    conversation_map: Any = None
    context: Any = None
    context_token_limit: Any = None
    context_tokens_used: Any = None
    context_usage_percent: Any = None
    usage_data: Any = None
    sub_composer_ids: Any = None
    subagent_info: Any = None
    latest_conversation_summary: Any = None
    todos: Any = None
    branches: Any = None
    created_on_branch: Any = None
    git_worktree: Any = None
    forked_from: Any = None
    newly_created_files: Any = None
    files_changed_count: Any = None
    total_lines_added: Any = None
    total_lines_removed: Any = None
    tracked_git_repos: Any = None
    workspace_identifier: Any = None


LISTED = "fullConversationHeadersOnly"
READ = {LISTED, *(each.encode_name for each in msgspec.structs.fields(ComposerData))} - {
    "context",
    "modelConfig",
    "subagentInfo",
}


class _Head(Struct, rename="camel", gc=False):
    """A bubble in the list of its chat."""

    bubble_id: Any = None


COMPOSER = msgspec.json.Decoder(ComposerData)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_HEADS = msgspec.json.Decoder(list[_Head])


def order_of(data: ComposerData, said: Mapping[str, Any]) -> Numbering | None:
    """The ids of a chat's bubbles as they stand in it."""
    for listed in (_heads(said.get(LISTED)), as_list(data.conversation)):
        if listed:
            named = (as_text(_head(each)) or str(at) for at, each in enumerate(listed))
            return _numbered(named)
    return _numbered(as_dict(data.conversation_map))


def _numbered(names: Iterable[str]) -> Numbering | None:
    found = Numbering()
    for name in names:
        found.add(name)
    return found if len(found) else None


def _heads(listed: Any) -> list[Any]:
    """The list of a chat's bubbles: there may be very many, and all but their ids is left."""
    if not isinstance(listed, Raw):
        return as_list(listed)
    try:
        return _HEADS.decode(listed)
    except BROKEN:
        return as_list(loose(bytes(listed)))


def _head(listed: Any) -> Any:
    return listed.bubble_id if isinstance(listed, _Head) else as_dict(listed).get("bubbleId")


def converted(said: Any) -> ComposerData | None:
    """What JSON that was read says of a chat."""
    try:
        return msgspec.convert(said, ComposerData) if isinstance(said, dict) else None
    except (msgspec.ValidationError, RecursionError):
        return None


def fields_of(cell: Any) -> Mapping[str, Any]:
    """All that a record says, by field, read as far as it has to be."""
    try:
        return _FIELDS.decode(raw(cell))
    except BROKEN:
        return as_dict(loose(cell))


def more_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a chat that nothing else is made of."""
    found = {}
    for name, value in said.items():
        if name in READ:
            continue
        data = bytes(value) if isinstance(value, Raw) else encoded(value)
        if len(data) <= FIELD_MAX:
            found[name] = loose(data)
    return as_dict(pruned(found))
