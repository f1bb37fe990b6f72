"""Large JSON documents, an object at a time: an export may be larger than the memory we take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agents_ledger.importers.reader import RECORD_MAX, Line, Material
from agents_ledger.model.sources import Fault, SourceFile

TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
STRING_MAX = 2 * RECORD_MAX


def objects(blocks: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Where each object of a top-level array begins and ends; or the one object that is all."""
    depth, start, level = 0, -1, -1  # level: of the array the objects stand in
    rest, base = b"", 0  # what could not be told yet, and where it stands
    for block in blocks:
        data = rest + block
        rest = b""
        for token in TOKEN.finditer(data):
            sign = token[0]
            if sign in b"{[":
                if level < 0:
                    level = 1 if sign == b"[" else 0
                if depth == level and sign == b"{":
                    start = base + token.start()
                depth += 1
            elif sign in b"}]":
                depth -= 1
                if depth == level and start >= 0:
                    yield start, base + token.end()
                    start = -1
            elif sign == b'"':  # a string that ends in a later block
                rest = data[token.start() :]
                break
        if len(rest) > STRING_MAX:
            return
        base += len(data) - len(rest)


def objects_of(material: Material, file: SourceFile) -> Iterator[tuple[Line, bytes]]:
    """The objects of a file that can be read, each with where it stands; faults for the others."""
    ended = 0
    for number, (start, end) in enumerate(objects(material.blocks(file)), 1):
        ended = end
        where = Line(file, start, end - start, number, None)
        if end - start > RECORD_MAX:
            material.fault(where, f"an object of {end - start:,} bytes is kept, but not read")
            material.count("(overlong)", "malformed")
        else:
            yield where, material.bytes_of(where)
    tail = file.kept_bytes - ended
    if tail > 0 and material.bytes_of(Line(file, ended, min(tail, 64), 0, None)).strip(b" \r\n]"):
        material.faults.append(Fault(file.path, "the document is cut off", ended))
        material.count("(malformed)", "malformed")
