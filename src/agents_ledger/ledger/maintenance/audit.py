"""The audit: evaluates every rule of the ledger.

Most rules are statements of sql/queries/audit.sql that select violations. Those that SQL cannot
express are functions below.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial

from agents_ledger.ledger.turns.recording import hash_prompt
from agents_ledger.model.errors import LedgerError, Locked, Unreachable
from agents_ledger.model.sessions import CheckMode, Finding
from agents_ledger.store import migrations, queries
from agents_ledger.store.checks import definitions, integrity, row_types
from agents_ledger.store.database import Engine, Transaction

Check = Callable[[Transaction, Engine], Iterable[tuple[object, object]]]

PREFIX = "audit_"
UNCHECKED = "rule_unchecked"
# The errors that a missing or malformed row causes in Python.
NONSENSE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def rules() -> tuple[str, ...]:
    stated = (name.removeprefix(PREFIX) for name in queries.names() if name.startswith(PREFIX))
    return (*stated, *_OTHERS)


def meanings() -> dict[str, str]:
    """A sentence for each rule, by its name."""
    meaning_of = {
        name.removeprefix(PREFIX): remark
        for name, remark in queries.remarks("queries/audit.sql").items()
        if name.startswith(PREFIX)
    }
    return meaning_of | {name: check.__doc__ or "" for name, check in _OTHERS.items()}


def audit(
    tx: Transaction, engine: Engine, *, quick: bool = False, rules: Container[str] | None = None
) -> tuple[Finding, ...]:
    """All violations of the rules, or of some `rules`. `quick` selects the database engine's cheap
    check. A rule that cannot be evaluated, as on a bad page, is a finding itself."""
    checks: dict[str, Check] = {
        # First, because readers are shown the first finding as the cause of an error, and a damaged
        # page explains the others.
        "engine_check": partial(_engine_check, mode="quick" if quick else "full"),
        **{
            name.removeprefix(PREFIX): partial(_stated, name=name)
            for name in queries.names()
            if name.startswith(PREFIX)
        },
        **{rule: check for rule, check in _OTHERS.items() if rule != "engine_check"},
    }
    findings: list[Finding] = []
    for rule, check in checks.items():
        if rules is None or rule in rules:
            findings += _evaluate(tx, engine, rule, check)
    return tuple(findings)


def _evaluate(tx: Transaction, engine: Engine, rule: str, check: Check) -> list[Finding]:
    """The findings of one rule, and an error if it could not be evaluated completely."""
    findings: list[Finding] = []

    def evaluate() -> None:
        for violation, detail in check(tx, engine):
            findings.append(Finding(rule, str(violation), "" if detail is None else str(detail)))

    try:
        # On a server an error would end the transaction, and no further rule could be evaluated.
        tx.attempt(evaluate)
    except (Locked, Unreachable):
        raise
    except (LedgerError, *NONSENSE) as error:
        reason = str(error) if isinstance(error, LedgerError) else repr(error)
        findings.append(Finding(UNCHECKED, rule, reason))
    return findings


def _stated(tx: Transaction, engine: Engine, name: str) -> Iterable[tuple[object, object]]:
    return ((row[0], row[1]) for row in tx.run(name))


def _engine_check(
    tx: Transaction, engine: Engine, mode: CheckMode = "full"
) -> Iterator[tuple[str, str]]:
    """The database engine finds its pages, rows and indexes in order."""
    yield from integrity.problems(tx, mode)


def _rule_unchecked(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """Every rule can be evaluated."""
    yield from ()


def _prompt_changed(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """Every system prompt is stored under its own hash, unless something was removed from it."""
    for stored, content in tx.run("system_prompts"):
        if hash_prompt(content) != stored:
            yield stored, "content differs"


def _guard_missing(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """Every view and guard exists."""
    if migrations.is_newest(tx):
        for kind, name in sorted(migrations.expected(engine) - migrations.made(tx, engine)):
            yield name, kind


def _guard_changed(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """The views and guards are as this program makes them, and none is disabled."""
    if migrations.is_newest(tx):
        yield from definitions.changed(tx, engine)


def _reference_dangling(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """No row refers to one that is not there. A server sees to that itself."""
    if engine == "sqlite":
        for table, row_id, target, _ in tx.execute("PRAGMA foreign_key_check"):
            yield f"{table}:{row_id}", f"refers to {target}"


def _value_wrong(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """Every value has its column's type, and every text is UTF-8. A server sees to that itself."""
    if engine == "sqlite":
        yield from row_types.wrong_values(tx)


def _words_wrong(tx: Transaction, engine: Engine) -> Iterator[tuple[str, str]]:
    """A turn in the word index is found by its words."""
    from agents_ledger.ledger.search import index_check

    for turn_id in index_check.wrong(tx):
        yield turn_id, "other words"


# Their docstrings are the meanings that people read.
_OTHERS: dict[str, Check] = {
    "engine_check": _engine_check,
    UNCHECKED: _rule_unchecked,
    "prompt_changed": _prompt_changed,
    "guard_missing": _guard_missing,
    "guard_changed": _guard_changed,
    "value_wrong": _value_wrong,
    "reference_dangling": _reference_dangling,
    "words_wrong": _words_wrong,
}
