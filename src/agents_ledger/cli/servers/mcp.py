"""mcp: serve the ledger to other agents over the Model Context Protocol."""

from __future__ import annotations

import socket
import sys

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import note
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.installation import extras

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PORT = 8718


@command
@click.option("--write", is_flag=True, help="Also offer the tools that write.")
@click.option("--all", "every", is_flag=True, help="Also offer the abilities of the bus.")
@click.option(
    "--http", is_flag=True, help="Serve over HTTP with access tokens instead of stdin and stdout."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 for any free port.",
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="Additional host name to accept.")
@click.option("--insecure", is_flag=True, help="Accept other machines without TLS.")
def mcp(
    run: Invocation,
    *,
    write: bool,
    every: bool,
    http: bool,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    insecure: bool,
) -> None:
    """Serve the ledger to other agents over MCP until they disconnect.

    At most 12 tools are offered, unless --all. Without --write the ledger is opened read-only.
    Create tokens for --http with `agents-ledger token create`.
    """
    extras.check("mcp", "the MCP server", "mcp")
    if http and host not in LOOPBACK and not insecure:
        raise Refused(
            f"{host} is reachable by other machines, and the connection is not encrypted",
            "Put a TLS proxy in front of it, or add --insecure on a trusted network.",
        )
    from agents_ledger.mcp.serving import PATH, serve_http, serve_stdio

    with _opened(run, write=write) as ledger:
        if not http:
            serve_stdio(ledger, write=write, every=every)
            return
        with _listen(host, port) as listening:
            name = f"[{host}]" if ":" in host else host
            address = f"http://{name}:{listening.getsockname()[1]}{PATH}"
            if run.as_json:
                run.out.json(address=address)
            else:
                run.out.line(address)
                note(("Clients need an access token. Press Ctrl-C to stop the server.", "dim"))
            sys.stdout.flush()
            names = ("127.0.0.1", "localhost", "[::1]", name, *allow_host)
            serve_http(ledger, listening, write=write, every=every, hosts=names)


def _opened(run: Invocation, *, write: bool) -> Ledger:
    """The ledger, created if there is none yet: an agent cannot do that."""
    if write:
        return run.writing(create=True)
    try:
        return run.reading()
    except NotFound:
        run.writing(create=True).close()
        return run.reading()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Refused(
            f"cannot listen on {host}:{port}: {error.strerror}", "Choose another --port; 0 for any."
        ) from error
