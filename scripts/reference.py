"""Write docs/reference from the code: make reference. A test compares the pages with the code."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import agents_ledger
from agents_ledger.broker import policy
from agents_ledger.cli.errors import EXIT_CODES
from agents_ledger.ledger.subjects import Subjects
from agents_ledger.model import errors
from agents_ledger.model.access import SCOPES
from agents_ledger.model.agents.config import Directives
from agents_ledger.model.queue import QueueLimits
from agents_ledger.model.retention import LegalHold, RetentionPolicy, RetentionRule
from agents_ledger.web.errors import STATUS
from agents_ledger.web.security import SAFE
from agents_ledger.web.server import API
from scripts import abilities, import_fields
from scripts.field_meanings import common_meaning

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/reference"
SQL = ROOT / "src/agents_ledger/store/sql"
MADE = "<!-- Written by `make reference`. Change the docstrings and comments it is made from. -->\n"


# -- the library ------------------------------------------------------------------------------

LIBRARY = """\
# The library: every public name

Everything here is imported from `agents_ledger`. [Use the library](../how-to/use-the-library.md)
shows the verbs by example; the words are in the [glossary](../glossary.md). Times are Unix
milliseconds. `AsyncLedger`, `AsyncLiveTurn`, `AsyncLiveCall`, `AsyncQueue` and `AsyncBatch` have
the verbs of their synchronous counterparts, to be awaited; `AsyncLedger` does not have the
[objects for servers and importers](#ledger-objects-for-servers-and-importers).
"""
TYPES = """\
## Types

The names that signatures and fields use for longer types.

| type | definition |
|---|---|"""
LINE = 96
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
FACES = ("Ledger", "LiveTurn", "LiveCall", "Batch", "Queue", "Broker", "Context")
# Members of a face that are listed after the others: their heading, what is said of them, names.
APART: dict[str, tuple[str, str, frozenset[str]]] = {
    "Ledger": (
        "Ledger: objects for servers and importers",
        "The servers, the importers and the session stores of other frameworks are built on these."
        "\nThey may change between versions, and `AsyncLedger` does not have them.",
        frozenset(vars(Subjects)),
    ),
    "Queue": (
        "Queue: verbs for brokers",
        "A broker runs the entries of the queue with these. They may change between versions.",
        frozenset(
            [
                "claim",
                "begin",
                "seal",
                "again",
                "fail",
                "spawn",
                "steer",
                "take_result",
                "report_lost",
                "look_again",
                "lost_workers",
                "urgent",
                "any_ready",
            ]
        ),
    ),
}


def library() -> str:
    public = {name: getattr(agents_ledger, name) for name in sorted(agents_ledger.__all__)}
    classes = {name: value for name, value in public.items() if inspect.isclass(value)}
    raised = {name for name, value in classes.items() if issubclass(value, Exception)}
    values = {
        name: value
        for name, value in classes.items()
        if name not in FACES and name not in raised and not name.startswith("Async")
    }
    aliases = type_aliases()
    functions = {name: public[name] for name in public if name not in {*classes, *aliases}}
    lines = [LIBRARY]
    for name in FACES:
        heading, text, apart = APART.get(name, ("", "", frozenset()))
        members = public_members(classes[name])
        lines += [f"## {name}", "", paragraph(classes[name]), "", *fields_table(classes[name])]
        lines += verbs({key: value for key, value in members.items() if key not in apart})
        if apart:
            lines += [f"## {heading}", "", text, ""]
            lines += verbs({key: value for key, value in members.items() if key in apart})
    lines += ["## Functions", ""]
    for name, function in functions.items():
        lines += verb(name, function)
    lines += ["## Values", ""]
    for name, value in values.items():
        lines += [f"### {name}", "", paragraph(value), "", *fields_table(value)]
        lines += verbs(public_members(value))
    raising = verb("EngineError", classes["EngineError"])
    lines += [TYPES, *type_rows(aliases, [*lines, *raising]), ""]
    lines += [
        "## Errors",
        "",
        f"See [errors](errors.md): {', '.join(f'`{n}`' for n in sorted(raised))}.",
        "Each has `hint`, what to do next. Further attributes:",
        "",
        "| error | attributes |",
        "|---|---|",
        *(f"| `{n}` | {a} |" for n in sorted(raised) if (a := error_attributes(classes[n]))),
        "",
        "An engine of your own raises this one:",
        "",
        *raising,
    ]
    return "\n".join(lines) + "\n"


def type_aliases() -> dict[str, str]:
    """The definition of every type alias in the modules that the package exports from."""
    aliases: dict[str, str] = {}
    for module in agents_ledger._MODULES:
        name = f"agents_ledger.{module}"
        import_module(name)
        for node in ast.walk(module_tree(name)[0]):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and re.match(r"[A-Z][a-z]", target.id):
                    aliases.setdefault(target.id, ast.unparse(_without_notes(node.value)))
    return aliases


def _without_notes(hint: ast.expr) -> ast.expr:
    annotated = isinstance(hint, ast.Subscript) and ast.unparse(hint.value) == "Annotated"
    return hint.slice.elts[0] if annotated else hint  # type: ignore[attr-defined]


def type_rows(aliases: dict[str, str], lines: list[str]) -> list[str]:
    """The aliases that signatures and fields use, and those that these use in turn."""
    used: dict[str, str] = {}
    waiting = sorted({*agents_ledger.__all__, *type_names("\n".join(lines))})
    while waiting:
        name = waiting.pop(0)
        if name in aliases and name not in used:
            used[name] = aliases[name]
            waiting += sorted(type_names(f"```py\n{aliases[name]}\n```"))
    return [f"| `{name}` | {cell(text)} |" for name, text in sorted(used.items())]


def type_names(page: str) -> set[str]:
    """The names of types in the signatures and tables of a page."""
    texts = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    texts += re.findall(r"^\| `\w+` \| `([^`]*)`", page, re.MULTILINE)
    return {name for text in texts for name in re.findall(r"\b[A-Z]\w+", _QUOTED.sub("", text))}


def error_attributes(kind: type) -> str:
    """What the constructors and properties of an error add to its text."""
    names = []
    for base in kind.__mro__:
        for node in (part for statement in class_body(base) for part in ast.walk(statement)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                names += [node.attr] if isinstance(node.ctx, ast.Store) else []
    names += [name for name, member in public_members(kind).items() if isinstance(member, property)]
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names) if name != "hint")


def public_members(owner: type) -> dict[str, Any]:
    members = inspect.getmembers_static(owner)
    return {name: attribute for name, attribute in members if not name.startswith("_")}


def verbs(members: dict[str, Any]) -> Iterator[str]:
    for name, attribute in members.items():
        member = attribute.__func__ if hasattr(attribute, "__func__") else attribute
        if isinstance(member, property):
            yield from (f"#### `{name}`", "", paragraph(member.fget), "")
        elif inspect.isfunction(inspect.unwrap(member)):
            yield from verb(name, member)


def verb(name: str, function: Callable[..., Any]) -> list[str]:
    signature = inspect.signature(function)
    shown: list[str] = []
    for given in signature.parameters.values():
        if given.name in ("self", "cls"):
            continue
        if given.kind is given.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        shown.append(parameter(given))
    returned = signature.return_annotation
    gives = "" if returned is signature.empty else f" -> {annotation(returned)}"
    line = f"{name}({', '.join(shown)}){gives}"
    if len(line) > LINE:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){gives}"
    return [f"#### `{name}`", "", "```py", line, "```", "", paragraph(function), ""]


def parameter(given: inspect.Parameter) -> str:
    stars = "*" * (given.kind is given.VAR_POSITIONAL) + "**" * (given.kind is given.VAR_KEYWORD)
    text = f"{stars}{given.name}"
    if given.annotation is not given.empty:
        text += f": {annotation(given.annotation)}"
    if given.default is not given.empty:
        default = given.default
        text += f" = {default.__name__ if callable(default) else repr(default)}"
    return text


def annotation(hint: Any) -> str:
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    return re.sub(r"\b(?:agents_ledger|typing|collections\.abc)\.(?:\w+\.)*", "", text)


def paragraph(documented: Any) -> str:
    text = inspect.getdoc(documented) or ""
    # msgspec and dataclasses write the signature where a class has no docstring.
    return "" if text.startswith(f"{getattr(documented, '__name__', None)}(") else text


# -- fields of values, with the comments beside them -------------------------------------------


def fields_table(value: type) -> list[str]:
    rows = list(field_rows(value))
    if not rows:
        return []
    return ["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""]


def field_rows(value: type) -> Iterator[str]:
    notes = comments(value)
    for name, (hint, default) in declared(value).items():
        shown = "" if default is None else f"`{_value(value, default)}`"
        meaning = notes.get(name) or common_meaning(name, value.__name__)
        yield f"| `{name}` | {cell(hint)} | {shown} | {meaning} |"


def _value(owner: type, default: str) -> str:
    """The value of a constant that is used as a default."""
    constant = getattr(sys.modules[owner.__module__], default, None) if default.isupper() else None
    return default if constant is None else repr(constant)


def declared(value: type) -> dict[str, tuple[str, str | None]]:
    """The fields of a class and of those it derives from, as they are written."""
    found: dict[str, tuple[str, str | None]] = {}
    for base in reversed(value.__mro__):
        for node in class_body(base):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                hint = ast.unparse(_hint_and_note(node)[0])
                if not node.target.id.startswith("_") and "ClassVar" not in hint:
                    default = ast.unparse(node.value) if node.value else None
                    found[node.target.id] = (hint, default)
    return found


def comments(value: type) -> dict[str, str]:
    """What stands after a field on its line, or before it on lines of its own."""
    notes: dict[str, str] = {}
    for base in reversed(value.__mro__):
        lines = source_of(base)
        for node in class_body(base):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                _, mark, note = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")
                if not mark or note.startswith(("type:", "noqa")):
                    note = _hint_and_note(node)[1] or _note_above(lines, node.lineno)
                if note:
                    notes[node.target.id] = note.replace("|", "\\|")
    return notes


def _hint_and_note(field: ast.AnnAssign) -> tuple[ast.expr, str]:
    """The type of a field, and the description that Annotated adds to it."""
    hint = field.annotation
    if not (isinstance(hint, ast.Subscript) and ast.unparse(hint.value) == "Annotated"):
        return hint, ""
    kind, *metas = hint.slice.elts  # type: ignore[attr-defined]
    words = (word for meta in metas for word in meta.keywords if word.arg == "description")
    return kind, " ".join(ast.literal_eval(word.value) for word in words)


def _note_above(lines: list[str], line: int) -> str:
    above = takewhile(lambda text: text.startswith("    # "), reversed(lines[: line - 1]))
    return " ".join(text.removeprefix("    # ") for text in reversed([*above]))


@cache
def module_tree(name: str) -> tuple[ast.Module, list[str]]:
    text = inspect.getsource(sys.modules[name])
    return ast.parse(text), text.splitlines()


def class_body(value: type) -> list[ast.stmt]:
    if not value.__module__.startswith("agents_ledger"):
        return []
    for node in ast.walk(module_tree(value.__module__)[0]):
        if isinstance(node, ast.ClassDef) and node.name == value.__name__:
            return node.body
    return []


def source_of(value: type) -> list[str]:
    return module_tree(value.__module__)[1] if class_body(value) else []


def cell(text: str) -> str:
    text = re.sub(r"Annotated\[(\w+), Meta\(ge=(\d+)\)\]", r"\1 >= \2", text)
    return "`" + text.replace("|", "\\|") + "`"


# -- errors -----------------------------------------------------------------------------------

ERRORS = """\
# Errors, exit codes and statuses

Every error is a `LedgerError`. Its text says what happened to which value; `hint` says what to do
next. The command line prints both and exits with the code below; the HTTP API answers with the
status and `{"kind", "message", "hint"}`.

| error | is a | exit code | HTTP status | when |
|---|---|---|---|---|
"""


def error_page() -> str:
    rows = []
    for name, kind in vars(errors).items():
        if not (isinstance(kind, type) and issubclass(kind, errors.LedgerError)):
            continue
        if kind is errors.LedgerError:
            continue
        code = next((c for family, c in EXIT_CODES.items() if issubclass(kind, family)), "")
        status = next((s for family, s in STATUS.items() if issubclass(kind, family)), "")
        when = " ".join((inspect.getdoc(kind) or "").split())
        rows.append(f"| `{name}` | `{kind.__bases__[0].__name__}` | {code} | {status} | {when} |")
    return ERRORS + "\n".join(rows) + "\n"


# -- HTTP -------------------------------------------------------------------------------------

HTTP = """\
# HTTP API: every route

The server describes itself as OpenAPI at `/api/openapi/v1.json`; this page lists the same routes.
[The HTTP API](http.md) explains tokens, limits, pages and errors.

| route | scope | what it does |
|---|---|---|
"""
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}


def http_routes() -> str:
    from litestar import Litestar, Router
    from litestar.di import Provide

    app = Litestar(
        route_handlers=[Router("/api/v1", route_handlers=API)],
        dependencies={"site": Provide(lambda: None, sync_to_thread=False)},
    )
    described = app.openapi_schema.paths or {}
    lines = [HTTP.rstrip("\n")]
    sections = []
    for route in sorted(app.routes, key=lambda route: route.path):
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        if path not in described:
            continue
        for handler in sorted(
            getattr(route, "route_handlers", ()), key=lambda h: min(h.http_methods)
        ):
            for method in sorted(set(handler.http_methods) & METHODS):
                operation = getattr(described[path], method.lower())
                title = f"`{method} {path}`"
                lines.append(f"| {title} | {scopes(handler, method)} | {about(handler)} |")
                if taken := parameters(operation):
                    sections += [f"- {title}: {taken}"]
    return "\n".join([*lines, "", "## Parameters", "", *sections]) + "\n"


def scopes(handler: Any, method: str) -> str:
    wanted = handler.opt.get("scopes") or [handler.opt.get("scope")]
    if set(wanted) == set(SCOPES):
        return "any"
    return " or ".join(scope or ("read" if method in SAFE else "write") for scope in wanted)


def about(handler: Any) -> str:
    """The docstring; Litestar wraps functions that it runs in threads."""
    return " ".join((inspect.getdoc(getattr(handler.fn, "func", handler.fn)) or "").split())


def parameters(operation: Any) -> str:
    return ", ".join(
        f"`{given.name}` ({given.param_in.value}{', required' if given.required else ''})"
        for given in operation.parameters or ()
    )


# -- tables -----------------------------------------------------------------------------------

TABLES = """\
# Tables and columns

One schema for SQLite and PostgreSQL. Read it with any tool; do not write to it. Times are Unix
milliseconds, flags are 0 or 1, JSON is text. `serial` is a number the database assigns, `bytes` is
`BLOB` or `bytea`. The views at the end carry the names of the specification.
"""
TABLE = re.compile(r"((?:^--[^\n]*\n)*)^CREATE TABLE (\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
VIEW = re.compile(r"((?:^--[^\n]*\n)*)^CREATE VIEW (\w+)\b", re.MULTILINE)
SPELLED = {"<serial_key>": "serial", "<log_key>": "serial", "<bytes>": "bytes"}
SPELLED |= {" DEFERRABLE INITIALLY IMMEDIATE": ""}
CONSTRAINTS = ("PRIMARY KEY", "UNIQUE", "FOREIGN KEY", "CHECK", "CONSTRAINT")


def tables() -> str:
    text = (SQL / "schema.sql").read_text(encoding="utf-8")
    lines = [TABLES]
    for note, name, body in TABLE.findall(text):
        lines += [f"## {name}", ""]
        if about := prose(note):
            lines += [about, ""]
        lines += ["| column | type | meaning |", "|---|---|---|", *columns(name, body), ""]
    views = (SQL / "views.sqlite.sql").read_text(encoding="utf-8")
    lines += ["## Views", "", "| view | what it shows |", "|---|---|"]
    lines += [f"| `{name}` | {prose(note)} |" for note, name in VIEW.findall(views)]
    return "\n".join(lines) + "\n"


def columns(table: str, body: str) -> Iterator[str]:
    """A definition ends where a line ends with a comma outside of brackets, or with the table."""
    entry, meaning = "", ""
    for raw in [*body.splitlines(), ","]:
        code, _, note = (part.strip() for part in raw.partition("--"))
        entry, meaning = f"{entry} {code}".strip(), f"{meaning} {note}".strip()
        if not entry.endswith(",") or entry.count("(") != entry.count(")"):
            continue
        name, _, kind = entry.rstrip(", ").partition(" ")
        if name and not entry.startswith(CONSTRAINTS):
            for written, shown in SPELLED.items():
                kind = kind.replace(written, shown)
            yield f"| `{name}` | {cell(kind)} | {meaning or common_meaning(name, table)} |"
        entry, meaning = "", ""


def prose(note: str) -> str:
    return " ".join(line.removeprefix("--").strip() for line in note.splitlines()).strip()


# -- the policy -------------------------------------------------------------------------------

POLICY = """\
# The policy file

A TOML file beside the ledger (`ledger.policy.toml`), or named by `AGENTS_LEDGER_POLICY`. Every key
is optional; an unknown key is an error.
[Run turns with the broker](../how-to/run-turns-with-the-broker.md) shows a whole file.
"""


DIRECTIVES = """\
Directives are passed with a message, not in the file:
`broker.send("main", "Hello", directives={"model": "echo"})`. They win over the policy and over what
the thread inherits, within the permissions.
"""


def policy_page() -> str:
    lines = [POLICY]
    parts: list[tuple[str, type]] = [
        ("Top level", policy.Policy),
        ("`[personas.NAME]`", policy.Persona),
        ("`[personas.NAME.identity]`", policy.Identity),
        ("`[personas.NAME.permissions]`", policy.PersonaPermissions),
        ("`[personas.NAME.permissions.tools]`", policy.ToolRules),
        ("`[personas.NAME.model]`", policy.PersonaModel),
        ("`[[grants]]`", policy.GrantEntry),
        ("`[engine]`", policy.EngineChoice),
        ("`[queue]`", QueueLimits),
        ("`[retention]`", RetentionPolicy),
        ("`[[retention.rules]]`", RetentionRule),
        ("`[[retention.holds]]`", LegalHold),
        ("`[context]`", policy.ContextLimits),
        ("`[workers]`", policy.Workers),
        ("Directives", Directives),
    ]
    for title, part in parts:
        lines += [f"## {title}", "", paragraph(part), "", *fields_table(part)]
    return "\n".join([*lines, DIRECTIVES])


PAGES: dict[str, Callable[[], str]] = {
    "library.md": library,
    "abilities.md": abilities.page,
    "errors.md": error_page,
    "http-routes.md": http_routes,
    "tables.md": tables,
    "policy.md": policy_page,
}


REQUESTS = ROOT / "docs/sources/request.md"
REQUEST_SCHEMA = FOLDER / "sessions-import.schema.json"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(MADE + page(), encoding="utf-8")
    REQUEST_SCHEMA.write_text(import_fields.schema(), encoding="utf-8")
    requests = REQUESTS.read_text(encoding="utf-8")
    REQUESTS.write_text(import_fields.page(requests), encoding="utf-8")


if __name__ == "__main__":
    main()
