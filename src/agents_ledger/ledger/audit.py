"""Every rule of the ledger, asked of all it holds.

Most rules are a statement of sql/queries/audit.sql that selects what breaks them. Those that SQL
cannot tell stand below.
"""

from __future__ import annotations

from collections.abc import Iterator

from agents_ledger.ledger.recording import hash_prompt
from agents_ledger.model.sessions import Finding
from agents_ledger.store import migrations, queries
from agents_ledger.store.database import Engine, Transaction

PREFIX = "audit_"


def rules() -> tuple[str, ...]:
    """The names of all rules."""
    stated = (name.removeprefix(PREFIX) for name in queries.names() if name.startswith(PREFIX))
    return (*stated, *_OTHERS)


def meanings() -> dict[str, str]:
    """What each rule says, by its name."""
    said = {
        name.removeprefix(PREFIX): remark
        for name, remark in queries.remarks("queries/audit.sql").items()
        if name.startswith(PREFIX)
    }
    return said | {name: check.__doc__ or "" for name, check in _OTHERS.items()}


def audit(tx: Transaction, engine: Engine) -> tuple[Finding, ...]:
    """Everything that breaks a rule; nothing, if the ledger is sound."""
    findings = [
        Finding(name.removeprefix(PREFIX), str(found), "" if detail is None else str(detail))
        for name in queries.names()
        if name.startswith(PREFIX)
        for found, detail in tx.run(name)
    ]
    for rule, check in _OTHERS.items():
        findings += (Finding(rule, found, detail) for found, detail in check(tx, engine))
    return tuple(findings)


def _prompt_changed(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """A system prompt is stored under its own hash."""
    for stored, content in tx.run("system_prompts"):
        if hash_prompt(content) != stored:
            yield stored, "content differs"


def _guard_missing(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """The views and guards are all there."""
    for kind, name in sorted(migrations.expected(engine) - migrations.made(tx, engine)):
        yield name, kind


def _reference_dangling(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """No row refers to one that is not there. A server sees to that itself."""
    if engine == "sqlite":
        for table, row_id, target, _ in tx.execute("PRAGMA foreign_key_check"):
            yield f"{table}:{row_id}", f"refers to {target}"


def _words_wrong(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """A turn in the word index is found by its words."""
    from agents_ledger.ledger import index_check

    for turn_id in index_check.wrong(tx):
        yield turn_id, "other words"


_OTHERS = {
    "prompt_changed": _prompt_changed,
    "guard_missing": _guard_missing,
    "reference_dangling": _reference_dangling,
    "words_wrong": _words_wrong,
}
