"""A PostgreSQL cluster on the loopback interface, as a team would run it: three nodes with Patroni,
etcd, HAProxy that finds the primary by Patroni's health check, and PgBouncer before it.

Every way into and out of a node (clients, replication, Patroni's API, etcd) leads through a port
that can be cut. The programs come from Debian's packages: patroni, etcd-server, postgresql,
haproxy and pgbouncer.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psycopg

from tests.pgbouncer import free_port
from tests.trust import harness

NODES = ("n1", "n2", "n3")
PROGRAMS = ("patroni", "etcd", "haproxy", "pgbouncer", "initdb")
INSTALL = "apt-get install postgresql patroni etcd-server haproxy pgbouncer"
PASSWORD = "trust"  # the servers trust the loopback interface
READY_S = 240
TTL_S = 20  # the least that Patroni allows: after this a silent primary has lost its lock

Link = Literal["clients", "checks", "peers", "api", "etcd"]
CLIENT_LINKS: tuple[Link, ...] = ("clients", "checks")
LINKS: tuple[Link, ...] = (*CLIENT_LINKS, "peers", "api", "etcd")

HAPROXY = """\
global
  maxconn 500
defaults
  mode tcp
  timeout connect 4s
  timeout client 30m
  timeout server 30m
  timeout check 2s
frontend ledger
  bind 127.0.0.1:{port}
  default_backend primary
backend primary
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 1s fall 3 rise 2 on-marked-down shutdown-sessions
"""
PGBOUNCER = """\
[databases]
* = host=127.0.0.1 port={target} user=postgres password={password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 24
max_client_conn = 400
server_connect_timeout = 5
server_login_retry = 1
query_wait_timeout = 60
tcp_keepalive = 1
tcp_keepidle = 5
tcp_keepintvl = 2
tcp_keepcnt = 3
tcp_user_timeout = 10000
"""


def program(name: str) -> str | None:
    """The path of a program of the cluster, if it is installed."""
    servers = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places = (*map(str, servers), os.environ.get("PATH", ""), "/usr/sbin")
    return shutil.which(name, path=os.pathsep.join(places))


class Node:
    """One server with its Patroni."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.folder = cluster.folder / name
        self.ports = {link: free_port() for link in LINKS}  # those that others connect to
        self.own_sql, self.own_api = free_port(), free_port()
        self._cluster = cluster
        self._patroni: subprocess.Popen[bytes] | None = None

    @property
    def pairs(self) -> list[str]:
        """What the proxy forwards for this node."""
        targets: dict[Link, int] = {
            "clients": self.own_sql,
            "checks": self.own_api,
            "peers": self.own_sql,
            "api": self.own_api,
            "etcd": self._cluster.etcd_port,
        }
        return [f"{self.ports[link]}={targets[link]}" for link in LINKS]

    def start(self) -> None:
        settings = self.folder / "patroni.json"
        if not settings.exists():
            self.folder.mkdir(mode=0o755)
            settings.write_text(json.dumps(self._settings()))
            self._cluster.own(self.folder)
        self._patroni = self._cluster.run("patroni", str(settings), log=f"{self.name}.log")

    def _settings(self) -> dict[str, Any]:
        """Patroni's configuration. JSON is YAML."""
        login = {"username": "postgres", "password": PASSWORD}
        return {
            "scope": "ledger",
            "name": self.name,
            "restapi": {
                "listen": f"127.0.0.1:{self.own_api}",
                "connect_address": f"127.0.0.1:{self.ports['api']}",
            },
            # As of a proxy: the address that etcd advertises would lead around the link.
            "etcd3": {"hosts": [f"127.0.0.1:{self.ports['etcd']}"], "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S,
                    "loop_wait": 2,
                    "retry_timeout": 4,
                    "primary_start_timeout": 0,
                    "synchronous_mode": self._cluster.is_synchronous,
                    "synchronous_mode_strict": self._cluster.is_synchronous,
                    "postgresql": {"use_pg_rewind": True, "use_slots": True},
                },
                "initdb": [{"encoding": "UTF8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.own_sql}",
                "connect_address": f"127.0.0.1:{self.ports['peers']}",
                "data_dir": str(self.folder / "data"),
                "bin_dir": str(Path(program("initdb") or "").parent),
                "pgpass": str(self.folder / "pgpass"),
                "authentication": {"superuser": login, "replication": login, "rewind": login},
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
                "use_unix_socket": True,
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "parameters": {
                    "unix_socket_directories": str(self.folder),
                    "max_connections": 150,
                    "shared_buffers": "64MB",
                    "wal_keep_size": "512MB",
                    "wal_receiver_timeout": "5s",
                    "wal_sender_timeout": "5s",
                },
            },
        }

    def kill_server(self) -> None:
        """kill -9 of all processes of the server, but not of Patroni."""
        with contextlib.suppress(OSError, ValueError):
            first_line = (self.folder / "data" / "postmaster.pid").read_text().split("\n")[0]
            _kill_with_children(int(first_line))

    def kill_machine(self) -> None:
        """What a machine that stops looks like: server and Patroni are gone at once."""
        if self._patroni:
            self._patroni.kill()
            self._patroni.wait()
        self.kill_server()

    def stop(self) -> None:
        self.kill_machine()


class Cluster:
    """Three nodes and what finds the primary among them."""

    def __init__(self, folder: Path, *, synchronous: bool = True) -> None:
        self.folder = folder
        self.is_synchronous = synchronous
        self.user = "postgres" if os.getuid() == 0 else None
        self.etcd_port = free_port()
        self.nodes = {name: Node(self, name) for name in NODES}
        self._haproxy_port, self._pooler_port = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._proxy: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """Of the database behind the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self._pooler_port}/postgres"

    @property
    def direct_address(self) -> str:
        """Of the nodes themselves: the primary for writes, a standby for reads."""
        hosts = ",".join("127.0.0.1" for _ in self.nodes)
        ports = ",".join(str(node.ports["clients"]) for node in self.nodes.values())
        options = f"host={hosts}&port={ports}&connect_timeout=3&read_from=standby"
        return f"postgresql://postgres@/postgres?{options}"

    def own(self, folder: Path) -> None:
        """Give a folder to the user that the servers run as: they refuse to run as root."""
        if self.user:
            shutil.chown(folder, self.user)

    def run(self, name: str, *arguments: str, log: str) -> subprocess.Popen[bytes]:
        path = program(name)
        assert path, f"{name} is not installed: {INSTALL}"
        with (self.folder / log).open("ab") as output:
            process = subprocess.Popen(
                [path, *arguments],
                stdout=output,
                stderr=output,
                cwd=self.folder,
                user=self.user,
                group=self.user,
            )
        self._processes.append(process)
        return process

    def start(self) -> None:
        self.own(self.folder)
        self.folder.chmod(0o755)
        self._start_etcd()
        pairs = [pair for node in self.nodes.values() for pair in node.pairs]
        self._proxy = subprocess.Popen(
            [sys.executable, "-m", "tests.trust.severable_proxy", *pairs],
            cwd=harness.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in self.nodes.values():
            node.start()
        self._start_front()
        self.wait_until_healthy()

    def _start_etcd(self) -> None:
        client = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{free_port()}"
        arguments = {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        self.run(
            "etcd", *(f"--{name}={value}" for name, value in arguments.items()), log="etcd.log"
        )

    def _start_front(self) -> None:
        servers = [
            f"  server {node.name} 127.0.0.1:{node.ports['clients']}"
            f" check port {node.ports['checks']}\n"
            for node in self.nodes.values()
        ]
        haproxy, pgbouncer = self.folder / "haproxy.cfg", self.folder / "pgbouncer.ini"
        haproxy.write_text(HAPROXY.format(port=self._haproxy_port) + "".join(servers))
        pgbouncer.write_text(
            PGBOUNCER.format(port=self._pooler_port, target=self._haproxy_port, password=PASSWORD)
        )
        self.run("haproxy", "-f", str(haproxy), log="haproxy.log")
        self.run("pgbouncer", str(pgbouncer), log="pgbouncer.log")

    def close(self) -> None:
        for node in self.nodes.values():
            node.stop()
        for process in self._processes:
            process.kill()
            process.wait()
        if self._proxy:
            self._proxy.kill()
            self._proxy.wait()

    # -- what happens to it ----------------------------------------------------------------------

    def isolate(self, node: Node, *, from_clients: bool) -> None:
        """Cut a node off from the other nodes and etcd, perhaps also from clients and HAProxy."""
        for link in LINKS:
            if from_clients or link not in CLIENT_LINKS:
                self._tell_proxy("cut", node.ports[link])

    def rejoin(self, node: Node) -> None:
        for link in LINKS:
            self._tell_proxy("heal", node.ports[link])

    def _tell_proxy(self, verb: str, port: int) -> None:
        assert self._proxy
        assert self._proxy.stdin
        assert self._proxy.stdout
        self._proxy.stdin.write(f"{verb} {port}\n")
        self._proxy.stdin.flush()
        self._proxy.stdout.readline()

    def switch_over(self, primary: Node, candidate: Node) -> None:
        """Ask Patroni for a planned change of the primary."""
        body = json.dumps({"leader": primary.name, "candidate": candidate.name}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", primary.own_api, timeout=60)
        connection.request("POST", "/switchover", body)
        response = connection.getresponse()
        assert response.status < 300, response.read()
        connection.close()

    # -- its state -------------------------------------------------------------------------------

    def members(self) -> list[dict[str, Any]]:
        """The members as the first node that answers sees them."""
        for node in self.nodes.values():
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", node.own_api, timeout=2)
                connection.request("GET", "/cluster")
                members: list[dict[str, Any]] = json.load(connection.getresponse())["members"]
                connection.close()
                if any(member["role"] == "leader" for member in members):
                    return members
        return []

    def primary(self) -> Node | None:
        names = [m["name"] for m in self.members() if m["role"] == "leader"]
        return self.nodes[names[0]] if names else None

    def next_primary(self) -> Node | None:
        """The standby that a failover promotes."""
        role = "sync_standby" if self.is_synchronous else "replica"
        names = [m["name"] for m in self.members() if m["role"] == role]
        return self.nodes[names[0]] if names else None

    def is_healthy(self) -> bool:
        """Whether all three run, one of them is synchronous, and the primary answers clients."""
        members = self.members()
        running = [m for m in members if m["state"] in ("running", "streaming")]
        if len(running) < len(NODES) or self.next_primary() is None:
            return False
        try:
            with psycopg.connect(self.address, connect_timeout=3) as connection:
                row = connection.execute(
                    "SELECT NOT pg_is_in_recovery(),"
                    " (SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')"
                ).fetchone()
        except psycopg.OperationalError:
            return False
        return row == (True, len(NODES) - 1)

    def wait_until_healthy(self) -> None:
        end = time.monotonic() + READY_S
        while not self.is_healthy():
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the cluster is not healthy after {READY_S} s: {self.members()}"
                )
            time.sleep(0.5)


def _kill_with_children(pid: int) -> None:
    """kill -9, children first found, parent first killed: it can start no others."""
    children = [
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]
    for process in (pid, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def own_cluster(*, synchronous: bool = True) -> Iterator[Cluster]:
    """A cluster for one run."""
    with harness.workplace(on_disk=True) as folder:
        cluster = Cluster(folder, synchronous=synchronous)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()
