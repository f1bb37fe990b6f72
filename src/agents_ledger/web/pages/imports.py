"""Import runs, the histories of agents on this machine, and records that could not be parsed."""

from __future__ import annotations

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.render import bodies
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import SiteDependency

PER_PAGE = 50


@get("/imports", sync_to_thread=True)
def imports_page(
    request: WebRequest, site: SiteDependency, before: FromQuery[str] = ""
) -> Response[str]:
    """Import runs, latest first."""
    runs = site.pages.import_runs(limit=PER_PAGE + 1, before=before or None)
    return site.page(
        "imports.html",
        request,
        title="Imports",
        runs=runs[:PER_PAGE],
        older=runs[PER_PAGE - 1].id if len(runs) > PER_PAGE else None,
        faults=site.pages.source_faults(limit=PER_PAGE),
        faults_max=PER_PAGE,
        sources=site.sources(),
        importing=site.importing,
    )


@get("/imports/{run:str}", sync_to_thread=True)
def import_page(request: WebRequest, site: SiteDependency, run: FromPath[str]) -> Response[str]:
    """One import run with its report."""
    import_run = site.pages.import_run(decode_part(run))
    return site.page(
        "import.html",
        request,
        title=f"Import {import_run.id}",
        run=import_run,
        report=bodies.parameters(import_run.report_json or "{}"),
    )


ROUTES = (imports_page, import_page)
