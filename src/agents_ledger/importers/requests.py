"""`sessions.import`: sessions that another program hands over, at once or in parts.

Each item is kept first, then derived as every source is. An item never harms another; the same
request again gets the same answer.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.pipeline import Importer
from agents_ledger.importers.sources.import_requests.records import (
    Invalid,
    Item,
    Key,
    Merged,
    decoded,
    encoded,
    in_camel,
    normal,
    read_item,
)
from agents_ledger.importers.sources.import_requests.source import Kept, Requests, read_kept
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.import_requests import AnsweredRequest, UploadChunk
from agents_ledger.model.errors import Conflict, LedgerError, Refused
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.sessions import DEFAULT_PERSONA
from agents_ledger.model.text.json_limits import JsonLimits, JsonTooLarge, check_json

SOURCES = ("aix",)
MODES = ("backfill", "tail")
HINTS = {  # by how a code begins
    "source_unsupported": f"`source` is one of {', '.join(SOURCES)}.",
    "mode_unsupported": f"`mode` is one of {', '.join(MODES)}.",
    "items_required": "Give at least one session in `items`.",
    "idempotency_key_required": "Give an `idempotencyKey`, another one for each request.",
    "idempotency_key_": "Another request had this key: give this one its own.",
    "chunk_": "Correct what it names, and send all parts of the upload again.",
    "": "Compare the request with docs/sources/request.md.",
}
PERSONA = DEFAULT_PERSONA
ENCODING = "gzip+base64"
ENVELOPE = ("source", "runId", "mode", "personaId", "idempotencyKey", "items")
CHUNK = (
    "uploadId",
    "chunkIndex",
    "chunkTotal",
    "encoding",
    "data",
    "sourceProvider",
    "sourceSessionId",
    "sourceSessionFingerprint",
    "payloadSha256",
)
ITEM_NAMES = {
    "source_provider": "sourceProvider",
    "source_session_id": "sourceSessionId",
    "source_session_fingerprint": "sourceSessionFingerprint",
}
CHUNKS_MAX = 100_000
TRIES = 10
ITEM_MAX = 64 << 20  # bytes of an item, unpacked
UPLOAD_MAX = ITEM_MAX * 4 // 3  # characters of all its parts
JSON_LIMITS = JsonLimits()  # of an item, unpacked
READER = Requests()


class RequestRefused(Refused):
    """A request that cannot be taken. `code` is stable, and all of the message."""

    def __init__(self, code: str) -> None:
        super().__init__(code, next(HINTS[start] for start in HINTS if code.startswith(start)))
        self.code = code


class _Request(Struct):
    source: str
    mode: str
    persona_id: str
    key: str
    run_id: str
    items: list[Any]

    def hash(self) -> str:
        """Of what was asked. When, and in which run, makes no other request of it."""
        said = [self.source, self.mode, self.persona_id, *map(_item_hash, self.items)]
        return hashlib.sha256(encoded(said)).hexdigest()


def _item_hash(item: Any) -> str:
    said = item
    if isinstance(item, dict):
        said = {name: value for name, value in item.items() if name != "importedAtMs"}
    try:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), default=str)
    except (RecursionError, TypeError, ValueError):
        text = "unreadable"  # the item will fail
    return hashlib.sha256(text.encode()).hexdigest()


def import_sessions(ledger: Ledger, request: Mapping[str, Any]) -> dict[str, Any]:
    """Import the items of a request; what became of each."""
    asked = _read_request(request)
    request_hash = asked.hash()
    known = ledger.import_requests.answered(asked.key)
    if known is not None:
        return _same_again(known, asked, request_hash)
    results = _Run(ledger, asked).results()
    response: dict[str, Any] = {"ok": True, "runId": asked.run_id}
    for outcome in ("imported", "upserted", "skipped", "failed"):
        response[outcome] = sum(result["status"] == outcome for result in results)
    response["results"] = results
    given = AnsweredRequest(asked.source, asked.mode, request_hash, encoded(response).decode())
    written = [
        (result["sourceProvider"], result["sourceSessionId"])
        for result in results
        if result["status"] in ("imported", "upserted")
    ]
    stands = ledger.import_requests.answer(asked.key, given, asked.run_id, written)
    return _same_again(stands, asked, request_hash)


def import_request(ledger: Ledger, request: Mapping[str, Any]) -> dict[str, Any]:
    """Take a request as it comes: items, or one of them in parts."""
    is_part = isinstance(request, Mapping) and bool({"uploadId", "upload_id"} & request.keys())
    return (import_chunk if is_part else import_sessions)(ledger, request)


def persona_of(request: Mapping[str, Any]) -> str:
    """The persona that a request imports its sessions for."""
    persona = in_camel(request, ENVELOPE).get("personaId")
    return persona if isinstance(persona, str) and persona else PERSONA


def _read_request(request: Mapping[str, Any]) -> _Request:
    asked, items = _read_envelope(request)
    if not isinstance(items, list) or not items:
        raise RequestRefused("items_required")
    asked.items = []
    for item in items:
        try:
            asked.items.append(normal(item))
        except Invalid:
            asked.items.append(item)
    return asked


def _read_envelope(request: Mapping[str, Any]) -> tuple[_Request, Any]:
    if not isinstance(request, Mapping):
        raise RequestRefused("request_invalid")
    said = in_camel(request, ENVELOPE)
    if said.get("source") not in SOURCES:
        raise RequestRefused("source_unsupported")
    if said.get("mode") not in MODES:
        raise RequestRefused("mode_unsupported")
    key = said.get("idempotencyKey")
    if not isinstance(key, str) or not key.strip():
        raise RequestRefused("idempotency_key_required")
    run_id = said.get("runId")
    asked = _Request(
        said["source"],
        said["mode"],
        persona_of(request),
        key,
        run_id if isinstance(run_id, str) and run_id else str(uuid4()),
        [],
    )
    return asked, said.get("items")


def _same_again(
    known: AnsweredRequest, asked: _Request, request_hash: str | None
) -> dict[str, Any]:
    if known.source != asked.source:
        raise RequestRefused("idempotency_key_source_mismatch")
    if known.mode != asked.mode:
        raise RequestRefused("idempotency_key_mode_mismatch")
    if request_hash is not None and known.request_hash != request_hash:
        raise RequestRefused("idempotency_key_payload_mismatch")
    response: dict[str, Any] = decoded(known.response_json.encode())
    return response


# -- items ------------------------------------------------------------------------------------


class _Note(Struct):
    """Kept with an item: the request that brought it, and what it was then."""

    key: str
    outcome: str


_decode_note = msgspec.json.Decoder(_Note).decode


class _Accepted(Struct):
    key: Key
    label: str
    outcome: str
    index: int  # of its result
    kin: set[Key] = field(default_factory=set)


class _Run:
    """One request's items on their way into the ledger."""

    def __init__(self, ledger: Ledger, asked: _Request) -> None:
        self.requests = ledger.import_requests
        self.asked = asked
        self.importer = Importer(ledger)
        self.fingerprints: dict[Key, str] = {}  # accepted so far
        self.accepted: list[_Accepted] = []
        self.found: list[dict[str, Any]] = []

    def results(self) -> list[dict[str, Any]]:
        for index, said in enumerate(self.asked.items):
            self.found.append(self._take(index, said))
        for group in _groups(self.accepted):
            self._derive(group)
        return self.found

    def _take(self, index: int, said: Any) -> dict[str, Any]:
        result: dict[str, Any] = {"sourceProvider": "", "sourceSessionId": ""}
        if isinstance(said, dict):
            for name in result:
                result[name] = said[name] if isinstance(said.get(name), str) else ""
        try:
            return {**result, **self._keep(index, normal(said))}
        except Invalid as error:
            result |= {"status": "failed", "reason": error.code}
            return {**result, "detail": error.detail} if error.detail else result
        except RecursionError:
            return {**result, "status": "failed", "reason": "payload_invalid"}

    def _keep(self, index: int, said: dict[str, Any]) -> dict[str, Any]:
        item = read_item(said)
        key = Key(self.asked.source, item.source_provider, item.source_session_id)
        known = self.requests.imported(*key)
        file = self.importer.sources.file(key.path())
        note = _note(file)
        current = self.fingerprints.get(key) or (known.fingerprint if known else None)
        label = known.label if known else None
        if current == item.source_session_fingerprint:
            ours = note is not None and note.key == self.asked.key and key not in self.fingerprints
            if note is not None and ours:  # this very request did it, and was interrupted
                return {"sessionLabel": label, "status": note.outcome}
            label = label or self._decided(key)
            return {"sessionLabel": label, "status": "skipped", "reason": "fingerprint_unchanged"}
        earlier = list(self._kept(key))
        label = label or (earlier[0][0].label if earlier else self._label(key, item))
        _check_together([each for _, each in earlier], item)
        outcome = "imported" if current is None else "upserted"
        outcome = self._store(
            key, Kept(self.asked.source, self._persona(earlier), label, said), outcome
        )
        self.fingerprints[key] = item.source_session_fingerprint
        self.accepted.append(_Accepted(key, label, outcome, index, _kin(key, item)))
        return {"sessionLabel": label, "status": outcome}

    def _persona(self, earlier: list[tuple[Kept, Item]]) -> str:
        """A session stays with the persona it came to."""
        return earlier[0][0].persona_id if earlier else self.asked.persona_id

    def _decided(self, key: Key) -> str:
        return next(each.label for each in self.accepted if each.key == key)

    def _kept(self, key: Key) -> Iterator[tuple[Kept, Item]]:
        for file in self.importer.sources.files_of_family(key.path()):
            data = b"".join(self.importer.sources.stream(file.id))
            if data:
                yield read_kept(data)

    def _label(self, key: Key, item: Item) -> str:
        hint = item.session.label_hint if item.session else None
        own = key.label()
        if hint is None or any(each.label == hint for each in self.accepted):
            return own
        is_free = self.requests.adoptable(hint, self.asked.persona_id, own)
        return hint if is_free else own

    def _store(self, key: Key, kept: Kept, outcome: str) -> str:
        """Keep the item; the outcome it had when it was first kept."""
        data = encoded(kept)
        if len(data) > ITEM_MAX:
            raise Invalid("item_too_large", f"{len(data)} bytes")
        sources = self.importer.sources
        path = key.path()
        cursor = encoded(_Note(self.asked.key, outcome)).decode()
        for attempt in range(TRIES):
            latest = sources.file(path)
            if latest is not None and b"".join(sources.stream(latest.id)) == data:
                note = _note(latest)
                return note.outcome if note is not None else outcome
            try:
                file = self._begin(path, latest)
                sources.append(file, data, size=len(data), mtime_ns=0, cursor=cursor, base=latest)
                break
            # Another request keeps an item of this session just now.
            except (Conflict, Refused):
                if attempt == TRIES - 1:
                    raise
        return outcome

    def _begin(self, path: str, latest: SourceFile | None) -> SourceFile:
        return self.importer.sources.begin(
            source=READER.name, path=path, family=path, kind="document", previous=latest
        )

    # -- deriving -----------------------------------------------------------------------------

    def _derive(self, group: list[_Accepted]) -> None:
        """Derive sessions that belong together; if that fails, each for itself."""
        if self._derived(group) or len(group) == 1:
            return
        for each in group:
            self._derived([each])

    def _derived(self, group: list[_Accepted]) -> bool:
        failed = None
        try:
            self.importer.derive(READER, *dict.fromkeys(each.key.path() for each in group))
        except LedgerError:
            raise
        except Exception as error:
            # One item that meets a mistake of ours must not take the others with it.
            failed = f"{type(error).__name__}: {error}"
        for each in group:
            status: dict[str, Any] = {"status": each.outcome, "sessionLabel": each.label}
            if failed is not None:
                status = {"status": "failed", "reason": "import_failed", "detail": failed}
            old = self.found[each.index]
            names = ("sourceProvider", "sourceSessionId")
            self.found[each.index] = {**{name: old[name] for name in names}, **status}
        return failed is None


def _note(file: SourceFile | None) -> _Note | None:
    if file is None or file.cursor_json is None:
        return None
    return _decode_note(file.cursor_json)


def _check_together(earlier: Iterable[Item], item: Item) -> None:
    """Invalid, if the item does not go with what came before it."""
    merged = Merged()
    for each in earlier:
        merged.add(each)
    merged.add(item)


def _kin(key: Key, item: Item) -> set[Key]:
    named = {call.spawned_source_session_id for call in item.tool_calls or ()}
    if item.session is not None:
        named.add(item.session.parent_source_session_id)
    return {key._replace(session_id=each) for each in named if each}


def _groups(accepted: Iterable[_Accepted]) -> list[list[_Accepted]]:
    """Accepted items that name each other, together."""
    groups: list[tuple[set[Key], list[_Accepted]]] = []
    for each in accepted:
        keys, members = {each.key, *each.kin}, [each]
        apart = []
        for group in groups:
            if group[0] & keys:
                keys |= group[0]
                members = group[1] + members
            else:
                apart.append(group)
        groups = [*apart, (keys, members)]
    return [members for _, members in groups]


# -- one item in parts ------------------------------------------------------------------------


def import_chunk(ledger: Ledger, request: Mapping[str, Any]) -> dict[str, Any]:
    """Take one part of an item; with the last one, import it."""
    asked, _ = _read_envelope(request)
    said = in_camel(request, (*ENVELOPE, *CHUNK))
    upload_id = said.get("uploadId")
    if not isinstance(upload_id, str) or not upload_id.strip():
        raise RequestRefused("chunk_upload_id_required")
    part = _read_part(asked, said)
    done = ledger.import_requests.answered(asked.key)
    if done is not None:
        return _completed(part, upload_id, _same_item(done, asked, part))
    waiting = ledger.import_requests.chunks(asked.source, upload_id)
    part = _check_part(part, waiting, has_run="runId" in said)
    ledger.import_requests.stage(asked.source, upload_id, part)
    waiting = ledger.import_requests.chunks(asked.source, upload_id)
    if len(waiting) < part.chunk_total:
        return {
            "ok": True,
            "runId": part.run_id,
            "uploadId": upload_id,
            "status": "staged",
            "received": len(waiting),
            "total": part.chunk_total,
        }
    item = _unpack_item(waiting, said.get("payloadSha256"))
    response = import_sessions(
        ledger,
        {
            "source": asked.source,
            "mode": asked.mode,
            "personaId": asked.persona_id,
            "idempotencyKey": asked.key,
            "runId": part.run_id,
            "items": [item],
        },
    )
    ledger.import_requests.unstage(asked.source, upload_id)
    return _completed(part, upload_id, response)


def _completed(part: UploadChunk, upload_id: str, response: dict[str, Any]) -> dict[str, Any]:
    return {
        "ok": True,
        "runId": response["runId"],
        "uploadId": upload_id,
        "status": "completed",
        "received": part.chunk_total,
        "total": part.chunk_total,
        "import": response,
    }


def _read_part(asked: _Request, said: Mapping[str, Any]) -> UploadChunk:
    index, total = _count(said.get("chunkIndex")), _count(said.get("chunkTotal"))
    if not 0 <= index < total:
        raise RequestRefused("chunk_index_out_of_range")
    named = {}
    for name, field_name in ITEM_NAMES.items():
        value = said.get(field_name)
        if not isinstance(value, str) or not value.strip():
            raise RequestRefused(f"{name}_required")
        named[name] = value
    data = said.get("data")
    if not isinstance(data, str) or not data:
        raise RequestRefused("chunk_upload_empty")
    return UploadChunk(
        chunk_index=index,
        chunk_total=total,
        mode=asked.mode,
        run_id=asked.run_id,
        idempotency_key=asked.key,
        encoding=str(said.get("encoding")),
        payload=data,
        persona_id=asked.persona_id,
        **named,
    )


def _count(value: Any) -> int:
    is_one = isinstance(value, int) and not isinstance(value, bool) and value < CHUNKS_MAX
    return value if is_one else -1


SAME = (
    "chunk_total",
    "mode",
    "idempotency_key",
    "persona_id",
    "source_provider",
    "source_session_id",
    "source_session_fingerprint",
    "encoding",
)


def _check_part(
    part: UploadChunk, waiting: tuple[UploadChunk, ...], *, has_run: bool
) -> UploadChunk:
    """The part, if it goes with those that wait; in their run, unless it names one."""
    for other in waiting[:1]:
        for name in SAME:
            if getattr(part, name) != getattr(other, name):
                code = name if name.startswith("chunk_") else f"chunk_{name}"
                raise RequestRefused(f"{code}_mismatch")
        if not has_run:
            part = msgspec.structs.replace(part, run_id=other.run_id)
    if part.encoding != ENCODING:
        raise RequestRefused(f"chunk_encoding_unsupported:{part.encoding}")
    others = sum(len(each.payload) for each in waiting if each.chunk_index != part.chunk_index)
    if others + len(part.payload) > UPLOAD_MAX:
        raise RequestRefused("chunk_payload_too_large")
    return part


def _same_item(done: AnsweredRequest, asked: _Request, part: UploadChunk) -> dict[str, Any]:
    """The answer an upload got that ended before; its parts are gone."""
    response = _same_again(done, asked, None)
    named = [(each["sourceProvider"], each["sourceSessionId"]) for each in response["results"]]
    if named != [(part.source_provider, part.source_session_id)]:
        raise RequestRefused("idempotency_key_payload_mismatch")
    return response


def _unpack_item(waiting: tuple[UploadChunk, ...], sha256: object) -> dict[str, Any]:
    if [part.chunk_index for part in waiting] != list(range(waiting[0].chunk_total)):
        raise RequestRefused("chunk_index_gap")
    data = _unzipped(_from_base64([part.payload for part in waiting]))
    if isinstance(sha256, str) and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise RequestRefused("chunk_payload_sha256_mismatch")
    try:
        check_json(data, JSON_LIMITS)
        item = normal(decoded(data))
    except JsonTooLarge as error:
        raise RequestRefused("chunk_payload_too_large") from error
    except (ValueError, msgspec.MsgspecError, RecursionError, Invalid) as error:
        raise RequestRefused("chunk_payload_json_invalid") from error
    for name, field_name in ITEM_NAMES.items():
        if item.get(field_name) != getattr(waiting[0], name):
            raise RequestRefused(f"chunk_item_{name}_mismatch")
    return item


def _from_base64(pieces: list[str]) -> bytes:
    """What was encoded, whether before it was cut or after."""
    try:
        return base64.b64decode("".join(pieces), validate=True)
    except (binascii.Error, ValueError):
        try:
            return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
        except (binascii.Error, ValueError) as error:
            raise RequestRefused("chunk_payload_decode_failed") from error


def _unzipped(data: bytes) -> bytes:
    """The content of gzip members, as far as an item may go."""
    found, left = b"", data
    while left:
        member = zlib.decompressobj(wbits=31)
        try:
            found += member.decompress(left, ITEM_MAX + 1 - len(found))
        except zlib.error as error:
            raise RequestRefused("chunk_payload_decode_failed") from error
        if len(found) > ITEM_MAX:
            raise RequestRefused("chunk_payload_too_large")
        if not member.eof:
            raise RequestRefused("chunk_payload_decode_failed")
        left = member.unused_data
    return found
