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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec import Struct, field, structs

from agents_ledger.importers.pipeline import Importer
from agents_ledger.importers.sources.import_requests.merge import MergedSession
from agents_ledger.importers.sources.import_requests.records import (
    ArchivedItem,
    ImportKey,
    InvalidField,
    InvalidItem,
    builtins,
    check_item,
    decoded,
    encoded,
    in_camel,
    in_camel_case,
    names_of,
    normal,
    read_archived,
    read_item,
    shown,
    typed,
    unknown_fields,
)
from agents_ledger.importers.sources.import_requests.source import Requests
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.import_requests import AnsweredRequest, UploadChunk
from agents_ledger.model.errors import Conflict, LedgerError, Refused, RequestRefused
from agents_ledger.model.imports.requests import (
    ITEM_MAX,
    ChunkResponse,
    ImportChunk,
    ImportEnvelope,
    ImportItem,
    ImportRequest,
    ImportResponse,
    ImportResult,
    ImportStatus,
)
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.sessions import DEFAULT_PERSONA
from agents_ledger.model.text.json_limits import JsonLimits, JsonTooLarge, check_json

T = TypeVar("T")
E = TypeVar("E", bound=ImportEnvelope)
# The codes of requests by the path of the invalid value; any other is request_invalid.
CODES = {
    "$.source": "source_unsupported",
    "$.mode": "mode_unsupported",
    "$.idempotencyKey": "idempotency_key_required",
    "$.uploadId": "chunk_upload_id_required",
    "$.chunkIndex": "chunk_index_out_of_range",
    "$.chunkTotal": "chunk_index_out_of_range",
    "$.data": "chunk_upload_empty",
    "$.encoding": "chunk_encoding_unsupported:{encoding}",
    "$.sourceProvider": "source_provider_required",
    "$.sourceSessionId": "source_session_id_required",
    "$.sourceSessionFingerprint": "source_session_fingerprint_required",
}
HINTS = {  # by the prefix of a code
    "source_unsupported": "Use 1 to 64 letters, digits, `-` and `_`; first a letter or a digit.",
    "mode_unsupported": "Use `backfill` or `tail`.",
    "idempotency_key_required": "Give each request an `idempotencyKey` of its own.",
    "items_required": "Give at least one session in `items`.",
    "idempotency_key_": "Another request used this key: choose a new one.",
    "chunk_": "Correct the chunk, and send all chunks of the upload again.",
    "": "Compare the request with docs/sources/request.md.",
}
TRIES = 10
JSON_LIMITS = JsonLimits()  # of an uncompressed item
READER = Requests()


def _refused(code: str, problem: str = "") -> RequestRefused:
    hint = next(HINTS[start] for start in HINTS if code.startswith(start))
    return RequestRefused(code, f"{problem}. {hint}" if problem else hint)


def _normal_or_raw(item: Any) -> Any:
    try:
        return normal(item)
    except InvalidItem:
        return item  # it will fail


def _item_hash(item: Any) -> str:
    if isinstance(item, dict):
        item = {name: value for name, value in item.items() if name != "importedAtMs"}
    try:
        text = json.dumps(item, sort_keys=True, separators=(",", ":"), default=str)
    except (RecursionError, TypeError, ValueError):
        text = "unreadable"  # the item will fail
    return hashlib.sha256(text.encode()).hexdigest()


def import_sessions(ledger: Ledger, request: ImportRequest | Mapping[str, Any]) -> ImportResponse:
    """Import the items of a request; the result of each."""
    fields = _fields(request, ImportRequest)
    envelope = _complete(_typed(fields, ImportEnvelope))
    items = fields.get("items")
    if not isinstance(items, list) or not items:
        raise _refused("items_required", f"$.items is {shown(items)}")
    return _import_items(ledger, envelope, items)


def _complete(envelope: E) -> E:
    """With defaults that depend on no other request."""
    persona_id = envelope.persona_id or DEFAULT_PERSONA
    return structs.replace(envelope, persona_id=persona_id, run_id=envelope.run_id or str(uuid4()))


def _import_items(ledger: Ledger, envelope: ImportEnvelope, items: list[Any]) -> ImportResponse:
    items = [_normal_or_raw(item) for item in items]
    # Everything that makes it a different request; the time and the run do not.
    parts = [envelope.source, envelope.mode, envelope.persona_id, *map(_item_hash, items)]
    request_hash = hashlib.sha256(encoded(parts)).hexdigest()
    key, run_id = envelope.idempotency_key, str(envelope.run_id)
    answer = ledger.import_requests.answered(key)
    if answer is not None:
        return _repeated(answer, envelope, request_hash)
    results = RequestRun(ledger, envelope, items).results()
    count = Counter(result.status for result in results)
    response = ImportResponse(
        ok=not count["failed"],
        run_id=run_id,
        imported=count["imported"],
        upserted=count["upserted"],
        skipped=count["skipped"],
        failed=count["failed"],
        results=results,
    )
    body = encoded(response).decode()
    answer = AnsweredRequest(envelope.source, envelope.mode, request_hash, body)
    written = [
        (result.source_provider, result.source_session_id)
        for result in results
        if result.status in ("imported", "upserted")
    ]
    stored = ledger.import_requests.answer(key, answer, run_id, written)
    return _repeated(stored, envelope, request_hash)


def import_request(ledger: Ledger, request: Mapping[str, Any]) -> dict[str, Any]:
    """Import a JSON request of either kind, items or a chunk of one; the response as JSON."""
    is_chunk = "uploadId" in _fields(request, ImportChunk)
    response = (import_chunk if is_chunk else import_sessions)(ledger, request)
    answer: dict[str, Any] = builtins(response)
    return answer


def persona_of(request: Mapping[str, Any]) -> str:
    """The persona that a request imports its sessions for."""
    persona = _fields(request, ImportEnvelope).get("personaId")
    return persona if isinstance(persona, str) and persona else DEFAULT_PERSONA


def _fields(request: object, kind: type[Struct]) -> dict[str, Any]:
    """The fields of a request, their names in camelCase."""
    fields = builtins(request)
    if not isinstance(fields, Mapping):
        raise _refused("request_invalid", f"$ is {shown(request)}: expected an object")
    return in_camel(fields, names_of(kind))


def _typed(fields: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return typed(fields, kind)
    except InvalidField as error:
        code = CODES.get(error.path, "request_invalid").format_map(fields)
        raise _refused(code, str(error)) from error


def _repeated(
    answer: AnsweredRequest, request: ImportEnvelope, request_hash: str | None
) -> ImportResponse:
    """The response to an earlier request of the same key, if it is the same request."""
    if answer.source != request.source:
        raise _refused("idempotency_key_source_mismatch")
    if answer.mode != request.mode:
        raise _refused("idempotency_key_mode_mismatch")
    if request_hash is not None and answer.request_hash != request_hash:
        raise _refused("idempotency_key_payload_mismatch")
    return typed(decoded(answer.response_json.encode()), ImportResponse)


# -- items ------------------------------------------------------------------------------------


class _ImportNote(Struct):
    """Archived with an item: the key of its request, and its outcome."""

    key: str
    outcome: ImportStatus


_decode_note = msgspec.json.Decoder(_ImportNote).decode


class AcceptedItem(Struct):
    key: ImportKey
    label: str
    result: ImportResult
    index: int  # in the request
    relatives: set[ImportKey] = field(default_factory=set)


class RequestRun:
    """Imports the items of one request."""

    def __init__(self, ledger: Ledger, request: ImportEnvelope, items: list[Any]) -> None:
        self.requests = ledger.import_requests
        self.request = request
        self.items = items
        self.importer = Importer(ledger)
        self.fingerprints: dict[ImportKey, str] = {}  # of the accepted items
        self.accepted: list[AcceptedItem] = []
        self.item_results: list[ImportResult] = []

    def results(self) -> list[ImportResult]:
        for index, item in enumerate(self.items):
            self.item_results.append(self._accept_or_fail(index, item))
        for group in _groups(self.accepted):
            self._derive(group)
        return self.item_results

    def _accept_or_fail(self, index: int, item: Any) -> ImportResult:
        at = f"$.items[{index}]"
        try:
            return self._accept(index, normal(item))
        except InvalidItem as error:
            return _failed(item, error.code, error.detail(at))
        except RecursionError:
            return _failed(item, "payload_invalid", f"{at} has too many levels")

    def _accept(self, index: int, fields: dict[str, Any]) -> ImportResult:
        item = read_item(fields)
        check_item(item)
        key = ImportKey(self.request.source, item.source_provider, item.source_session_id)
        imported = self.requests.imported(*key)
        current = self.fingerprints.get(key) or (imported.fingerprint if imported else None)
        label = imported.label if imported else None
        if current == item.source_session_fingerprint:
            return self._unchanged(key, label)
        earlier = list(self._archived(key))
        label = label or (earlier[0][0].label if earlier else self._label(key, item))
        # A session stays with the persona it was first imported for.
        persona = earlier[0][0].persona_id if earlier else str(self.request.persona_id)
        _check_mergeable([previous for _, previous in earlier], item)
        outcome: ImportStatus = "imported" if current is None else "upserted"
        archived = ArchivedItem(self.request.source, persona, label, fields)
        outcome = self._store(key, archived, outcome)
        self.fingerprints[key] = item.source_session_fingerprint
        result = _result(key, outcome, label)
        result.ignored = unknown_fields(fields) or None
        self.accepted.append(AcceptedItem(key, label, result, index, _relatives(key, item)))
        return result

    def _unchanged(self, key: ImportKey, label: str | None) -> ImportResult:
        note = _note(self.importer.sources.file(key.path()))
        if (
            note is not None
            and note.key == self.request.idempotency_key
            and key not in self.fingerprints
        ):
            # This very request archived it and was interrupted before it was answered.
            return _result(key, note.outcome, label)
        label = label or next(item.label for item in self.accepted if item.key == key)
        return _result(key, "skipped", label, "fingerprint_unchanged")

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
        is_free = self.requests.adoptable(hint, str(self.request.persona_id), own)
        return hint if is_free else own

    def _store(self, key: ImportKey, item: ArchivedItem, outcome: ImportStatus) -> ImportStatus:
        """Archive an item; its outcome, that of the first time if it was archived before."""
        encoded_item = encoded(item)
        if len(encoded_item) > ITEM_MAX:
            problem = f"has {len(encoded_item):,} bytes; at most {ITEM_MAX:,} are allowed"
            raise InvalidItem("item_too_large", problem=problem)
        sources = self.importer.sources
        path = key.path()
        cursor = encoded(_ImportNote(self.request.idempotency_key, outcome)).decode()
        for attempt in range(TRIES):
            latest = sources.file(path)
            file = self._begin(path, latest)
            data, overwritten = sources.cleaned(file, encoded_item)
            if latest is not None and b"".join(sources.stream(latest.id)) == data:
                note = _note(latest)
                return note.outcome if note is not None else outcome
            try:
                sources.append(
                    file,
                    data,
                    size=len(data),
                    mtime_ns=0,
                    cursor=cursor,
                    overwritten=overwritten,
                    base=latest,
                )
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
            result = item.result
            if failed is not None:
                result = _failed(self.items[item.index], "import_failed", failed)
            self.item_results[item.index] = result
        return failed is None


def _result(
    key: ImportKey, status: ImportStatus, label: str | None, reason: str | None = None
) -> ImportResult:
    return ImportResult(
        source_provider=key.provider,
        source_session_id=key.session_id,
        status=status,
        session_label=label,
        reason=reason,
    )


def _failed(item: Any, code: str, detail: str) -> ImportResult:
    fields = item if isinstance(item, dict) else {}
    names = (fields.get(name) for name in ("sourceProvider", "sourceSessionId"))
    provider, session_id = (name if isinstance(name, str) else "" for name in names)
    return ImportResult(
        source_provider=provider,
        source_session_id=session_id,
        status="failed",
        reason=code,
        detail=detail,
    )


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
    merged.check_parents(item)


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
    ledger: Ledger, request: ImportChunk | Mapping[str, Any], *, item_max: int = ITEM_MAX
) -> ChunkResponse:
    """Stage a chunk of an item; the last one imports it. Items have at most `item_max` bytes."""
    upload = _typed(_fields(request, ImportChunk), ImportChunk)
    if upload.chunk_index >= upload.chunk_total:
        problem = f"$.chunkIndex is {upload.chunk_index}, but $.chunkTotal is {upload.chunk_total}"
        raise _refused("chunk_index_out_of_range", problem)
    sent, requests = _complete(upload), ledger.import_requests
    answer = requests.answered(sent.idempotency_key)
    if answer is not None:
        return _received(sent, sent.chunk_total, _repeated_upload(answer, sent))
    staged = requests.chunks(sent.source, sent.upload_id)
    if staged and not upload.run_id:
        sent = structs.replace(sent, run_id=staged[0].run_id)
    columns = {
        name: getattr(sent, name) for name in UploadChunk.__struct_fields__ if name != "payload"
    }
    chunk = UploadChunk(payload=sent.data, **columns)
    _check_chunk(chunk, staged, item_max)
    requests.stage(sent.source, sent.upload_id, chunk)
    staged = requests.chunks(sent.source, sent.upload_id)
    if len(staged) < sent.chunk_total:
        return _received(sent, len(staged))
    item = _unpack_item(staged, sent.payload_sha256, item_max)
    response = _import_items(ledger, sent, [item])
    requests.unstage(sent.source, sent.upload_id)
    return _received(sent, sent.chunk_total, response)


def _received(
    sent: ImportChunk, received: int, response: ImportResponse | None = None
) -> ChunkResponse:
    return ChunkResponse(
        ok=response is None or response.ok,
        run_id=response.run_id if response is not None else str(sent.run_id),
        upload_id=sent.upload_id,
        status="staged" if response is None else "completed",
        received=received,
        total=sent.chunk_total,
        response=response,
    )


ITEM_FIELDS = ("source_provider", "source_session_id", "source_session_fingerprint")
SHARED_FIELDS = ("chunk_total", "mode", "idempotency_key", "persona_id", *ITEM_FIELDS)


def _check_chunk(chunk: UploadChunk, staged: tuple[UploadChunk, ...], item_max: int) -> None:
    """Refuse a chunk that does not match those that are staged, or exceeds `item_max` with them."""
    for other in staged[:1]:
        for name in SHARED_FIELDS:
            if getattr(chunk, name) != getattr(other, name):
                code = name if name.startswith("chunk_") else f"chunk_{name}"
                values = (shown(getattr(other_chunk, name)) for other_chunk in (chunk, other))
                raise _refused(f"{code}_mismatch", " is not the same as ".join(values))
    rest = (other for other in staged if other.chunk_index != chunk.chunk_index)
    size = len(chunk.payload) + sum(len(other.payload) for other in rest)
    if size > item_max * 4 // 3:  # in base64
        raise _refused("chunk_payload_too_large")


def _repeated_upload(answer: AnsweredRequest, sent: ImportChunk) -> ImportResponse:
    """The response to an upload that was completed before; its chunks are deleted."""
    response = _repeated(answer, sent, None)
    imported = [(item.source_provider, item.source_session_id) for item in response.results]
    if imported != [(sent.source_provider, sent.source_session_id)]:
        raise _refused("idempotency_key_payload_mismatch")
    return response


def _unpack_item(
    staged: tuple[UploadChunk, ...], sha256: str | None, item_max: int
) -> dict[str, Any]:
    if [chunk.chunk_index for chunk in staged] != list(range(staged[0].chunk_total)):
        raise _refused("chunk_index_gap")
    data = _unzipped(_from_base64([chunk.payload for chunk in staged]), item_max)
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise _refused("chunk_payload_sha256_mismatch")
    try:
        check_json(data, JSON_LIMITS)
        item = normal(decoded(data))
    except JsonTooLarge as error:
        raise _refused("chunk_payload_too_large") from error
    except (ValueError, msgspec.MsgspecError, RecursionError, InvalidItem) as error:
        raise _refused("chunk_payload_json_invalid") from error
    for name in ITEM_FIELDS:
        if item.get(in_camel_case(name)) != getattr(staged[0], name):
            raise _refused(f"chunk_item_{name}_mismatch")
    return item


def _from_base64(payloads: list[str]) -> bytes:
    """Decode chunks, whether they were encoded before they were split or after."""
    try:
        return base64.b64decode("".join(payloads), validate=True)
    except (binascii.Error, ValueError):
        try:
            return b"".join(base64.b64decode(payload, validate=True) for payload in payloads)
        except (binascii.Error, ValueError) as error:
            raise _refused("chunk_payload_decode_failed") from error


def _unzipped(data: bytes, item_max: int) -> bytes:
    """The content of all gzip members; refused beyond `item_max`."""
    content, rest = b"", data
    while rest:
        member = zlib.decompressobj(wbits=31)
        try:
            content += member.decompress(rest, item_max + 1 - len(content))
        except zlib.error as error:
            raise _refused("chunk_payload_decode_failed") from error
        if len(content) > item_max:
            raise _refused("chunk_payload_too_large")
        if not member.eof:
            raise _refused("chunk_payload_decode_failed")
        rest = member.unused_data
    return content
