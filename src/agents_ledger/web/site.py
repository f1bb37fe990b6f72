"""What handlers share: the ledger, caches, background work, and the rendering of pages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Response
from litestar.di import NamedDependency
from markupsafe import Markup, escape

from agents_ledger.asgi.limits import AuditLimits
from agents_ledger.broker.broker import Broker
from agents_ledger.bus.bus import AgentBus
from agents_ledger.bus.live_turns import LiveLimits, LiveTurns
from agents_ledger.importers.background_import import BackgroundImport
from agents_ledger.importers.discovery import FileSelection, this_home
from agents_ledger.importers.survey import SourceSurvey, survey
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.maintenance.access_tokens import new_secret
from agents_ledger.model.agents.permissions import PermissionReview
from agents_ledger.model.errors import NotFound, ReadOnly, Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.installation import program, settings
from agents_ledger.model.reports.pages import SessionLine
from agents_ledger.model.reports.secrets import SecretReport
from agents_ledger.model.reports.usage import UsageBy, UsageLine, UsageReport
from agents_ledger.model.sessions import Finding, Session, Thread
from agents_ledger.model.turns import Turn
from agents_ledger.render.tree_layout import TreeRow
from agents_ledger.web import formats
from agents_ledger.web.admission import SharedReads
from agents_ledger.web.api.change_hub import ChangeHub
from agents_ledger.web.caches import BackgroundCache, RenderCache, SessionUsageCache
from agents_ledger.web.pages import charts
from agents_ledger.web.pages.cards import Card
from agents_ledger.web.requests import WebRequest
from agents_ledger.web.responses import html_response

HERE = Path(__file__).parent
THEMES = ("light", "dark")

DAY_MS = 86_400_000
YEAR_DAYS = 380
TREES_MAX = 32  # cached
RAW_BYTES = 64 * 1024


class AuditReport(NamedTuple):
    """The findings of an audit, and what it covered."""

    findings: tuple[Finding, ...]
    permissions: PermissionReview
    secrets: SecretReport
    at: int
    took_ms: int
    counts: dict[str, int]


class RawRecord(NamedTuple):
    kind: str
    key: str
    rows: tuple[dict[str, Any], ...]
    file: SourceFile | None = None
    start: int = 0
    text: str = ""


class Site:
    def __init__(
        self,
        ledger: Ledger,
        audits: AuditLimits | None = None,
        imports: BackgroundImport | None = None,
        live: LiveLimits | None = None,
    ) -> None:
        self.ledger = ledger
        self.live_turns = LiveTurns(ledger, live)
        self._selection = FileSelection(0, settings.excluded())
        self.imports = imports or BackgroundImport(ledger, this_home(), self._selection)
        self._audits = audits or AuditLimits()
        self.pages = ledger.pages
        self.broker: Broker | None = None
        self._audited: AuditReport | None = None
        self._auditing: threading.Thread | None = None
        self.background = BackgroundCache()
        self.session_usage = SessionUsageCache(ledger.session_usage)
        self.imports.on_end += [self.background.clear, self.session_usage.clear]
        self.rendered = RenderCache()
        # Stands for the reader's CSRF token in cached HTML, which all readers share. Random, so
        # that no text of a conversation can contain it.
        self._csrf_mark = new_secret()
        self.shared = SharedReads()
        self.changes = ChangeHub(ledger)
        self._rows: dict[tuple[object, ...], tuple[object, list[TreeRow]]] = {}
        self._rows_lock = threading.Lock()

    @cached_property
    def templates(self) -> Environment:
        environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            # A misspelt name in a template fails a test instead of showing nothing.
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters.update(formats.FILTERS)
        environment.filters["period_days"] = charts.period_days
        environment.globals.update(
            formats.GLOBALS, card_html=self._card, program=program.command(anywhere=True)
        )
        return environment

    @cached_property
    def bus(self) -> AgentBus:
        """The Agent Bus, built once: registering its abilities takes longer than most calls."""
        return AgentBus(self.ledger, self.live_turns)

    def required_broker(self) -> Broker:
        if self.broker is None:
            raise Refused(
                "no model is configured for this ledger",
                f"Set `model` under [engine] in {settings.policy_file(self.ledger.address)}, and"
                " restart the server.",
            )
        return self.broker

    def warm_up(self) -> None:
        """Compile the templates before the first request."""
        for name in self.templates.list_templates():
            self.templates.get_template(name)

    def start(self) -> None:
        """Summarise past days in the background, so that a year of usage is read quickly. A
        read-only ledger stays unchanged."""
        self.background.start("days", self._summarise)

    def stop(self) -> None:
        """Fail the live turns of clients and end the work in the background."""
        self.live_turns.close()
        self.background.stop()

    def _summarise(self) -> tuple[UsageLine, ...]:
        with suppress(ReadOnly):
            self.ledger.summarise()
        return self._days()

    def now(self) -> int:
        return now_ms()

    @property
    def audited(self) -> AuditReport | None:
        """The report of the last audit since the server started."""
        return self._audited

    def days(self) -> tuple[UsageLine, ...] | None:
        """Usage by day, for the year up to the latest turn; None while it is computed."""
        return self.background.get("days", self._days)

    def _days(self) -> tuple[UsageLine, ...]:
        latest = self.pages.latest_turn_at()
        if latest is None:
            return ()
        return self.ledger.usage("day", since=latest - YEAR_DAYS * DAY_MS).lines

    def heat_map(self, weeks: int) -> charts.HeatMap | None:
        """The turns of each day, of a number of weeks of that year."""
        days = self.days() or ()
        return charts.heat_map({line.key: line.spent.turns for line in days if line.key}, weeks)

    def sources(self) -> list[SourceSurvey] | None:
        """The histories of agents on this machine; None during the search for them."""
        return self.background.get(
            "sources", lambda: survey(this_home(), self.ledger, self._selection, [])
        )

    def choices(self) -> dict[str, list[str]]:
        return self.shared.get("choices", self.pages.choices)

    def session_lines(self, **filters: Any) -> tuple[SessionLine, ...]:
        """Pages.session_lines(), shared by simultaneous requests."""
        key = ("sessions", *sorted(filters.items()))
        return self.shared.get(key, lambda: self.pages.session_lines(**filters))

    def usage(self, by: UsageBy, **filters: Any) -> UsageReport:
        """Ledger.usage(), shared by simultaneous requests."""
        key = ("usage", by, *sorted(filters.items()))
        return self.shared.get(key, lambda: self.ledger.usage(by, **filters))

    def session_of(self, turn: Turn) -> Session | None:
        """The most recently updated session whose thread contains a turn."""
        label = self.pages.session_holding(turn.id)
        return self.ledger.session(label, exact=True) if label else None

    def name_of(self, session: Session) -> str:
        """The title of a session, or else its first prompt."""
        return self.pages.session_names([session.label])[session.label].name

    def head_of(self, thread: Thread) -> Turn | None:
        """The last turn of a thread, without its messages."""
        if thread.turn_id is None:
            return None
        return self.ledger.headlines([thread.turn_id])[0].turn

    def cached_rows(
        self, key: tuple[object, ...], compute: Callable[[], list[TreeRow]]
    ) -> list[TreeRow]:
        """The rows of a tree, valid until a head moves or a turn begins or ends."""
        # Read before the rows: a change in between makes them newer than their state, never older.
        state = (self.pages.last_move(), self.ledger.live_turns())
        with self._rows_lock:
            cached_state, rows = self._rows.pop(key, (None, []))
        if cached_state != state:
            rows = compute()
        with self._rows_lock:
            self._rows[key] = (state, rows)
            while len(self._rows) > TREES_MAX:
                self._rows.pop(next(iter(self._rows)))
        return rows

    def audit_report(self, *, run: bool) -> tuple[AuditReport | None, bool]:
        """The latest report, and whether an audit is still running. With `run`, or if the ledger is
        small, an audit starts in the background, and the request waits briefly for it."""
        if run or self.pages.has_few_turns(self._audits.quick_turns):
            self._auditing = self.background.start("audit", self._audit)
            self._auditing.join(self._audits.wait_s)
        # Read before the report: an audit that ends in between is shown as running, and the page
        # loads again; the other way round it would show neither a report nor a running audit.
        running = self._auditing is not None and self._auditing.is_alive()
        return self._audited, running

    def _audit(self) -> AuditReport:
        started, counts = now_ms(), self.pages.counts()
        findings, permissions = self.ledger.audit(), self.ledger.review_permissions()
        secrets = self.ledger.secrets.report()
        took_ms = now_ms() - started
        self._audited = AuditReport(findings, permissions, secrets, started, took_ms, counts)
        return self._audited

    def raw(self, kind: str, key: str, start: int) -> RawRecord:
        """The rows of a record, or bytes of an imported file."""
        if kind != "source":
            return RawRecord(kind, key, self.pages.raw(kind, key))
        # More digits than a 64-bit integer has would fail in the database instead of here.
        if not key.isdecimal() or len(key) > 18:  # noqa: PLR2004
            raise NotFound(f"no source file {key!r}", "Open it from the inspector of a turn.")
        sources = self.ledger.sources
        file = sources.find(int(key))
        data = sources.read(file.id, start, RAW_BYTES) if start < file.kept_bytes else b""
        text = self.ledger.secrets.shown(data.decode("utf-8", "backslashreplace"))
        return RawRecord(kind, key, (), file, start, text)

    def _card(self, card: Card, csrf: str) -> Markup:
        # Ages are part of the key: "5 min" must become "6 min".
        ages = [formats.age(other.turn.started_at) for other in card.siblings]
        html = self.rendered.get(
            (card.shown, ages),
            lambda: self.templates.get_template("card.html").render(
                card=card, partial=None, refused_fork=None, csrf=self._csrf_mark
            ),
        )
        return Markup(html.replace(self._csrf_mark, str(escape(csrf))))  # noqa: S704

    def render(self, template: str, request: WebRequest, **values: Any) -> str:
        theme = request.cookies.get("theme", "")
        zoom = request.cookies.get("zoom", "")
        common = {
            "csrf": request.scope["state"].get("csrf", ""),
            "token": request.scope["state"].get("token"),
            # Cookies come from the browser: only known values reach a template.
            "theme": theme if theme in THEMES else "",
            "zoom": zoom if zoom in ("1", "2", "3", "4") else "3",
            "path": request.scope["path"],
        }
        return self.templates.get_template(template).render(**common, **values)

    def page(
        self, template: str, request: WebRequest, *, status: int = 200, **values: Any
    ) -> Response[str]:
        return html_response(self.render(template, request, **values), request, status=status)


ThisSite = NamedDependency[Site]
"""The site, injected into handlers by name."""
