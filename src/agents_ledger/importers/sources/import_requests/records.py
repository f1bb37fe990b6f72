"""The items of import requests: their ids, and how they are read and validated."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from agents_ledger.importers.sources.import_requests.rules import STATUSES
from agents_ledger.model.imports.requests import (
    ImportChunk,
    ImportEnvelope,
    ImportItem,
    ImportMessage,
    ImportResponse,
    ImportSession,
    ImportToolCall,
    ImportTurn,
)
from agents_ledger.model.turns import LIKELY_SECONDS

T = TypeVar("T")

LABEL_PART = 32
# A control character, so that two parts never join to the same text as two others.
SEPARATOR = "\x1f"
NAME_MAX = 64  # characters; all field names are shorter
SHOWN_MAX = 80  # characters of a value in an error


class InvalidField(Exception):
    """A value that its type does not allow."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path, self.problem = path, problem  # $.turns[0].model, "is 7: expected ..."


class InvalidItem(Exception):
    """An item that cannot be imported. The code is stable; path and problem are for people."""

    def __init__(self, code: str, path: str = "$", problem: str = "") -> None:
        super().__init__(f"{code}: {path} {problem}")
        self.code, self.path, self.problem = code, path, problem

    def detail(self, at: str) -> str:
        """What is wrong in the item at a JSON path."""
        return f"{at}{self.path.removeprefix('$')} {self.problem}"


class ArchivedItem(Struct, rename="camel"):
    """An item as it is archived, with the decisions made when it was imported."""

    source: str
    persona_id: str
    label: str
    item: Any


# msgspec compiles a type when it is first used, and crashes if two threads do so at once.
for _type in (ArchivedItem, ImportItem, ImportEnvelope, ImportChunk, ImportResponse):
    msgspec.json.Decoder(_type)

LEVELS: dict[str, type[Struct]] = {
    "session": ImportSession,
    "turns": ImportTurn,
    "messages": ImportMessage,
    "toolCalls": ImportToolCall,
}


class ImportKey(NamedTuple):
    source: str
    provider: str
    session_id: str

    def path(self) -> str:
        provider = self.provider.replace("%", "%25").replace("/", "%2F")
        return f"request:{self.source}/{provider}/{self.session_id}"

    def id_of(self, kind: str, scoped_id: str) -> str:
        # Ids of an item are unique in its session only; 24 digits are 96 bits.
        return f"imp_{kind}_{_hash(kind, *self, scoped_id)[:24]}"

    def label(self) -> str:
        """The default label, for a session without a hint."""
        name = _plain(self.session_id)[:LABEL_PART] or "session"
        provider = _plain(self.provider)[:LABEL_PART] or "provider"
        return f"import:{provider}:{name}:{_hash(*self)[:10]}"


def _hash(*parts: str) -> str:
    joined = SEPARATOR.join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")


# -- reading ----------------------------------------------------------------------------------


def encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError):  # unpaired surrogates, big integers
        plain = msgspec.to_builtins(value, enc_hook=str)
        return json.dumps(plain, separators=(",", ":")).encode()


def decoded(data: bytes) -> Any:
    """The inverse of encoded()."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)


def in_camel(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The fields, with these names in camelCase; that spelling wins if both are present."""
    expected = set(names)
    renamed: dict[str, Any] = {}
    for name, value in fields.items():
        camel = in_camel_case(str(name))
        if name not in expected and camel in expected:
            renamed.setdefault(camel, value)
        else:
            renamed[name] = value
    return renamed


def in_camel_case(name: str) -> str:
    if len(name) > NAME_MAX:  # splitting a name of megabytes would take gigabytes
        return name
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def names_of(schema: type[Struct]) -> tuple[str, ...]:
    return schema.__struct_encode_fields__


def builtins(value: Any) -> Any:
    """A value of ours as JSON objects; any other value as it is."""
    return msgspec.to_builtins(value, enc_hook=str) if isinstance(value, Struct) else value


def normal(item: object) -> dict[str, Any]:
    """An item with all its field names in camelCase."""
    item = builtins(item)
    if not isinstance(item, dict):
        raise InvalidItem("item_invalid", problem=f"is {shown(item)}: expected an object")
    fields = in_camel(item, names_of(ImportItem))
    for level, schema in LEVELS.items():
        value = fields.get(level)
        if isinstance(value, dict):
            fields[level] = in_camel(value, names_of(schema))
        elif isinstance(value, list):
            fields[level] = [
                in_camel(part, names_of(schema)) if isinstance(part, dict) else part
                for part in value
            ]
    return fields


def unknown_fields(fields: Mapping[str, Any]) -> list[str]:
    """The paths of the fields of an item that no type has, without indexes."""
    unknown = {name: None for name in fields if name not in names_of(ImportItem)}
    for level, schema in LEVELS.items():
        value, known = fields.get(level), names_of(schema)
        parts, prefix = (
            (value, f"{level}[].") if isinstance(value, list) else ([value], f"{level}.")
        )
        for part in parts:
            unknown |= {f"{prefix}{name}": None for name in part or () if name not in known}
    return list(unknown)


_TIMES = {"started_at_ms", "completed_at_ms", "created_at_ms", "updated_at_ms"}
# The codes of invalid values by their path; any other is payload_invalid.
CODES = {
    "$.sourceProvider": "source_provider_required",
    "$.sourceSessionId": "source_session_id_required",
    "$.sourceSessionFingerprint": "source_session_fingerprint_required",
    "$.messages[].role": "message_role_unsupported",
}


def read_item(fields: Mapping[str, Any]) -> ImportItem:
    """Raises InvalidItem."""
    try:
        return typed(fields, ImportItem)
    except InvalidField as error:
        code = CODES.get(re.sub(r"\d+", "", error.path), "payload_invalid")
        raise InvalidItem(code, error.path, error.problem) from error


def check_item(item: ImportItem) -> None:
    """Refuse values that were accepted once, so that archived items may have them: times in
    seconds, and statuses of tool calls that mean nothing to us. Raises InvalidItem."""
    lists = {"turns": item.turns, "messages": item.messages, "toolCalls": item.tool_calls}
    parts = {
        f"$.{name}[{n}]": part for name, all_ in lists.items() for n, part in enumerate(all_ or ())
    }
    for path, part in {"$.session": item.session, **parts}.items():
        for name in _TIMES.intersection(getattr(part, "__struct_fields__", ())):
            at = getattr(part, name)
            if at is not None and int(at) in LIKELY_SECONDS:
                problem = f"is {at}: expected milliseconds, and this is in early 1970"
                raise InvalidItem("time_in_seconds", f"{path}.{in_camel_case(name)}", problem)
    for n, call in enumerate(item.tool_calls or ()):
        if status_word(call) not in {"", *STATUSES}:
            problem = f"is {shown(call.status)}: expected one of {', '.join(STATUSES)}"
            path = f"$.toolCalls[{n}].status"
            raise InvalidItem("tool_call_status_unsupported", path, problem)


def status_word(call: ImportToolCall) -> str:
    """The status of a call as it is looked up in STATUSES; "" if there is none."""
    return (call.status or "").strip().lower()


def read_archived(data: bytes) -> tuple[ArchivedItem, ImportItem]:
    archived = msgspec.convert(decoded(data), ArchivedItem)
    return archived, read_item(normal(archived.item))


# -- validation -------------------------------------------------------------------------------

_AT = re.compile(r" - at `(\$[^`]*)`$")  # at the end of a message of msgspec
_JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_PYTHON = re.compile("|".join(_JSON_TYPES))
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def typed(value: object, kind: type[T]) -> T:
    """A JSON value as one of our types. Raises InvalidField."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        path, problem = at[1] if at else "$", _AT.sub("", str(error))
    except RecursionError as error:
        raise InvalidField("$", "has too many levels") from error
    missing = _MISSING.fullmatch(problem)
    if missing:
        raise InvalidField(f"{path}.{missing[1]}", "is missing")
    raise InvalidField(path, f"is {shown(_value_at(value, path))}: {_in_json_words(problem)}")


def _in_json_words(problem: str) -> str:
    """A message of msgspec that names the types of JSON instead of Python's."""
    if "regex" in problem:
        return "it is blank or has characters that are not allowed"
    problem = re.sub(r"`[^`]*`", lambda types: _PYTHON.sub(_json_type, types[0]), problem)
    return problem[:1].lower() + problem[1:]


def _json_type(name: re.Match[str]) -> str:
    return _JSON_TYPES[name[0]]


def _value_at(value: Any, path: str) -> Any:
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        value = value[name] if name else value[int(index)]
    return value


def shown(value: object) -> str:
    """A value as JSON for an error, shortened."""
    text = encoded(value).decode("utf-8", "replace")
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def whole(number: float | None) -> int:
    """A number of an item as an integer; 0 if there is none."""
    return int(number or 0)
