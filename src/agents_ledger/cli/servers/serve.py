"""serve and token: the HTTP server and its access tokens."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from agents_ledger.cli.command import Invocation, command, embed_in_background
from agents_ledger.cli.terminal import note
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.access import SCOPES, Scope, Token
from agents_ledger.model.ids import now_ms
from agents_ledger.model.installation import extras
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import IDLE_MAX_S, IDLE_S

if TYPE_CHECKING:
    from agents_ledger.cli.servers.server import Serving
    from agents_ledger.importers.background_import import BackgroundImport

REQUIRED_PACKAGES = ("litestar", "uvicorn", "jinja2", "markdown_it", "nh3", "pygments")
DAY_MS = 86_400_000
UNITS = {"d": DAY_MS, "w": 7 * DAY_MS}


@command
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 for any free port.  [default: 8717]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Additional host name to accept.")
@click.option("--tls-certificate", type=click.Path(dir_okay=False), help="Certificate, a PEM file.")
@click.option("--tls-key", type=click.Path(dir_okay=False), help="Private key, a PEM file.")
@click.option("--insecure", is_flag=True, help="Accept other machines without TLS.")
@click.option(
    "--live-timeout",
    type=click.IntRange(1, IDLE_MAX_S),
    default=IDLE_S,
    show_default=True,
    metavar="SECONDS",
    help="Fail a live turn of a client after this time without a request.",
)
@click.option("--no-browser", is_flag=True, help="Print the address; open no browser.")
def serve(
    run: Invocation,
    *,
    port: int | None,
    host: str,
    allow_host: tuple[str, ...],
    tls_certificate: str | None,
    tls_key: str | None,
    insecure: bool,
    live_timeout: int,
    no_browser: bool,
) -> None:
    """Serve the Command Center and the HTTP API until interrupted."""
    from agents_ledger.bus.live_turns import LiveLimits
    from agents_ledger.cli.servers.server import Serving

    serving = Serving(
        host=host,
        port=port,
        names=allow_host,
        certificate=tls_certificate,
        key=tls_key,
        insecure=insecure,
        live=LiveLimits(idle_s=live_timeout),
    )
    check_packages()
    with run.writing(create=True) as ledger:
        start(run, ledger, serving, browser=not no_browser)


def check_packages() -> None:
    """Refuse if the library was installed without the packages of the server."""
    extras.check("web", "the server", *REQUIRED_PACKAGES)


def start(
    run: Invocation,
    ledger: Ledger,
    serving: Serving,
    *,
    browser: bool,
    imports: BackgroundImport | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> None:
    """Print the address with its token, open a browser if there is a display, and serve."""
    from agents_ledger.cli.servers.server import Server

    server = Server(ledger, serving, imports)
    ledger.index_in_background()
    embed_in_background(ledger)
    if run.as_json:
        run.out.json(address=server.address, token=server.secret)
    else:
        run.out.line(server.address_with_token)
        note(("Open this address in a browser. Press Ctrl-C to stop the server.", "dim"))
        if not server.has_public_name:
            note(("Other machines need a name: pass it with --allow-host.", "dim"))
    sys.stdout.flush()
    if browser and has_display():
        import webbrowser

        webbrowser.open(server.address_with_code())
    server.run(own_process=True, on_start=on_start)


def has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@command
@click.argument("action", type=click.Choice(["create", "list", "revoke"]))
@click.argument("name", required=False)
@click.option(
    "--scope",
    multiple=True,
    type=click.Choice(SCOPES),
    help="Allowed scope; repeatable.  [default: read]",
)
@click.option(
    "--expires", metavar="TIME", help="Lifetime, such as 30d or 12w.  [default: unlimited]"
)
@click.option("--all", "everything", is_flag=True, help="With revoke: all tokens.")
def token(
    run: Invocation,
    *,
    action: str,
    name: str | None,
    scope: tuple[Scope, ...],
    expires: str | None,
    everything: bool,
) -> None:
    """Create, list or revoke access tokens.

    The secret of a token is printed once, when it is created; the ledger stores only its hash.
    """
    if everything:
        if action != "revoke" or name:
            raise click.UsageError("--all requires revoke without a NAME")
        _revoke_all(run)
        return
    if action == "list":
        with run.reading() as ledger:
            _list(run, ledger.tokens.all())
        return
    if not name:
        raise click.UsageError(f"{action} requires the NAME of a token")
    with run.writing(create=action == "create") as ledger:
        tokens = ledger.tokens
        if action == "revoke":
            _print_token(run, tokens.revoke(name), "revoked")
            return
        expires_at = now_ms() + _lifetime_ms(expires) if expires else None
        created, secret = tokens.create(name, scope or ("read",), expires_at=expires_at)
        _print_token(run, created, "created", secret)


def _revoke_all(run: Invocation) -> None:
    with run.writing() as ledger:
        revoked = ledger.tokens.revoke_all()
    if run.as_json:
        run.out.json(revoked=revoked)
    else:
        note(f"{humanize.count(revoked, 'token')} revoked")


def _print_token(run: Invocation, token: Token, action: str, secret: str | None = None) -> None:
    if run.as_json:
        run.out.json(token=token, secret=secret)
        return
    note(f"{action} ", (token.id, "id"), f" {token.name}: {', '.join(token.scopes)}")
    if secret:
        run.out.line(secret)
        note(("The secret is not shown again.", "dim"))


def _list(run: Invocation, tokens: Sequence[Token]) -> None:
    if run.as_json:
        run.out.json(tokens=tokens)
        return
    if not tokens:
        note("No tokens.")
        return
    now = now_ms()
    rows = [
        (
            (token.id, "id"),
            ", ".join(token.scopes),
            humanize.age(token.created_at, now),
            _state(token, now),
            token.name,
        )
        for token in tokens
    ]
    run.out.table(("ID", "SCOPES", "CREATED", "STATE", "NAME"), rows)


def _state(token: Token, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is None:
        return "valid"
    return "expired" if token.expires_at <= now else f"until {humanize.date(token.expires_at)}"


def _lifetime_ms(text: str) -> int:
    match = re.fullmatch(r"(\d{1,4})([dw])", text)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{text!r} is not a valid lifetime, such as 30d or 12w")
    return int(match[1]) * UNITS[match[2]]
