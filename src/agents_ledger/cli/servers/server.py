"""A web server for a ledger: its address, its tokens and its process."""

from __future__ import annotations

import gc
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from agents_ledger.asgi.limits import AuditLimits, ReadTimeouts
from agents_ledger.bus.live_turns import LiveLimits
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.maintenance.access_tokens import new_secret
from agents_ledger.model.access import RUN_TOKEN
from agents_ledger.model.errors import Refused
from agents_ledger.web.logins import LoginLimits, Logins

if TYPE_CHECKING:
    import uvicorn

    from agents_ledger.importers.background_import import BackgroundImport
    from agents_ledger.web.security import AccessPolicy

PORT = 8717
PORTS_TRIED = 20
# New objects between two runs of the garbage collector, which took 6 % of the server's time.
GARBAGE_MIN = 10_000
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOST_NAME = re.compile(r"[\w.-]+|[0-9A-Fa-f:]+")
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - to be compared with


class Serving(Struct, frozen=True, kw_only=True):
    """The settings of a server."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: the default, or the next that is free
    names: Sequence[str] = ()  # further host names it answers to
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False  # allow other machines without encryption
    logins: LoginLimits = LoginLimits()
    timeouts: ReadTimeouts = ReadTimeouts()
    audits: AuditLimits = AuditLimits()
    live: LiveLimits = LiveLimits()


class Server:
    """A ledger behind HTTP. Its socket is open once it is created."""

    def __init__(
        self, ledger: Ledger, serving: Serving, imports: BackgroundImport | None = None
    ) -> None:
        self.is_https = serving.certificate is not None
        if serving.host not in LOOPBACK and not self.is_https and not serving.insecure:
            raise Refused(
                f"{serving.host} is reachable from other machines, without encryption",
                "Pass --tls-certificate and --tls-key, or --insecure on a trusted network.",
            )
        for name in serving.names:
            if not _HOST_NAME.fullmatch(name):
                raise Refused(
                    f"{name!r} is not a host name",
                    "Pass --allow-host a name such as ledger.example.org, without https:// and"
                    " port.",
                )
        _check_certificate(serving)
        self._ledger = ledger
        self._serving = serving
        self._imports = imports
        self._socket = _listen(serving)
        self.port = int(self._socket.getsockname()[1])
        self.secret = new_secret()
        self._logins = Logins(serving.logins)
        self._uvicorn: uvicorn.Server | None = None

    @property
    def address(self) -> str:
        """The address without a token."""
        host = f"[{self._serving.host}]" if ":" in self._serving.host else self._serving.host
        if self._serving.host in ANY_ADDRESS:
            host = self._serving.names[0] if self._serving.names else "localhost"
        return f"{'https' if self.is_https else 'http'}://{host}:{self.port}/"

    @property
    def has_public_name(self) -> bool:
        """Whether every machine that reaches it knows a name that it answers to."""
        return self._serving.host not in ANY_ADDRESS or bool(self._serving.names)

    @property
    def address_with_token(self) -> str:
        """The address for people: opened in a browser it logs in, any number of times."""
        return f"{self.address}?token={self.secret}"

    def address_with_code(self) -> str:
        """The address for a browser started by this process: it logs in once, within two minutes,
        because other users of the machine can read the arguments of processes."""
        return f"{self.address}login?code={self._logins.new_code(RUN_TOKEN.id)}"

    def run(
        self, *, own_process: bool = False, on_start: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until interrupted or stopped. `own_process`: nothing else runs in this process.
        `on_start` is called when the server is ready."""
        import uvicorn

        from agents_ledger.asgi.read_timeouts import protocol_with
        from agents_ledger.web.security import TokenDoor
        from agents_ledger.web.server import make

        def started() -> None:
            # Not before uvicorn handles Ctrl-C: raised in a finalizer, it would be lost.
            if own_process:
                _freeze_garbage()
            on_start()

        door = TokenDoor(self.secret, self._ledger.tokens, self._logins)
        config = uvicorn.Config(
            make(
                self._ledger,
                door,
                self._policy(),
                with_broker=self._has_engine(),
                audits=self._serving.audits,
                imports=self._imports,
                on_start=started,
                live=self._serving.live,
            ),
            http=protocol_with(self._serving.timeouts),
            log_level="warning",
            # Its lines would contain the token of the address.
            access_log=False,
            # Neither product names nor headers that a client can forge.
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            timeout_graceful_shutdown=2,
            ssl_certfile=self._serving.certificate,
            ssl_keyfile=self._serving.key,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
        self._uvicorn = uvicorn.Server(config)
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """End run(), from another thread."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    def _has_engine(self) -> bool:
        """Whether the policy names a model that answers chats."""
        from agents_ledger.broker import policy

        return policy.load(self._ledger.address).names_model

    def _policy(self) -> AccessPolicy:
        from agents_ledger.web.security import AccessPolicy

        names = {_as_host(name) for name in (self._serving.host, *self._serving.names)}
        own = names | {_as_host(name) for name in LOOPBACK}
        return AccessPolicy(
            hosts=frozenset(f"{host}:{self.port}" for host in own),
            # Not those of this machine: other programs serve pages at its other ports.
            names=frozenset(names - {_as_host(name) for name in (*LOOPBACK, *ANY_ADDRESS)}),
            is_https=self.is_https,
            insecure=self._serving.insecure,
            # Browsers share cookies between all ports of a host: two servers would log each other
            # out.
            cookie=f"agents_ledger_{self.port}",
        )


def _as_host(name: str) -> str:
    """A name as the Host header has it."""
    return f"[{name}]" if ":" in name else name.lower()


def _check_certificate(serving: Serving) -> None:
    """Refuse files that cannot be used, before the address is printed."""
    if serving.certificate is None:
        if serving.key is not None:
            raise Refused("--tls-key is given without --tls-certificate", "Pass both.")
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(serving.certificate, serving.key)
    except OSError as error:
        key = serving.key or serving.certificate
        raise Refused(
            f"cannot use the certificate {serving.certificate} and the key {key}: {error}",
            "Pass PEM files that belong together with --tls-certificate and --tls-key.",
        ) from error


def _freeze_garbage() -> None:
    """Exclude what is loaded now from garbage collection: scanning it again and again takes 6 % of
    a busy server's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_MIN)


def _listen(serving: Serving) -> socket.socket:
    family = socket.AF_INET6 if ":" in serving.host else socket.AF_INET
    last: OSError | None = None
    ports = range(PORT, PORT + PORTS_TRIED) if serving.port is None else (serving.port,)
    for port in ports:
        # asyncio sets TCP_NODELAY only if the protocol is named; without it each small response
        # waits 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((serving.host, port))
            listener.listen(128)
        except (OSError, OverflowError) as error:
            listener.close()
            last = error if isinstance(error, OSError) else OSError(str(error))
        else:
            return listener
    raise Refused(
        f"cannot listen on {serving.host}, port {ports[0]}: {last}", "Choose another with --port."
    ) from last
