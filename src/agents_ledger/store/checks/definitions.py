"""Compares the views, triggers and functions of a ledger with what this program makes.

SQLite keeps the text of each. A server keeps functions as text; a trigger it prints in a form of
its own, which differs from ours in letter case, spaces and parentheses; a view it keeps as a tree.
So a view is compared by its plan: that of the view, and that of our text in its place. All of it
only reads, and nothing that is stored in the database counts as the truth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agents_ledger.store import migrations
from agents_ledger.store.database import Engine, Transaction

Change = tuple[str, str]  # the name, and what is wrong with it

# Compared before a view counts as changed: a busy table may get another plan meanwhile.
PLANS = 5
_HEAD = re.compile(r"CREATE (VIEW|TRIGGER|FUNCTION) (\w+)")
_FUNCTION = re.compile(
    r"LANGUAGE (?P<language>\w+)(?: (?P<volatility>\w+))? AS \$\$(?P<body>.*)\$\$", re.DOTALL
)
_VOLATILITY = {"IMMUTABLE": "i", "STABLE": "s", None: "v"}
_NUMBERED = re.compile(r"\b([a-z_]+)_\d+\b")
_SCANNED = re.compile(r"((?: on (?:\w+\.)?|^ *CTE ))([a-z_]+)(?: (\w+))?$")
_SPACE = re.compile(r"\s+")
_UNPRINTED = re.compile(r"""[\s();"]|::text""")

_SERVER_FUNCTIONS = """
    SELECT p.proname, l.lanname, CAST(p.provolatile AS TEXT), p.prosrc,
        p.prosecdef OR p.proconfig IS NOT NULL
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE p.pronamespace = CAST(quote_ident(current_schema()) AS regnamespace)
"""
_SERVER_TRIGGERS = """
    SELECT t.tgname, pg_get_triggerdef(t.oid, TRUE), CAST(t.tgenabled AS TEXT)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = CAST(quote_ident(current_schema()) AS regnamespace)
    AND NOT t.tgisinternal
"""


def changed(tx: Transaction, engine: Engine) -> Iterator[Change]:
    """Names of views, triggers and functions that are not as this program makes them, and of
    triggers that it does not make. What is missing is another rule's."""
    ours = _statements(engine)
    if engine == "sqlite":
        yield from _sqlite(tx, ours)
        return
    yield from _functions(tx, ours)
    yield from _triggers(tx, ours)
    yield from _views(tx, ours)


def _statements(engine: Engine) -> dict[tuple[str, str], str]:
    named = {}
    for statement in migrations.made_by(engine):
        head = _HEAD.match(statement)
        if head:
            named[head[1].lower(), head[2]] = statement
    return named


def _sqlite(tx: Transaction, ours: dict[tuple[str, str], str]) -> Iterator[Change]:
    rows = tx.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('view', 'trigger')")
    for kind, name, sql in sorted(rows):
        wanted = ours.get((kind, name))
        if wanted is None:
            if kind == "trigger":
                yield name, "a trigger that this program does not make"
        elif _SPACE.sub(" ", sql) != _SPACE.sub(" ", wanted.rstrip(";")):
            yield name, f"the {kind} has another text"


def _functions(tx: Transaction, ours: dict[tuple[str, str], str]) -> Iterator[Change]:
    for name, language, volatility, body, altered in sorted(tx.execute(_SERVER_FUNCTIONS)):
        text = _FUNCTION.search(ours.get(("function", name), ""))
        if text is None:
            continue
        wanted = (text["language"], _VOLATILITY[text["volatility"]], text["body"], False)
        if (language, volatility, body, altered) != wanted:
            yield name, "the function has another text"


def _triggers(tx: Transaction, ours: dict[tuple[str, str], str]) -> Iterator[Change]:
    for name, printed, enabled in sorted(tx.execute(_SERVER_TRIGGERS)):
        wanted = ours.get(("trigger", name))
        if wanted is None:
            yield name, "a trigger that this program does not make"
        elif _bare(printed) != _bare(wanted):
            yield name, "the trigger has another text"
        elif enabled not in ("O", "A"):
            yield name, "the trigger is disabled"


def _bare(statement: str) -> str:
    return _UNPRINTED.sub("", statement.lower())


def _views(tx: Transaction, ours: dict[tuple[str, str], str]) -> Iterator[Change]:
    present = {name for kind, name in migrations.made(tx, "postgresql") if kind == "view"}
    for (kind, name), statement in ours.items():
        if kind == "view" and name in present:
            text = statement.partition(" AS\n")[2].rstrip(";")
            ours_in_place = f"({text}) AS {name}"
            if not any(_same(_plan(tx, name), _plan(tx, ours_in_place)) for _ in range(PLANS)):
                yield name, "the view has another text"


def _plan(tx: Transaction, source: str) -> str:
    rows = tx.execute(f"EXPLAIN (VERBOSE, COSTS OFF) SELECT * FROM {source}")
    return "\n".join(_SCANNED.sub(_with_alias, line) for (line,) in rows)


def _with_alias(scanned: re.Match[str]) -> str:
    """A relation in capitals, and its alias, which a plan leaves out where it is the same word."""
    before, relation, alias = scanned.groups()
    if before.endswith("CTE "):  # its definition, which has no alias
        return f"{before}{relation.upper()}"
    return f"{before}{relation.upper()} {alias or relation}"


def _same(plan: str, other: str) -> bool:
    """Whether two plans differ at most in the numbers of aliases: a server numbers `s`, `s_1` as
    they come, which differs in a view that was dumped and restored."""
    numbered = set(_NUMBERED.findall(plan + other))
    if not numbered:
        return plan == other
    aliases = re.compile(rf"\b({'|'.join(sorted(numbered))})(?:_\d+)?\b")
    return _renumbered(plan, aliases) == _renumbered(other, aliases)


def _renumbered(plan: str, aliases: re.Pattern[str]) -> str:
    """The plan with aliases numbered by where they occur first."""
    numbers: dict[str, int] = {}
    return aliases.sub(lambda m: f"{m[1]}#{numbers.setdefault(m[0], len(numbers))}", plan)
