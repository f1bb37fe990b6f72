"""Hostile text in every column of every table: seen as text, on every page and in every export."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from html import unescape
from pathlib import Path
from urllib.parse import urldefrag

import psycopg
import pytest
from playwright.sync_api import Browser

from agents_ledger import Compaction, Config, Ledger, Message, Session, ToolCall, Usage
from agents_ledger.exporters.exporting import FORMS, Export, Form
from agents_ledger.importers.pipeline import import_paths
from tests.builders import a_detailed_message
from tests.importers.claude_log import Log
from tests.raw import Raw
from tests.web.conftest import Running, Visitor, visits

PAYLOAD = (
    "\"'><img src=x onerror=alert(1)><script>alert(2)</script>"
    "<svg onload=alert(3)>{{7*7}}${7*7}</textarea></title>"
    "![i](https://evil.example/i.png)[l](javascript:alert(4))"
)
PAGES_MAX = 170
ALIKE_MAX = 2  # pages of one shape
# Kinds of pages; every one must have been seen.
KINDS = (
    r"/$", r"/sessions", r"/s/[^/]+$", r"/s/[^/]+/tree", r"/s/[^/]+/history", r"/t/[^/]+$",
    r"/t/[^/]+/call/", r"/t/.*tab=raw", r"/t/.*tab=files", r"/t/.*tab=context", r"/tools$",
    r"/tools/", r"/usage", r"/compare", r"/audit", r"/imports$", r"/imports/", r"/raw/turn/",
    r"/raw/source/", r"/share/",
)  # fmt: skip


def an_id(name: str) -> str:
    """As hostile as an id may be: without spaces and quotes."""
    return f"{name}<img/src=x/onerror=alert(5)><svg/onload=alert(6)>"


def text(name: str) -> str:
    return f"{name} {PAYLOAD}"


def fill(ledger: Ledger, folder: Path) -> None:
    """Rows in every table, with hostile keys."""
    label, turn_id = text("label"), an_id("turn")
    ledger.create_session(Session(label, persona_id=text("persona"), title=text("title")))
    call = ToolCall(
        text("tool"),
        json.dumps({"command": text("command"), "file_path": text("path")}),
        json.dumps([{"type": "text", "text": text("result")}]),
        id=an_id("call"),
        spawned_session_label=text("child"),
    )
    todo = ToolCall("TodoWrite", json.dumps({"todos": [{"content": PAYLOAD, "status": PAYLOAD}]}))
    edit = ToolCall("Edit", json.dumps({"path": PAYLOAD, "old": PAYLOAD, "new": text("new")}))
    write = ToolCall("Write", json.dumps({"file_path": "a.html", "content": PAYLOAD}))
    ledger.record(
        label,
        [a_detailed_message(text("query")), Message("user", PAYLOAD, id=an_id("message"))],
        Message("assistant", f"# {PAYLOAD}\n\n```{PAYLOAD}\n{PAYLOAD}\n```\n\n{PAYLOAD}"),
        steps=[call, todo, edit, write, Message("tool", PAYLOAD, tool_call_id=call.id)],
        id=turn_id,
        usage=Usage(1, 2, 3, 4, 5),
        model=text("model"),
        system_prompt=text("prompt"),
        config=Config({text("setting"): PAYLOAD}),
        thread_key=text("key"),
        workspace_path=text("/workspace"),
    )
    ledger.record(text("child"), PAYLOAD, PAYLOAD)
    ledger.record(label, PAYLOAD, None, status="failed", error=text("error"))
    ledger.record(label, compaction=Compaction(text("summary"), turn_id, None))
    ledger.fork(turn_id, label=text("fork"))
    ledger.record(text("fork"), PAYLOAD, PAYLOAD, steps=[call_named(text("Read"))])
    ledger.alias(text("alias"), label)
    ledger.annotate(label, note=PAYLOAD, starred=True)
    log = Log(folder)
    log.user("a1", PAYLOAD)
    path = log.save()
    path.write_text(path.read_text() + "{broken\n", encoding="utf-8")
    import_paths(ledger, [path])


def call_named(name: str) -> ToolCall:
    return ToolCall.of(name, {"path": PAYLOAD}, PAYLOAD)


def overwrite(file: Path) -> set[str]:
    """Put the payload into every text column that is no key and no word of few values."""
    written = set()
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f'DROP TRIGGER "{name}"')
        tables = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
            " AND name NOT LIKE 'sqlite_%' AND name NOT GLOB '*_fts*'"
        ).fetchall()
        for (table,) in tables:
            keys = {row[3] for row in db.execute(f"PRAGMA foreign_key_list({table})")}
            for _, column, kind, _, _, is_key in db.execute(
                f"PRAGMA table_info({table})"
            ).fetchall():
                if kind == "TEXT" and not is_key and column not in keys | SHAPED:
                    written |= put(db, table, column)
    db.close()
    return written


# What the ledger's own code reads back: lists of ids, hashes, words.
SHAPED = {
    "query_message_ids", "response_message_id", "secret_hash", "scopes", "effective_config_json",
    "params_json", "result_json", "tool_call_id", "system_prompt_hash", "spawn_tool_call_id",
    "tool_name", "session_label", "head_turn_id", "compaction_turn_id", "message_id", "name",
}  # fmt: skip


def put(db: sqlite3.Connection, table: str, column: str) -> set[str]:
    value = text(f"{table}.{column}")
    if column.endswith("_json"):
        value = json.dumps({value: value})
    try:
        db.execute(f"UPDATE {table} SET {column} = ? ", (value,))
    except sqlite3.IntegrityError:  # a word of few values, or one of a kind
        return set()
    return {f"{table}.{column}"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("hostile")
    file = folder / "ledger.db"
    with Ledger.open(str(file)) as ledger:
        fill(ledger, folder)
    assert len(overwrite(file)) > 40
    running = Running(str(file))
    yield running
    running.stop()


def links(visitor: Visitor) -> list[str]:
    # Links of charts have an animated href: only the attribute is the same for all.
    found = visitor.page.locator("a[href]").evaluate_all(
        "links => links.map((link) => new URL(link.getAttribute('href'), location.href).href)"
    )
    own = visitor.running.server.address.rstrip("/")
    for link in found:
        assert link.startswith(("http://", "https://", "mailto:")), link
    return [urldefrag(link[len(own) :])[0] for link in found if link.startswith(own)]


def shape_of(path: str) -> str:
    """What pages of one kind have in common."""
    names = r"/[^/?]*%[^/?]*|01[0-9A-Z]{24}|=[^&]*%[^&]*"
    return re.sub(rf"{names}|(?<=/usage\?).*|\d{{4}}-\d\d-\d\d", "/*", path)


def test_every_page_shows_hostile_text_as_text(browser: Browser, hostile: Running) -> None:
    for new in visits(browser, hostile):
        visitor = new()
        seen: set[str] = set()
        kinds: dict[str, int] = {}
        waiting = deque(["/", "/usage?by=model", "/usage?by=project", "/audit", "/imports"])
        while waiting and len(seen) < PAGES_MAX:
            path = waiting.popleft()
            shape = shape_of(path)
            kinds[shape] = kinds.get(shape, 0) + 1
            is_download = "/file?" in path or path.startswith("/usage.csv")
            if path in seen or is_download or kinds[shape] > ALIKE_MAX:
                continue
            seen.add(path)
            answer = visitor.page.goto(hostile.server.address.rstrip("/") + path)
            assert answer
            assert answer.status == 200, (path, visitor.page.locator("main").inner_text())
            visitor.page.evaluate(
                "document.querySelectorAll('details').forEach(d => d.open = true)"
            )
            waiting.extend(links(visitor))
        visitor.page.wait_for_timeout(300)
        missing = [kind for kind in KINDS if not any(re.search(kind, path) for path in seen)]
        assert not missing
        assert not visitor.complaints
        assert not visitor.foreign


def test_a_thread_shows_hostile_text_whole(browser: Browser, hostile: Running) -> None:
    for new in visits(browser, hostile):
        visitor = new()
        session = next(s for s in hostile.ledger.sessions(status=None) if s.label == text("label"))
        from agents_ledger.web.formats import session_url

        page = visitor.open(session_url(session.label))
        assert "<script>alert(2)</script>" in page.locator("article.card").first.inner_text()
        assert page.locator("main script, main img:not(.shot)").count() == 0


def test_characters_that_reverse_the_reading_order_are_made_visible(
    own_server: Callable[[], Running],
) -> None:
    running = own_server()
    turned = "safe\u202egnp.exe"
    running.ledger.record(
        "main", turned, turned, model=turned, workspace_path=turned, steps=[call_named(turned)]
    )
    running.ledger.record("main", turned, None, status="failed", error=turned)
    running.ledger.annotate("main", title=turned, note=turned)
    head = running.ledger.head("main")
    tabs = [f"/t/{head}?tab={tab}" for tab in ("tools", "files", "context", "raw")]
    pages = ["/", "/sessions", "/s/main", "/s/main/tree", "/s/main/history", "/audit", "/files"]
    for path in (*pages, *tabs, f"/raw/turn/{head}", "/tools", "/usage?by=model", "/search?q=safe"):
        answer = running.ask(path)
        assert answer.status == 200
        shown = re.sub(r"<textarea.*?</textarea>", "", answer.text)
        assert "\u202e" not in re.sub(r"<[^>]*>", " ", shown), path


@pytest.mark.parametrize("form", FORMS)
def test_exports_contain_hostile_text_whole(hostile: Running, form: Form) -> None:
    made = "".join(Export(hostile.ledger, text("label"), form, full=True))

    assert "alert(2)" in made


def test_an_exported_page_shows_hostile_text_as_text(
    browser: Browser, hostile: Running, tmp_path: Path
) -> None:
    file = tmp_path / "export.html"
    made = "".join(Export(hostile.ledger, text("label"), "html", full=True))
    file.write_text(made, encoding="utf-8")
    for new in visits(browser, hostile):
        visitor = new()
        visitor.page.goto(file.as_uri())
        visitor.page.wait_for_timeout(200)
        assert "<script>alert(2)</script>" in visitor.page.locator("body").inner_text()
        foreign = [url for url in visitor.foreign if not url.startswith("file:")]
        visitor.foreign.clear()
        assert not foreign


# -- the same on the other engine, without a browser ------------------------------------------

MARKUP = ("<script>alert", "<img src=x", "<img/src=x", "<svg onload", "<svg/onload")
TEXT_COLUMNS = """
    SELECT c.table_name, c.column_name FROM information_schema.columns c
    WHERE c.table_schema = current_schema() AND c.data_type = 'text'
    AND c.table_name IN (SELECT tablename FROM pg_tables WHERE schemaname = current_schema())
    AND NOT EXISTS (
        SELECT 1 FROM information_schema.key_column_usage k
        WHERE k.table_schema = c.table_schema AND k.table_name = c.table_name
        AND k.column_name = c.column_name
    )
"""


def overwrite_on_server(address: str) -> set[str]:
    """As on SQLite: every text column that is no key and no word of few values."""
    written = set()
    with Raw(address) as raw:
        raw.execute("SET session_replication_role = replica")  # no guards, no foreign keys
        for table, column in raw.execute(TEXT_COLUMNS):
            if column in SHAPED:
                continue
            value = text(f"{table}.{column}")
            value = json.dumps({value: value}) if column.endswith("_json") else value
            with suppress(psycopg.errors.IntegrityError):
                raw.execute(f"UPDATE {table} SET {column} = ?", [value])
                written.add(f"{table}.{column}")
    return written


def test_pages_and_responses_on_postgresql_contain_no_hostile_markup(
    new_schema: Callable[[], str], tmp_path: Path
) -> None:
    address = new_schema()
    with Ledger.open(address) as ledger:
        fill(ledger, tmp_path)
    assert len(overwrite_on_server(address)) > 40
    running = Running(address)
    seen: set[str] = set()
    kinds: dict[str, int] = {}
    waiting = deque(["/", "/usage?by=model", "/audit?run=true", "/imports", "/api/v1/sessions"])
    while waiting and len(seen) < PAGES_MAX:
        path = waiting.popleft()
        shape = shape_of(path)
        kinds[shape] = kinds.get(shape, 0) + 1
        if path in seen or "/file?" in path or kinds[shape] > 4:
            continue
        seen.add(path)
        answer = running.ask(path)
        assert answer.status == 200, (path, answer.text)
        assert answer.headers["x-content-type-options"] == "nosniff"
        if answer.headers["content-type"].startswith("text/html"):
            assert not [mark for mark in MARKUP if mark in answer.text], path
            found = re.findall(r'href="(/[^"#]*)', answer.text)
            waiting.extend(unescape(link) for link in found if "/static/" not in link)
    missing = [kind for kind in KINDS if not any(re.search(kind, path) for path in seen)]
    for form in FORMS:
        made = "".join(Export(running.ledger, text("label"), form, full=True))
        assert form != "html" or not [mark for mark in MARKUP if mark in made]
    running.stop()
    assert not missing
