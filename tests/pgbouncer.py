"""The real PgBouncer, before the tests' PostgreSQL server, on a port of the loopback interface."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from tests.waiting import until

Mode = Literal["transaction", "session"]

SETTINGS = """\
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 400
logfile = {folder}/pgbouncer.log
"""


def program() -> str:
    """Where PgBouncer is; without it the tests that need it are skipped."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    if found := shutil.which("pgbouncer", path=path):
        return found
    pytest.skip("PgBouncer is not installed: POOLERS ARE NOT TESTED (apt-get install pgbouncer)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def pgbouncer(server: str, mode: Mode, *, size: int = 8) -> Iterator[str]:
    """The address of the server's database behind a pooler of so many connections."""
    pooler = program()
    address = urlsplit(server)
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o777)  # for root it runs as another user
        listen = free_port()
        host = parse_qs(address.query).get("host", [address.hostname or "127.0.0.1"])[0]
        settings = SETTINGS.format(
            host=host,
            port=address.port or 5432,
            user=address.username or "postgres",
            listen=listen,
            mode=mode,
            size=size,
            folder=folder,
        )
        (folder / "pgbouncer.ini").write_text(settings)
        as_user = ["-u", _owner(host)] if os.getuid() == 0 else []
        with subprocess.Popen(
            [pooler, "-q", *as_user, str(folder / "pgbouncer.ini")], stderr=subprocess.DEVNULL
        ) as process:
            behind = f"postgresql://postgres@127.0.0.1:{listen}{address.path}"
            try:
                until(lambda: process.poll() is None and _answers(behind))
                yield behind
            finally:
                process.terminate()


def _owner(host: str) -> str:
    """Who may use the server's socket. PgBouncer does not run as root."""
    return Path(host).owner() if host.startswith("/") else "nobody"


def _answers(address: str) -> bool:
    try:
        with psycopg.connect(address, connect_timeout=2) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True
