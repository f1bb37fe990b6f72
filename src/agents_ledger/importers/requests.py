"""`sessions.import`: sessions sent by another program, whole or in chunks.

Each item is archived first, then derived like any source. A failing item does not affect the
others; a repeated request gets the same answer.
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
from agents_ledger.importers.sources.import_requests.merge import MergedSession
from agents_ledger.importers.sources.import_requests.records import (
    ArchivedItem,
    ImportItem,
    ImportKey,
    InvalidItem,
    decoded,
    encoded,
    in_camel,
    normal,
    read_archived,
    read_item,
)
from agents_ledger.importers.sources.import_requests.source import Requests
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.import_requests import AnsweredRequest, UploadChunk
from agents_ledger.model.errors import Conflict, LedgerError, Refused
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.sessions import DEFAULT_PERSONA
from agents_ledger.model.text.json_limits import JsonLimits, JsonTooLarge, check_json

SOURCES = ("aix",)
MODES = ("backfill", "tail")
HINTS = {  # by the prefix of a code
    "source_unsupported": f"`source` is one of {', '.join(SOURCES)}.",
    "mode_unsupported": f"`mode` is one of {', '.join(MODES)}.",
    "items_required": "Give at least one session in `items`.",
    "idempotency_key_required": "Give each request an `idempotencyKey` of its own.",
    "idempotency_key_": "Another request used this key: choose a new one.",
    "chunk_": "Correct the field it names, and send all chunks of the upload again.",
    "": "Compare the request with docs/sources/request.md.",
}
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
ITEM_MAX = 64 << 20  # bytes of an uncompressed item
JSON_LIMITS = JsonLimits()  # of an uncompressed item
READER = Requests()


class RequestRefused(Refused):
    """A request that is refused as a whole. The message is the code, which is stable."""

    def __init__(self, code: str) -> None:
        super().__init__(code, next(HINTS[start] for start in HINTS if code.startswith(start)))
        self.code = code


class SessionsRequest(Struct):
    source: str
    mode: str
    persona_id: str
    key: str
    run_id: str
    items: list[Any]

    def hash(self) -> str:
        """Of everything that makes it a different request; the time and the run do not."""
        parts = [self.source, self.mode, self.persona_id, *map(_item_hash, self.items)]
        return hashlib.sha256(encoded(parts)).hexdigest()


def _item_hash(item: Any) -> str:
    if isinstance(item, dict):
        item = {name: value for name, value in item.items() if name != "importedAtMs"}
    try:
        text = json.dumps(item, sort_keys=True, separators=(",", ":"), default=str)
    except (RecursionError, TypeError, ValueError):
        text = "unreadable"  # the item will fail
    return hashlib.sha256(text.encode()).hexdigest()


def import_sessions(ledger: Ledger, request: Mapping[str, Any]) -> dict[str, Any]:
    """Import the items of a request; the result of each."""
    parsed = _read_request(request)
    request_hash = parsed.hash()
    answer = ledger.import_requests.answered(parsed.key)
    if answer is not None:
        return _repeated(answer, parsed, request_hash)
    results = RequestRun(ledger, parsed).results()
    response: dict[str, Any] = {"ok": True, "runId": parsed.run_id}
    for outcome in ("imported", "upserted", "skipped", "failed"):
        response[outcome] = sum(result["status"] == outcome for result in results)
    response["results"] = results
    answer = AnsweredRequest(parsed.source, parsed.mode, request_hash, encoded(response).decode())
    written = [
        (result["sourceProvider"], result["sourceSessionId"])
        for result in results
        if result["status"] in ("imported", "upserted")
    ]
    stored = ledger.import_requests.answer(parsed.key, answer, parsed.run_id, written)
    return _repeated(stored, parsed, request_hash)


def import_request(ledger: Ledger, request: Mapping[str, Any]) -> dict[str, Any]:
    """Import a request of either kind: items, or a chunk of one."""
    is_chunk = isinstance(request, Mapping) and bool({"uploadId", "upload_id"} & request.keys())
    return (import_chunk if is_chunk else import_sessions)(ledger, request)


def persona_of(request: Mapping[str, Any]) -> str:
    """The persona that a request imports its sessions for."""
    persona = in_camel(request, ENVELOPE).get("personaId")
    return persona if isinstance(persona, str) and persona else DEFAULT_PERSONA


def _read_request(request: Mapping[str, Any]) -> SessionsRequest:
    parsed, items = _read_envelope(request)
    if not isinstance(items, list) or not items:
        raise RequestRefused("items_required")
    for item in items:
        try:
            parsed.items.append(normal(item))
        except InvalidItem:
            parsed.items.append(item)
    return parsed


def _read_envelope(request: Mapping[str, Any]) -> tuple[SessionsRequest, Any]:
    """The request without its items, and these as they were sent."""
    if not isinstance(request, Mapping):
        raise RequestRefused("request_invalid")
    fields = in_camel(request, ENVELOPE)
    if fields.get("source") not in SOURCES:
        raise RequestRefused("source_unsupported")
    if fields.get("mode") not in MODES:
        raise RequestRefused("mode_unsupported")
    key = fields.get("idempotencyKey")
    if not isinstance(key, str) or not key.strip():
        raise RequestRefused("idempotency_key_required")
    run_id = fields.get("runId")
    parsed = SessionsRequest(
        fields["source"],
        fields["mode"],
        persona_of(request),
        key,
        run_id if isinstance(run_id, str) and run_id else str(uuid4()),
        [],
    )
    return parsed, fields.get("items")


def _repeated(
    answer: AnsweredRequest, parsed: SessionsRequest, request_hash: str | None
) -> dict[str, Any]:
    """The response to an earlier request of the same key, if it is the same request."""
    if answer.source != parsed.source:
        raise RequestRefused("idempotency_key_source_mismatch")
    if answer.mode != parsed.mode:
        raise RequestRefused("idempotency_key_mode_mismatch")
    if request_hash is not None and answer.request_hash != request_hash:
        raise RequestRefused("idempotency_key_payload_mismatch")
    response: dict[str, Any] = decoded(answer.response_json.encode())
    return response


# -- items ------------------------------------------------------------------------------------


class _ImportNote(Struct):
    """Archived with an item: the key of its request, and its outcome."""

    key: str
    outcome: str


_decode_note = msgspec.json.Decoder(_ImportNote).decode


class AcceptedItem(Struct):
    key: ImportKey
    label: str
    outcome: str
    index: int  # in the request
    relatives: set[ImportKey] = field(default_factory=set)


class RequestRun:
    """Imports the items of one request."""

    def __init__(self, ledger: Ledger, request: SessionsRequest) -> None:
        self.requests = ledger.import_requests
        self.request = request
        self.importer = Importer(ledger)
        self.fingerprints: dict[ImportKey, str] = {}  # of the accepted items
        self.accepted: list[AcceptedItem] = []
        self.item_results: list[dict[str, Any]] = []

    def results(self) -> list[dict[str, Any]]:
        for index, item in enumerate(self.request.items):
            self.item_results.append(self._accept_or_fail(index, item))
        for group in _groups(self.accepted):
            self._derive(group)
        return self.item_results

    def _accept_or_fail(self, index: int, item: Any) -> dict[str, Any]:
        result: dict[str, Any] = {"sourceProvider": "", "sourceSessionId": ""}
        if isinstance(item, dict):
            for name in result:
                result[name] = item[name] if isinstance(item.get(name), str) else ""
        try:
            return {**result, **self._accept(index, normal(item))}
        except InvalidItem as error:
            result |= {"status": "failed", "reason": error.code}
            return {**result, "detail": error.detail} if error.detail else result
        except RecursionError:
            return {**result, "status": "failed", "reason": "payload_invalid"}

    def _accept(self, index: int, fields: dict[str, Any]) -> dict[str, Any]:
        item = read_item(fields)
        key = ImportKey(self.request.source, item.source_provider, item.source_session_id)
        imported = self.requests.imported(*key)
        current = self.fingerprints.get(key) or (imported.fingerprint if imported else None)
        label = imported.label if imported else None
        if current == item.source_session_fingerprint:
            return self._unchanged(key, label)
        earlier = list(self._archived(key))
        label = label or (earlier[0][0].label if earlier else self._label(key, item))
        # A session stays with the persona it was first imported for.
        persona = earlier[0][0].persona_id if earlier else self.request.persona_id
        _check_mergeable([previous for _, previous in earlier], item)
        outcome = "imported" if current is None else "upserted"
        archived = ArchivedItem(self.request.source, persona, label, fields)
        outcome = self._store(key, archived, outcome)
        self.fingerprints[key] = item.source_session_fingerprint
        self.accepted.append(AcceptedItem(key, label, outcome, index, _relatives(key, item)))
        return {"sessionLabel": label, "status": outcome}

    def _unchanged(self, key: ImportKey, label: str | None) -> dict[str, Any]:
        note = _note(self.importer.sources.file(key.path()))
        if note is not None and note.key == self.request.key and key not in self.fingerprints:
            # This very request archived it and was interrupted before it was answered.
            return {"sessionLabel": label, "status": note.outcome}
        label = label or next(item.label for item in self.accepted if item.key == key)
        return {"sessionLabel": label, "status": "skipped", "reason": "fingerprint_unchanged"}

    def _archived(self, key: ImportKey) -> Iterator[tuple[ArchivedItem, ImportItem]]:
        for file in self.importer.sources.files_of_family(key.path()):
            data = b"".join(self.importer.sources.stream(file.id))
            if data:
                yield read_archived(data)

    def _label(self, key: ImportKey, item: ImportItem) -> str:
        hint = item.session.label_hint if item.session else None
        own = key.label()
        if hint is None or any(accepted.label == hint for accepted in self.accepted):
            return own
        is_free = self.requests.adoptable(hint, self.request.persona_id, own)
        return hint if is_free else own

    def _store(self, key: ImportKey, item: ArchivedItem, outcome: str) -> str:
        """Archive an item; its outcome, that of the first time if it was archived before."""
        data = encoded(item)
        if len(data) > ITEM_MAX:
            raise InvalidItem("item_too_large", f"{len(data)} bytes")
        sources = self.importer.sources
        path = key.path()
        cursor = encoded(_ImportNote(self.request.key, outcome)).decode()
        for attempt in range(TRIES):
            latest = sources.file(path)
            if latest is not None and b"".join(sources.stream(latest.id)) == data:
                note = _note(latest)
                return note.outcome if note is not None else outcome
            try:
                file = self._begin(path, latest)
                sources.append(file, data, size=len(data), mtime_ns=0, cursor=cursor, base=latest)
                break
            except (Conflict, Refused):  # a concurrent request for this session
                if attempt == TRIES - 1:
                    raise
        return outcome

    def _begin(self, path: str, latest: SourceFile | None) -> SourceFile:
        return self.importer.sources.begin(
            source=READER.name, path=path, family=path, kind="document", previous=latest
        )

    # -- deriving -----------------------------------------------------------------------------

    def _derive(self, group: list[AcceptedItem]) -> None:
        """Derive related sessions together; if that fails, one by one."""
        if self._derived(group) or len(group) == 1:
            return
        for item in group:
            self._derived([item])

    def _derived(self, group: list[AcceptedItem]) -> bool:
        failed = None
        try:
            self.importer.derive(READER, *dict.fromkeys(item.key.path() for item in group))
        except LedgerError:
            raise
        except Exception as error:
            # A bug that one item triggers must not fail the others.
            failed = f"{type(error).__name__}: {error}"
        for item in group:
            status: dict[str, Any] = {"status": item.outcome, "sessionLabel": item.label}
            if failed is not None:
                status = {"status": "failed", "reason": "import_failed", "detail": failed}
            result = self.item_results[item.index]
            names = ("sourceProvider", "sourceSessionId")
            self.item_results[item.index] = {**{name: result[name] for name in names}, **status}
        return failed is None


def _note(file: SourceFile | None) -> _ImportNote | None:
    if file is None or file.cursor_json is None:
        return None
    return _decode_note(file.cursor_json)


def _check_mergeable(earlier: Iterable[ImportItem], item: ImportItem) -> None:
    """Raises InvalidItem if the item contradicts the earlier ones."""
    merged = MergedSession()
    for previous in earlier:
        merged.add(previous)
    merged.add(item)


def _relatives(key: ImportKey, item: ImportItem) -> set[ImportKey]:
    session_ids = {call.spawned_source_session_id for call in item.tool_calls or ()}
    if item.session is not None:
        session_ids.add(item.session.parent_source_session_id)
    return {key._replace(session_id=session_id) for session_id in session_ids if session_id}


def _groups(accepted: Iterable[AcceptedItem]) -> list[list[AcceptedItem]]:
    """The connected components of items that name each other."""
    groups: list[tuple[set[ImportKey], list[AcceptedItem]]] = []
    for item in accepted:
        keys, members = {item.key, *item.relatives}, [item]
        unrelated = []
        for group in groups:
            if group[0] & keys:
                keys |= group[0]
                members = group[1] + members
            else:
                unrelated.append(group)
        groups = [*unrelated, (keys, members)]
    return [members for _, members in groups]


# -- uploads in chunks ------------------------------------------------------------------------


def import_chunk(
    ledger: Ledger, request: Mapping[str, Any], *, item_max: int = ITEM_MAX
) -> dict[str, Any]:
    """Stage a chunk of an item; the last one imports it. Items have at most `item_max` bytes."""
    parsed, _ = _read_envelope(request)
    fields = in_camel(request, (*ENVELOPE, *CHUNK))
    upload_id = fields.get("uploadId")
    if not isinstance(upload_id, str) or not upload_id.strip():
        raise RequestRefused("chunk_upload_id_required")
    chunk = _read_chunk(parsed, fields)
    answer = ledger.import_requests.answered(parsed.key)
    if answer is not None:
        return _completed(chunk, upload_id, _repeated_upload(answer, parsed, chunk))
    staged = ledger.import_requests.chunks(parsed.source, upload_id)
    chunk = _check_chunk(chunk, staged, has_run="runId" in fields)
    _check_upload(chunk, staged, item_max)
    ledger.import_requests.stage(parsed.source, upload_id, chunk)
    staged = ledger.import_requests.chunks(parsed.source, upload_id)
    if len(staged) < chunk.chunk_total:
        return {
            "ok": True,
            "runId": chunk.run_id,
            "uploadId": upload_id,
            "status": "staged",
            "received": len(staged),
            "total": chunk.chunk_total,
        }
    item = _unpack_item(staged, fields.get("payloadSha256"), item_max)
    response = import_sessions(
        ledger,
        {
            "source": parsed.source,
            "mode": parsed.mode,
            "personaId": parsed.persona_id,
            "idempotencyKey": parsed.key,
            "runId": chunk.run_id,
            "items": [item],
        },
    )
    ledger.import_requests.unstage(parsed.source, upload_id)
    return _completed(chunk, upload_id, response)


def _completed(chunk: UploadChunk, upload_id: str, response: dict[str, Any]) -> dict[str, Any]:
    return {
        "ok": True,
        "runId": response["runId"],
        "uploadId": upload_id,
        "status": "completed",
        "received": chunk.chunk_total,
        "total": chunk.chunk_total,
        "import": response,
    }


def _read_chunk(parsed: SessionsRequest, fields: Mapping[str, Any]) -> UploadChunk:
    index, total = _count(fields.get("chunkIndex")), _count(fields.get("chunkTotal"))
    if not 0 <= index < total:
        raise RequestRefused("chunk_index_out_of_range")
    item_fields = {}
    for name, field_name in ITEM_NAMES.items():
        value = fields.get(field_name)
        if not isinstance(value, str) or not value.strip():
            raise RequestRefused(f"{name}_required")
        item_fields[name] = value
    data = fields.get("data")
    if not isinstance(data, str) or not data:
        raise RequestRefused("chunk_upload_empty")
    return UploadChunk(
        chunk_index=index,
        chunk_total=total,
        mode=parsed.mode,
        run_id=parsed.run_id,
        idempotency_key=parsed.key,
        encoding=str(fields.get("encoding")),
        payload=data,
        persona_id=parsed.persona_id,
        **item_fields,
    )


def _count(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value < CHUNKS_MAX
    return value if is_count else -1


SHARED_FIELDS = (
    "chunk_total",
    "mode",
    "idempotency_key",
    "persona_id",
    "source_provider",
    "source_session_id",
    "source_session_fingerprint",
    "encoding",
)


def _check_chunk(
    chunk: UploadChunk, staged: tuple[UploadChunk, ...], *, has_run: bool
) -> UploadChunk:
    """The chunk, if it matches those that are staged; in their run, unless it names one."""
    for other in staged[:1]:
        for name in SHARED_FIELDS:
            if getattr(chunk, name) != getattr(other, name):
                code = name if name.startswith("chunk_") else f"chunk_{name}"
                raise RequestRefused(f"{code}_mismatch")
        if not has_run:
            chunk = msgspec.structs.replace(chunk, run_id=other.run_id)
    if chunk.encoding != ENCODING:
        raise RequestRefused(f"chunk_encoding_unsupported:{chunk.encoding}")
    return chunk


def _check_upload(chunk: UploadChunk, staged: tuple[UploadChunk, ...], item_max: int) -> None:
    rest = (other for other in staged if other.chunk_index != chunk.chunk_index)
    size = len(chunk.payload) + sum(len(other.payload) for other in rest)
    if size > item_max * 4 // 3:  # in base64
        raise RequestRefused("chunk_payload_too_large")


def _repeated_upload(
    answer: AnsweredRequest, parsed: SessionsRequest, chunk: UploadChunk
) -> dict[str, Any]:
    """The response to an upload that was completed before; its chunks are deleted."""
    response = _repeated(answer, parsed, None)
    imported = [(item["sourceProvider"], item["sourceSessionId"]) for item in response["results"]]
    if imported != [(chunk.source_provider, chunk.source_session_id)]:
        raise RequestRefused("idempotency_key_payload_mismatch")
    return response


def _unpack_item(staged: tuple[UploadChunk, ...], sha256: object, item_max: int) -> dict[str, Any]:
    if [chunk.chunk_index for chunk in staged] != list(range(staged[0].chunk_total)):
        raise RequestRefused("chunk_index_gap")
    data = _unzipped(_from_base64([chunk.payload for chunk in staged]), item_max)
    if isinstance(sha256, str) and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise RequestRefused("chunk_payload_sha256_mismatch")
    try:
        check_json(data, JSON_LIMITS)
        item = normal(decoded(data))
    except JsonTooLarge as error:
        raise RequestRefused("chunk_payload_too_large") from error
    except (ValueError, msgspec.MsgspecError, RecursionError, InvalidItem) as error:
        raise RequestRefused("chunk_payload_json_invalid") from error
    for name, field_name in ITEM_NAMES.items():
        if item.get(field_name) != getattr(staged[0], name):
            raise RequestRefused(f"chunk_item_{name}_mismatch")
    return item


def _from_base64(payloads: list[str]) -> bytes:
    """Decode chunks, whether they were encoded before they were split or after."""
    try:
        return base64.b64decode("".join(payloads), validate=True)
    except (binascii.Error, ValueError):
        try:
            return b"".join(base64.b64decode(payload, validate=True) for payload in payloads)
        except (binascii.Error, ValueError) as error:
            raise RequestRefused("chunk_payload_decode_failed") from error


def _unzipped(data: bytes, item_max: int) -> bytes:
    """The content of all gzip members; refused beyond `item_max`."""
    content, rest = b"", data
    while rest:
        member = zlib.decompressobj(wbits=31)
        try:
            content += member.decompress(rest, item_max + 1 - len(content))
        except zlib.error as error:
            raise RequestRefused("chunk_payload_decode_failed") from error
        if len(content) > item_max:
            raise RequestRefused("chunk_payload_too_large")
        if not member.eof:
            raise RequestRefused("chunk_payload_decode_failed")
        rest = member.unused_data
    return content
