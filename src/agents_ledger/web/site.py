"""What handlers share: the ledger, and how a page is rendered."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Request, Response
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.exceptions import PermissionDeniedException
from markupsafe import Markup, escape

from agents_ledger.broker.broker import Broker
from agents_ledger.bus.bus import AgentBus
from agents_ledger.importers.discovery import Wanted, find, this_home
from agents_ledger.importers.pipeline import Importer
from agents_ledger.importers.survey import Source, survey
from agents_ledger.ledger.access import new_secret
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model import settings
from agents_ledger.model.agents.permissions import PermissionReview
from agents_ledger.model.errors import NotFound, ReadOnly
from agents_ledger.model.ids import now_ms
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.reports.pages import SessionLine, name_of
from agents_ledger.model.reports.usage import UsageBy, UsageLine, UsageReport
from agents_ledger.model.sessions import Finding, Session, Thread
from agents_ledger.model.turns import Turn
from agents_ledger.web import formats
from agents_ledger.web.admission import SharedReads
from agents_ledger.web.background_cache import Keeper
from agents_ledger.web.pages import charts
from agents_ledger.web.pages.thread import Card
from agents_ledger.web.pages.tree_rows import Row
from agents_ledger.web.render_cache import RenderCache

HERE = Path(__file__).parent
THEMES = ("light", "dark")

DAY_MS = 86_400_000
YEAR_DAYS = 380
ROWS_KEPT = 32
AUDIT_WAIT_S = 1.0
QUICK_TURNS = 200  # so many are audited whenever the page is opened
RAW_BYTES = 64 * 1024

Asked = Request[Any, Any, State]


class AuditReport(NamedTuple):
    """What an audit found, and of how much."""

    findings: tuple[Finding, ...]
    permissions: PermissionReview
    at: int
    took_ms: int
    counts: dict[str, int]


class RawRecord(NamedTuple):
    """A record as it is stored."""

    kind: str
    key: str
    rows: tuple[dict[str, Any], ...]
    file: SourceFile | None = None
    start: int = 0
    text: str = ""


class Site:
    """One server's ledger and templates."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.pages = ledger.pages
        self.broker: Broker | None = None
        self._audited: AuditReport | None = None
        self._auditing: threading.Thread | None = None
        self.keeper = Keeper()
        self.rendered = RenderCache()
        self._csrf_mark = new_secret()  # stands for the reader's in what is kept for all readers
        self.shared = SharedReads()
        self._rows: dict[tuple[object, ...], tuple[object, list[Row]]] = {}
        self._rows_lock = threading.Lock()
        self._import: threading.Thread | None = None
        self._import_lock = threading.Lock()

    @cached_property
    def templates(self) -> Environment:
        """Every value is escaped unless the template says otherwise."""
        environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters.update(formats.FILTERS)
        environment.globals.update(formats.GLOBALS, card_html=self._card)
        return environment

    @cached_property
    def bus(self) -> AgentBus:
        """The abilities of the ledger: registering them takes longer than most calls."""
        return AgentBus(self.ledger)

    def warm_up(self) -> None:
        """Compile the templates now, so that nobody waits for it later."""
        for name in self.templates.list_templates():
            self.templates.get_template(name)

    def start(self) -> None:
        """Sum up the days that are over, beside everything else: what a year used is then told
        quickly. A ledger that is only read is left as it is."""
        self.keeper.start("days", self._sum_up)

    def _sum_up(self) -> tuple[UsageLine, ...]:
        with suppress(ReadOnly):
            self.ledger.summarise()
        return self._days()

    def now(self) -> int:
        """Unix milliseconds."""
        return now_ms()

    @property
    def audited(self) -> AuditReport | None:
        """What the last audit of this run found."""
        return self._audited

    def days(self) -> tuple[UsageLine, ...] | None:
        """What was used on the days of the last year that has any; None while it is counted."""
        return self.keeper.get("days", self._days)

    def _days(self) -> tuple[UsageLine, ...]:
        latest = self.pages.latest_turn_at()
        if latest is None:
            return ()
        return self.ledger.usage("day", since=latest - YEAR_DAYS * DAY_MS).lines

    def heat_map(self) -> charts.HeatMap | None:
        """How many turns there were on each of these days."""
        days = self.days() or ()
        return charts.heat_map({line.key: line.spent.turns for line in days if line.key})

    def sources(self) -> list[Source] | None:
        """The agents' histories on this machine; None while they are looked for."""
        wanted = Wanted(0, settings.excluded())
        return self.keeper.get("sources", lambda: survey(this_home(), self.ledger, wanted, []))

    def start_import(self) -> None:
        """Import whatever is found on this machine, in a thread of its own, once at a time."""
        with self._import_lock:
            if self.importing:
                return
            self._import = threading.Thread(target=self._import_all, daemon=True)
            self._import.start()

    @property
    def importing(self) -> bool:
        """Whether an import runs now."""
        return self._import is not None and self._import.is_alive()

    def _import_all(self) -> None:
        wanted = Wanted(0, settings.excluded())
        Importer(self.ledger).run(wanted.of(find(this_home())))
        self.ledger.summarise()
        self.keeper.forget()

    def choices(self) -> dict[str, list[str]]:
        """What sessions can be filtered by."""
        return self.shared.get("choices", self.pages.choices)

    def session_lines(self, **asked: Any) -> tuple[SessionLine, ...]:
        """Pages.session_lines()."""
        key = ("sessions", *sorted(asked.items()))
        return self.shared.get(key, lambda: self.pages.session_lines(**asked))

    def usage(self, by: UsageBy, **asked: Any) -> UsageReport:
        """Ledger.usage()."""
        key = ("usage", by, *sorted(asked.items()))
        return self.shared.get(key, lambda: self.ledger.usage(by, **asked))

    def session_of(self, turn: Turn) -> Session | None:
        """The session whose thread shows a turn: the latest one that stands on it."""
        label = self.pages.session_holding(turn.id)
        return self.ledger.session(label, exact=True) if label else None

    def name_of(self, session: Session, thread: Thread) -> str:
        """What people know a session by."""
        root = self.ledger.ancestor_at(thread.turn_id, 1) if thread.turn_id else None
        text = self.ledger.headlines([root])[0].text if root else None
        return name_of(session, None if text is None or text.startswith("<") else text)

    def head_of(self, thread: Thread) -> Turn | None:
        """The last turn of a thread, without its messages."""
        if thread.turn_id is None:
            return None
        return self.ledger.headlines([thread.turn_id])[0].turn

    def rows_kept(self, key: tuple[object, ...], make: Callable[[], list[Row]]) -> list[Row]:
        """The rows of a tree, as they are until a head moves or a turn begins or ends."""
        state = (self.pages.last_move(), self.ledger.live_turns())
        with self._rows_lock:
            known, rows = self._rows.pop(key, (None, []))
        if known != state:
            rows = make()
        with self._rows_lock:
            self._rows[key] = (state, rows)
            while len(self._rows) > ROWS_KEPT:
                self._rows.pop(next(iter(self._rows)))
        return rows

    def audit_report(self, *, run: bool) -> AuditReport | None:
        """What the audit found when it last ran; it runs now if that is quick, or asked for: then
        beside the requests, which do not wait for it long."""
        if run or self.pages.has_few_turns(QUICK_TURNS):
            self._auditing = self.keeper.start("audit", self._audit)
            self._auditing.join(AUDIT_WAIT_S)
        return self._audited

    @property
    def auditing(self) -> bool:
        """Whether an audit runs now."""
        return self._auditing is not None and self._auditing.is_alive()

    def _audit(self) -> AuditReport:
        started, counts = now_ms(), self.pages.counts()
        findings, permissions = self.ledger.audit(), self.ledger.review_permissions()
        took_ms = now_ms() - started
        self._audited = AuditReport(findings, permissions, started, took_ms, counts)
        return self._audited

    def raw(self, kind: str, key: str, start: int) -> RawRecord:
        """A record as it is stored: rows of the ledger, or bytes of a file that was imported."""
        if kind != "source":
            return RawRecord(kind, key, self.pages.raw(kind, key))
        if not key.isdecimal() or len(key) > 18:  # noqa: PLR2004
            raise NotFound(f"there is no source file {key!r}")
        sources = self.ledger.sources
        file = sources.find(int(key))
        data = sources.read(file.id, start, RAW_BYTES) if start < file.kept_bytes else b""
        return RawRecord(kind, key, (), file, start, data.decode("utf-8", "backslashreplace"))

    def _card(self, card: Card, csrf: str) -> Markup:
        """A turn of a thread's page. Most of them are looked at again, and by others."""
        times = [card.turn.started_at, *(other.turn.started_at for other in card.siblings)]
        html = self.rendered.get(
            (card.shown, [formats.age(at) for at in times]),
            lambda: self.templates.get_template("card.html").render(
                card=card, partial=None, csrf=self._csrf_mark
            ),
        )
        return Markup(html.replace(self._csrf_mark, str(escape(csrf))))  # noqa: S704

    def render(self, template: str, request: Asked, **values: Any) -> str:
        """A template as text, with what all pages know."""
        theme = request.cookies.get("theme", "")
        zoom = request.cookies.get("zoom", "")
        known = {
            "csrf": request.scope["state"].get("csrf", ""),
            "token": request.scope["state"].get("token"),
            "theme": theme if theme in THEMES else "",
            "zoom": zoom if zoom in ("1", "2", "3", "4") else "3",
            "path": request.scope["path"],
        }
        return self.templates.get_template(template).render(**known, **values)

    def page(
        self, template: str, request: Asked, *, status: int = 200, **values: Any
    ) -> Response[str]:
        """A page, which a browser need not load again while it is the same."""
        text = self.render(template, request, **values)
        return html(text, request, status=status)


def html(text: str, request: Asked, *, status: int = 200) -> Response[str]:
    """A page with the tag of its content."""
    content = text.encode("utf-8", "backslashreplace")
    tag = tag_of(content)
    if status == 200 and request.headers.get("if-none-match") == tag:  # noqa: PLR2004
        return Response("", status_code=304, headers={"etag": tag}, media_type="text/html")
    page = Response(content, status_code=status, media_type="text/html", headers={"etag": tag})
    return cast(Response[str], page)


def tag_of(content: bytes) -> str:
    """An entity tag: equal for equal content."""
    return f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def named(part: str) -> str:
    """A part of a path as it was meant; the server keeps paths as they were sent."""
    try:
        return unquote(part, errors="surrogatepass")
    except UnicodeDecodeError:
        return unquote(part, errors="replace")


def check_persona(request: Asked, wanted: str, own: str | None) -> None:
    """Refuse a persona other than the one a session has, or would have, unless to an administrator:
    the policy grants tools by persona."""
    token = request.scope["state"]["token"]
    if wanted != own and not token.may("admin"):
        raise PermissionDeniedException(
            f"choosing the persona {wanted!r} needs a token with the scope 'admin'"
        )


Here = NamedDependency[Site]
"""The site, as handlers ask for it."""
