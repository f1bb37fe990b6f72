"""mcp: the ledger for other agents, over the Model Context Protocol."""

from __future__ import annotations

import socket
import sys
from importlib.util import find_spec

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import note
from agents_ledger.model.errors import Refused

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PORT = 8718


@command
@click.option("--write", is_flag=True, help="Offer what changes the ledger, too.")
@click.option("--http", is_flag=True, help="Listen for clients with a token; else stdin, stdout.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.option("--allow-host", multiple=True, metavar="NAME", help="A further name it answers to.")
@click.option("--insecure", is_flag=True, help="Let other machines in without encryption.")
def mcp(
    run: Invocation,
    *,
    write: bool,
    http: bool,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    insecure: bool,
) -> None:
    """Offer the ledger to other agents, until they leave.

    Without --write the ledger is opened for reading only. Tokens for --http are made with
    `agents-ledger token`.
    """
    if find_spec("mcp") is None:
        raise Refused(
            "this needs mcp, which is not installed",
            "Install it with: pip install 'agents-ledger[mcp]'",
        )
    if http and host not in LOOPBACK and not insecure:
        raise Refused(
            f"{host} is open to other machines, and nothing would be encrypted",
            "Put a server with TLS before it, or give --insecure if the network is trusted.",
        )
    from agents_ledger.mcp.serving import PATH, serve_http, serve_stdio

    with run.writing() if write else run.reading() as ledger:
        if not http:
            serve_stdio(ledger, write=write)
            return
        with _listen(host, port) as listening:
            shown = f"[{host}]" if ":" in host else host
            address = f"http://{shown}:{listening.getsockname()[1]}{PATH}"
            if run.as_json:
                run.out.json(address=address)
            else:
                run.out.line(address)
                note(("Clients need a token; Ctrl-C ends the server.", "dim"))
            sys.stdout.flush()
            names = ("127.0.0.1", "localhost", "[::1]", shown, *allow_host)
            serve_http(ledger, listening, write=write, hosts=names)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Refused(
            f"cannot listen on {host}:{port}: {error.strerror}", "Choose another --port; 0 for any."
        ) from error
