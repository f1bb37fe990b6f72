"""Checks the files, lints and codeblocks that a caller passes with a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from agents_ledger.model.errors import Refused
from agents_ledger.model.turns import (
    FileKind,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    Severity,
    check_text,
)

# In characters. PostgreSQL can index up to 2,700 bytes.
PATH_MAX = 600
_KINDS = get_args(FileKind)
_SEVERITIES = get_args(Severity)


def check(message: Message) -> None:
    """Refuse what no ledger can hold."""
    _check_types("files", message.files, MessageFile)
    _check_types("lints", message.lints, MessageLint)
    _check_types("codeblocks", message.codeblocks, MessageCodeblock)
    for file in message.files:
        _check_file(file)
    for lint in message.lints:
        if lint.severity is not None and lint.severity not in _SEVERITIES:
            raise Refused(
                f"a lint's severity is {lint.severity!r:.80}", f"Use {' or '.join(_SEVERITIES)}."
            )


def _check_types(name: str, values: Any, kind: type) -> None:
    if not isinstance(values, Iterable) or not all(isinstance(value, kind) for value in values):
        raise Refused(f"{name} is {values!r:.80}", f"It is a tuple of {kind.__name__}.")


def _check_file(file: MessageFile) -> None:
    if file.kind not in _KINDS:
        raise Refused(f"a file's kind is {file.kind!r:.80}", f"Use {' or '.join(_KINDS)}.")
    check_text(file.file_path, "file_path")
    if len(file.file_path) > PATH_MAX:
        raise Refused(
            f"file_path is {file.file_path[:40]!r}... with {len(file.file_path):,} characters,"
            f" which may be {PATH_MAX}",
            "Put the data of an image into `metadata_json`, as in"
            ' {"blocks": [{"type": "image", "mimeType": "image/png", "data": "..."}]}.',
        )
