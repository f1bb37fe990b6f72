"""Reading single records of a family, and accounting for those that are broken."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from agents_ledger.importers.parsing.lenient_json import (
    BROKEN,
    UUID,
    as_dict,
    as_list,
    decode_leniently,
    parse_json,
    repair_json,
)
from agents_ledger.importers.port.material import HeldRecord, Material, SourceLine
from agents_ledger.model.imports.sources import SourceFile

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


def record_of(material: Material, held: HeldRecord) -> dict[str, Any]:
    """A held record, parsed whole."""
    return as_dict(parse_json(material.bytes_of(held)))


def report_malformed(material: Material, line: SourceLine, reason: object) -> None:
    """Report a line that is not a record, and count it."""
    unfinished = line.offset + line.length >= line.file.kept_bytes
    what = "the last line is unfinished" if unfinished else f"not a record: {reason}"
    material.fault(line, what)
    material.count("(malformed)", "malformed")


def decode_line(material: Material, line: SourceLine, decode: Callable[[bytes], T]) -> T | None:
    """The decoded record of a line; None if it has none, which is counted."""
    data = line.data or b""
    try:
        return decode_leniently(decode, data)
    except msgspec.ValidationError:
        record = parse_json(data)
        if isinstance(record, dict):
            material.count(str(record.get("type")), "unmapped")
        else:
            report_malformed(material, line, "not an object")
    except BROKEN as error:
        report_malformed(material, line, error)
    return None


def text_of(content: Any) -> str:
    """The text of a content in Anthropic's form: a string, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    texts = [as_dict(b).get("text") for b in as_list(content) if as_dict(b).get("type") == "text"]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def decode_fields(decode: Callable[[bytes], S], data: bytes) -> tuple[S, bytes]:
    """A record without fields of a wrong type, and its JSON, repaired if need be.

    Raises one of lenient_json.BROKEN if it is no JSON object at all.
    """
    try:
        return decode(data), data
    except msgspec.ValidationError:
        return _decode_field_by_field(decode, data), data
    except BROKEN:
        # Unpaired surrogates and NULs occur in the output of tools.
        repaired = repair_json(data)
        if repaired is None:
            raise
        return _decode_field_by_field(decode, repaired), repaired


def _decode_field_by_field(decode: Callable[[bytes], S], data: bytes) -> S:
    fields = msgspec.json.decode(data)
    if not isinstance(fields, dict):
        raise msgspec.DecodeError("not an object")
    record = decode(b"{}")
    for own, theirs in zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True):
        if theirs in fields:
            with suppress(msgspec.ValidationError):
                single = decode(msgspec.json.encode({theirs: fields[theirs]}))
                setattr(record, own, getattr(single, own))
    return record


def scoped_id(source: str, session_id: str, name: str) -> str:
    """An id for a record that no other record has.

    A UUID is unique as it is, any other id only in its session; and a session that is only named
    after its file is unique only in its source.
    """
    if UUID.fullmatch(name):
        return name
    return f"{session_id}:{name}" if UUID.fullmatch(session_id) else f"{source}:{session_id}:{name}"


class DocumentStates:
    """The kept states of documents that are rewritten whole, to find those that a later state of
    the same file contains entirely."""

    def __init__(self) -> None:
        self._states: dict[str, list[tuple[int, array[int]]]] = {}  # names as hashes

    def add(self, file: SourceFile, names: Iterable[str]) -> None:
        """A state of a file and the ids in it. States are added in their order."""
        hashes = array("q", map(hash, names))
        self._states.setdefault(file.path, []).append((file.id, hashes))

    def superseded(self) -> frozenset[int]:
        """The file ids of states that contain nothing but what the last state of their file has."""
        file_ids: set[int] = set()
        for *earlier, (_, names) in self._states.values():
            last = frozenset(names) if earlier else frozenset()
            file_ids.update(file_id for file_id, names in earlier if last.issuperset(names))
        return frozenset(file_ids)
