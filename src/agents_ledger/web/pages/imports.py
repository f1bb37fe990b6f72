"""Import runs, the histories of agents on this machine, and problems in source records."""

from __future__ import annotations

from pathlib import PurePath

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.importers.survey import SourceSurvey
from agents_ledger.model.reports.pages import NamedSession
from agents_ledger.render import bodies
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

PER_PAGE = 50
EXPIRING_MAX = 100  # of one agent


@get("/imports", sync_to_thread=True)
def imports_page(request: WebRequest, site: ThisSite, before: FromQuery[str] = "") -> Response[str]:
    runs = site.pages.import_runs(limit=PER_PAGE + 1, before=before or None)
    sources = site.sources()
    return site.page(
        "imports.html",
        request,
        title="Imports",
        runs=runs[:PER_PAGE],
        before=before,
        older=runs[PER_PAGE - 1].id if len(runs) > PER_PAGE else None,
        faults=site.pages.source_faults(limit=PER_PAGE),
        faults_max=PER_PAGE,
        sources=sources,
        expiring_max=EXPIRING_MAX,
        session_of_file=_sessions_of_files(site, sources or []),
        importing=site.imports.status,
        import_failure=site.imports.failure,
    )


def _sessions_of_files(site: Site, sources: list[SourceSurvey]) -> dict[str, NamedSession]:
    """The sessions of files that will be deleted, by path: of those that are called like one."""
    labels = {
        file.path: f"{source.name}:{PurePath(file.path).stem}"
        for source in sources
        for file in source.expiring[:EXPIRING_MAX]
        if file.kept
    }
    sessions = site.pages.session_names(labels.values()) if labels else {}
    return {
        path: sessions[label]
        for path, label in labels.items()
        if label in sessions and sessions[label].session.status != "deleted"
    }


@get("/imports/{run:str}", sync_to_thread=True)
def import_page(request: WebRequest, site: ThisSite, run: FromPath[str]) -> Response[str]:
    import_run = site.pages.import_run(decode_part(run))
    return site.page(
        "import.html",
        request,
        title=f"Import {import_run.id}",
        run=import_run,
        report=bodies.parameters(import_run.report_json or "{}"),
    )


ROUTES = (imports_page, import_page)
