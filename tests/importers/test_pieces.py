"""Pieces of documents: known by where they stand, also where a document had to be mended."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_ledger.importers.parsing.encodings import is_text, texts
from agents_ledger.importers.parsing.json_spans import Pieces, objects
from agents_ledger.importers.parsing.lenient_json import BROKEN, decode_with_repairs, repair_json
from agents_ledger.importers.port.limits import ImportLimits
from agents_ledger.importers.port.material import Material, RecordSpan
from agents_ledger.model.imports.sources import SourceFile
from tests.importers.test_memory import Given

OFFSET = 5
_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_texts = msgspec.json.Decoder(list[str]).decode


class Searched(bytes):
    """Bytes that count how many of them were looked through."""

    total = 0

    def find(self, wanted: bytes, start: int = 0, end: int = sys.maxsize) -> int:  # type: ignore[override]
        at = super().find(wanted, start, end)
        self.total += (at + len(wanted) if at >= 0 else min(end, len(self))) - start
        return at


def material_of(data: bytes) -> tuple[Material, SourceFile]:
    kept = b"." * OFFSET + data
    file = SourceFile(1, "s", "/s/a.json", 0, "f", "document", len(kept), 0, len(kept))
    return Material(Given(kept), [file], limits=ImportLimits(held_bytes=0)), file


def test_of_a_document_that_is_no_utf_8_all_pieces_are_held_as_they_were_mended() -> None:
    messages = [b'{"id":%d,"said":"\xff"}' % number for number in range(200)]
    data = Searched(b"[NaN," + b",".join(messages) + b"]")
    pieces = Pieces(*material_of(data), OFFSET, data)

    found = [pieces.held(bytes(raw)) for raw in pieces.read(_raws)]

    assert data.total == 0
    assert [msgspec.json.decode(each) for each in found if isinstance(each, bytes)] == [
        None,
        *({"id": number, "said": "\ufffd"} for number in range(200)),
    ]


def test_pieces_in_any_order_are_looked_for_in_one_pass() -> None:
    messages = [b'{"id":%d}' % number for number in range(200)]
    data = Searched(b",".join(messages))
    material, file = material_of(data)
    pieces = Pieces(material, file, OFFSET, data)
    told = [*messages[:100], *reversed(messages[100:])]

    found = [pieces.held(each) for each in told]

    assert [material.bytes_of(each) for each in found] == told
    assert data.total <= len(data)


def test_half_a_letter_leaves_all_but_its_own_piece_where_they_stand() -> None:
    messages = [rb'{"said":"cut \ud83d"}', rb'{"said": "\ud83d\ude00"}', rb'{"said":"\\ud83d"}']
    data = b"[" + b" , ".join(messages) + b"]"
    material, file = material_of(data)
    pieces = Pieces(material, file, OFFSET, data)

    mended, *others = [pieces.held(bytes(raw)) for raw in pieces.read(_raws)]

    assert mended == rb'{"said":"cut \ufffd"}'
    assert [type(each) for each in others] == [RecordSpan, RecordSpan]
    assert [material.bytes_of(each) for each in others] == messages[1:]


@given(st.lists(st.text(st.sampled_from('\ud83d\ude00\udfff\\u"d83/😀a'))))
def test_halves_of_letters_are_replaced_as_in_a_document_written_anew(words: list[str]) -> None:
    data = json.dumps(words).encode()

    found, mended, added = decode_with_repairs(_texts, data)

    assert found == _texts(repair_json(data) or b"")
    assert added == ()
    assert len(mended) == len(data)


def test_numbers_that_are_none_leave_all_pieces_where_they_stand() -> None:
    messages = [
        b'{"cost":NaN}',
        b'{"cost": [NaN,-Infinity, 1e999 ]}',
        rb'{"said":"\"NaN","cost":12e3}',
        rb'{"said":"\ud83d","cost":NaN}',
        b'{"cost":Infinity}',
    ]
    data = b"[NaN," + b",".join(messages) + b"]"
    material, file = material_of(data)
    pieces = Pieces(material, file, OFFSET, data)

    first, *found = [pieces.held(bytes(raw)) for raw in pieces.read(_raws)]

    assert material.bytes_of(first) == b"NaN"
    assert [type(each) for each in found] == [RecordSpan, RecordSpan, RecordSpan, bytes, RecordSpan]
    del messages[3], found[3]
    assert [material.bytes_of(each) for each in found] == messages


class Odd(NamedTuple):
    """Bytes that stand in a document as they are."""

    data: bytes


def written(value: Any) -> bytes:
    """JSON, and what is odd in it."""
    if isinstance(value, Odd):
        return value.data
    if isinstance(value, list):
        return b"[" + b",".join(map(written, value)) + b"]"
    if isinstance(value, dict):
        return b"{" + b",".join(written(k) + b":" + written(v) for k, v in value.items()) + b"}"
    return json.dumps(value).encode()


ODD = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1.5E+400", b"9" * 400, b"-NaN", b"1.e999")
ODD_TEXTS = (rb'"\ud83d"', b'"\xed\xa0\xbd"', b'"\xff\xe9"', rb'"\"NaN"', rb'"\\"', b' "" ')
LEAVES = st.one_of(
    st.sampled_from([*map(Odd, ODD + ODD_TEXTS)]), st.floats(allow_nan=False), st.text(max_size=3)
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda some: (
        st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=2), some, max_size=3)
    ),
    max_leaves=8,
)


@given(DOCUMENTS, st.sampled_from([b"", b"\xef\xbb\xbf"]), st.integers(0, 3))
def test_a_mended_document_says_what_it_would_say_written_anew(
    document: Any, mark: bytes, cut: int
) -> None:
    data = written([Odd(b"NaN"), document])
    data = mark + data[: max(0, len(data) - max(0, cut - 2))]
    anew = repair_json(data)
    if anew is None:
        with pytest.raises(BROKEN):
            decode_with_repairs(msgspec.json.decode, data)
    else:
        assert decode_with_repairs(msgspec.json.decode, data).value == msgspec.json.decode(anew)


def test_texts_are_not_split_within_a_character() -> None:
    for data in (
        "aé語😀\ud83d".encode(errors="surrogatepass"),
        b"\xf0\x9f\x98\xed\xa0\x80\x80\x80",
    ):
        for start in range(4):
            given = b"." * start + data
            errors = "surrogatepass" if is_text(given) else "replace"
            assert "".join(texts(given, errors, 2)) == given.decode(errors=errors)


def walked(data: bytes) -> list[tuple[int, int]]:
    """Where the objects of a document stand, byte by byte."""
    found, opened = [], []
    top, is_string, is_escaped = -1, False, False
    for at, byte in enumerate(data):
        sign = bytes([byte])
        if is_string:
            is_string = is_escaped or sign != b'"'
            is_escaped = not is_escaped and sign == b"\\"
        elif sign == b'"':
            is_string = True
        elif sign in b"{[":
            top = (sign == b"[") if top < 0 else top
            opened.append((at, sign))
        elif sign in b"}]" and opened:
            start, opener = opened.pop()
            if len(opened) == top and opener == b"{":
                found.append((start, at + 1))
    return found


TEXTS = st.text(st.sampled_from('"\\{}[],:é a'), max_size=6)
NESTED = st.recursive(
    TEXTS | st.none() | st.integers(),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXTS, some, max_size=3),
    max_leaves=6,
)


@given(st.lists(NESTED, max_size=4) | st.dictionaries(TEXTS, NESTED), st.data(), st.booleans())
def test_objects_are_found_whatever_the_blocks(value: Any, draw: Any, ascii: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii).encode()
    data = data[: draw.draw(st.integers(0, len(data)))] if draw.draw(st.booleans()) else data
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    blocks = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    assert list(objects(blocks)) == walked(data)


def test_a_string_of_many_blocks_is_looked_at_once_and_escapes_take_no_memory() -> None:
    block = rb"said\n" * 20_000
    blocks = [b'[{"a":"', *[block] * 50, b'"}]']
    size = sum(map(len, blocks))
    tracemalloc.start()
    try:
        assert list(objects(blocks)) == [(1, size - 1)]
        assert tracemalloc.get_traced_memory()[1] < 4 * len(block)
    finally:
        tracemalloc.stop()
