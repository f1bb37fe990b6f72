"""What a request may cost: the size of its JSON, and the time it takes to arrive."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from agents_ledger.asgi.limits import ReadTimeouts
from agents_ledger.cli.servers.server import Serving
from agents_ledger.web.server import JSON_SLOTS
from tests.waiting import PATIENCE_S
from tests.web.conftest import Running

CLOSED_S = 10  # after timeouts of a second at most; the machine may be busy
ROUTES = ("/imports", "/sessions", "/bus/bus:list", "/tokens", "/forks")


@pytest.mark.parametrize("path", ROUTES)
def test_json_that_is_nested_too_deep_is_refused(running: Running, path: str) -> None:
    for body in (b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", b"[" * 500_000, b'{"a":' * 300):
        answer = running.ask(f"/api/v1{path}", method="POST", body=body)

        assert answer.status == 413
        assert answer.json["kind"] == "json_too_large"


def test_json_at_the_depth_limit_is_accepted(running: Running) -> None:
    body = b'{"a":' + b"[" * 198 + b"]" * 198 + b"}"

    for path in ROUTES:
        assert running.ask(f"/api/v1{path}", method="POST", body=body).status in (200, 400, 422)


def memory_kib(name: str) -> int:
    """A line of this process's memory, as Linux has it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))


def reset_peak_memory() -> int:
    """Forget what other tests took; what is in use now, in KiB."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        pytest.skip("the peak of memory can only be reset on Linux")
    return memory_kib("VmRSS")


def test_json_with_too_many_values_is_refused_before_it_is_decoded(running: Running) -> None:
    body = b'{"items":[' + b"[]," * 20_000_000 + b"1]}"
    before = reset_peak_memory()

    answer = running.ask("/api/v1/imports", method="POST", body=body)

    assert answer.status == 413
    assert "1,000,000 values" in answer.json["message"]
    # The body itself is held a few times on its way; decoded it would be 1.3 GB.
    assert memory_kib("VmHWM") - before < 500 * 1024


def test_bodies_occupy_only_some_threads(own_server: Callable[..., Running]) -> None:
    running = own_server()
    body = b"[" + b'{"a":[]},' * 60_000 + b"1]"  # takes a while to check
    before = set(threading.enumerate())
    with ThreadPoolExecutor(8, "client") as clients:
        answers = [
            clients.submit(running.ask, "/api/v1/imports", method="POST", body=body)
            for _ in range(8)
        ]
        statuses = {answer.result().status for answer in answers}
        started = {each.name + str(each.ident) for each in set(threading.enumerate()) - before}

    assert statuses == {400}
    workers = [name for name in started if not name.startswith("client")]
    assert len(workers) <= JSON_SLOTS, workers


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    timeouts = ReadTimeouts(header_s=0.3, body_idle_s=0.3, body_s=1.0)
    address = str(tmp_path_factory.mktemp("impatient") / "ledger.db")
    running = Running(address, Serving(port=0, timeouts=timeouts))
    yield running
    running.stop()


def closed_after(running: Running, *pieces: bytes, pause_s: float = 0.0) -> tuple[float, bytes]:
    """How long the server keeps a connection after these bytes, and what it sends."""
    with socket.create_connection(("127.0.0.1", running.server.port), PATIENCE_S) as connection:
        began = time.monotonic()
        answer = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause_s)
            while received := connection.recv(65536):
                answer += received
        except ConnectionError:
            pass
        return time.monotonic() - began, answer


def test_a_request_that_does_not_arrive_is_closed(impatient: Running) -> None:
    host = f"Host: 127.0.0.1:{impatient.server.port}\r\n".encode()
    token = f"Authorization: Bearer {impatient.server.secret}\r\n".encode()
    begun = b"POST /api/v1/sessions HTTP/1.1\r\n" + host + token
    for half in (
        b"",
        b"GET / HT",
        begun,
        begun + b"Content-Length: 100\r\n\r\n",
        begun + b'Content-Length: 100\r\n\r\n{"label"',
        begun + b"Transfer-Encoding: chunked\r\n\r\n5\r\n",
    ):
        took_s, _ = closed_after(impatient, half)
        assert took_s < CLOSED_S, half


def test_a_second_request_that_does_not_arrive_is_closed(impatient: Running) -> None:
    host = f"Host: 127.0.0.1:{impatient.server.port}\r\n".encode()
    with socket.create_connection(("127.0.0.1", impatient.server.port), CLOSED_S) as connection:
        connection.sendall(b"GET /static/icon.svg HTTP/1.1\r\n" + host + b"\r\n")
        received = b""
        while b"</svg>" not in received:
            received += connection.recv(65536)
        connection.sendall(b"GET / HT")  # which ends the server's own timeout of idle connections
        with suppress(ConnectionResetError):
            while connection.recv(65536):  # fails after CLOSED_S
                pass


def test_a_request_that_trickles_in_is_closed(impatient: Running) -> None:
    head = (
        f"POST /api/v1/sessions HTTP/1.1\r\nHost: 127.0.0.1:{impatient.server.port}\r\n"
        f"Authorization: Bearer {impatient.server.secret}\r\nContent-Length: 9999\r\n\r\n"
    )
    body = (b" " for _ in range(9999))

    took_s, _ = closed_after(impatient, head.encode(), *body, pause_s=0.05)

    assert took_s < CLOSED_S


def test_a_slow_request_within_the_limit_and_an_idle_stream_stay_open(impatient: Running) -> None:
    host = f"Host: 127.0.0.1:{impatient.server.port}\r\n".encode()
    token = f"Authorization: Bearer {impatient.server.secret}\r\n".encode()
    body = b'{"label": "slow"}'
    head = b"POST /api/v1/sessions HTTP/1.1\r\nConnection: close\r\n" + host + token
    head += b"Content-Length: %d\r\n\r\n" % len(body)

    _, answer = closed_after(impatient, head, body[:8], body[8:], pause_s=0.1)

    assert answer.startswith(b"HTTP/1.1 201")
    with socket.create_connection(("127.0.0.1", impatient.server.port), PATIENCE_S) as stream:
        stream.sendall(b"GET /api/v1/changes HTTP/1.1\r\n" + host + token + b"\r\n")
        time.sleep(1.5)  # longer than every timeout
        impatient.ledger.record("streamed", "q", "r")
        received = b""
        while b"streamed" not in received:
            piece = stream.recv(65536)
            assert piece
            received += piece


def test_the_options_of_serve_do_not_need_the_web_extra() -> None:
    code = "import sys; import agents_ledger.cli.servers.server; sys.exit('uvicorn' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
