"""Safety: who is let in, from where, and what every answer says."""

from __future__ import annotations

import asyncio
import http.client
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger, Refused
from agents_ledger.asgi.limits import ClientBuckets
from agents_ledger.cli.servers.server import Server, Serving
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from agents_ledger.web.security import FORM_MAX, RequestHead, _csrf, csrf_of
from tests.waiting import PATIENCE_S
from tests.web.conftest import Running

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def posted(
    running: Running, path: str, form: dict[str, str], cookie: dict[str, str], **headers: str
) -> int:
    sent = {**FORM, **cookie, **{k.replace("_", "-"): v for k, v in headers.items()}}
    body = urllib.parse.urlencode(form).encode()
    return running.ask(path, method="POST", body=body, token=None, headers=sent).status


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "127.0.0.1:{port}.evil.example",
        "127.0.0.1:{port}@evil.example",
        "0.0.0.0:{port}",
        "[::ffff:127.0.0.1]:{port}",
        "2130706433:{port}",
        "localhost:{port}/",
        "",
    ],
)
def test_a_forged_host_is_refused(running: Running, host: str) -> None:
    headers = {"Host": host.format(port=running.server.port)}

    assert running.ask("/sessions", headers=headers).status == 421


def test_known_hosts_are_answered(running: Running) -> None:
    port = running.server.port
    for host in (f"127.0.0.1:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert running.ask("/sessions", headers={"Host": host}).status == 200


@pytest.mark.finding("users-26")
def test_the_api_explains_a_refused_token(own_server: Callable[..., Running]) -> None:
    running = own_server()
    for token in (None, "wrong"):
        answer = running.ask("/api/v1/sessions", token=token)
        assert answer.status == 401
        assert answer.json["message"] == "the token is missing, wrong, expired or revoked"
        assert answer.json["hint"].startswith("Send the header Authorization: Bearer SECRET.")
        assert "agents-ledger token create" in answer.json["hint"]

    refused = [running.ask("/api/v1/sessions", token="wrong") for _ in range(30)][-1]

    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.json["hint"] == "Wait a second."


def test_without_a_token_nothing_is_served(running: Running) -> None:
    for path in ("/", "/sessions", "/s/demo", "/api/v1/sessions", "/raw/session/demo", "/nothing"):
        answer = running.ask(path, token=None)
        assert answer.status == 401
        assert b"demo" not in answer.body
    assert running.ask("/api/v1/sessions", token="wrong").json["kind"] == "unauthorized"
    assert running.ask("/static/app.css", token=None).status == 200


def test_the_token_is_removed_from_the_address(running: Running) -> None:
    secret = running.server.secret

    answer = running.ask(f"/s/demo?token={secret}&tab=raw", token=None)

    assert answer.status == 303
    assert answer.headers["location"] == "/s/demo?tab=raw"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert running.ask("/sessions", token=None, headers=running.log_in()).status == 200


def test_a_token_in_an_address_cannot_lead_to_another_host(running: Running) -> None:
    answer = running.ask(f"//evil.example/x?token={running.server.secret}", token=None)

    assert answer.headers["location"] == "/evil.example/x"


def test_a_wrong_token_in_an_address_opens_nothing(running: Running) -> None:
    answer = running.ask("/sessions?token=wrong", token=None)

    assert answer.status == 401
    assert "set-cookie" not in answer.headers


def test_requests_of_other_sites_are_refused(running: Running) -> None:
    evil = {"Origin": "https://evil.example"}
    assert running.ask("/sessions", headers=evil).status == 403
    assert running.ask("/sessions", headers={"Origin": "null"}).status == 403
    cross = {"Sec-Fetch-Site": "cross-site", **FORM}
    answer = running.ask("/s/demo/annotate", method="POST", body=b"title=x", headers=cross)
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


def test_a_form_needs_a_csrf_token(running: Running) -> None:
    origin = running.server.address.rstrip("/")
    cookie = running.log_in()
    right = csrf_of(cookie["Cookie"].partition("=")[2])

    def annotated(form: dict[str, str], **headers: str) -> int:
        return posted(running, "/s/demo/annotate", form, cookie, **headers)

    assert annotated({"note": "x"}) == 403
    assert annotated({"note": "x", "csrf": "0" * 64}) == 403
    assert annotated({"note": "x", "csrf": "é"}) == 403
    assert annotated({"note": "x"}, X_CSRF_Token="é") == 403
    assert annotated({"csrf": right}, Origin="https://evil.example") == 403
    assert running.ledger.session("demo").note is None
    assert annotated({"note": "", "csrf": right}, Origin=origin) == 303


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_large_form_is_accepted_if_it_has_arrived_whole(is_whole: bool) -> None:
    body = b"csrf=right&note=" + b"x" * FORM_MAX
    message = {"type": "http.request", "body": body, "more_body": not is_whole}
    headers = [(name.encode(), value.encode()) for name, value in FORM.items()]
    scope = {"method": "POST", "path": "/", "query_string": b"", "headers": headers}

    async def receive() -> Any:
        return message

    async def check() -> tuple[Any, bool]:
        receive_again, is_right = await _csrf(receive, RequestHead(scope), "right")
        return await receive_again(), is_right

    assert asyncio.run(check()) == (message, is_whole)


def test_a_simple_request_of_another_page_changes_nothing(running: Running) -> None:
    headers = {**running.log_in(), "Content-Type": "text/plain"}
    body = b'{"label": "stolen"}'

    answer = running.ask("/api/v1/sessions", method="POST", body=body, token=None, headers=headers)

    assert answer.status == 403


def test_a_token_allows_what_its_scopes_say(running: Running) -> None:
    tokens = Tokens(running.ledger._core)
    made, reader = tokens.create("reader", ["read"])
    form = b"note=x"

    assert running.ask("/sessions", token=reader).status == 200
    answer = running.ask("/s/demo/annotate", method="POST", body=form, token=reader, headers=FORM)
    assert answer.status == 403
    tokens.revoke(made.id)
    assert running.ask("/sessions", token=reader).status == 401


def test_every_response_has_the_security_headers(running: Running) -> None:
    for path in ("/sessions", "/static/app.js", "/nothing", "/api/v1/nothing"):
        headers = running.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_the_content_type_is_sent_once(running: Running) -> None:
    kinds = {
        "/sessions": "text/html",
        "/static/app.js": "text/javascript",
        "/static/app.css": "text/css",
        "/share/demo/file?form=markdown": "text/markdown",
        "/share/demo/file?form=html": "text/html",
    }
    for path, kind in kinds.items():
        assert running.ask(path).headers["content-type"] == f"{kind}; charset=utf-8"


def test_an_unchanged_page_is_not_sent_again(running: Running) -> None:
    first = running.ask("/s/demo/history")
    again = running.ask("/s/demo/history", headers={"If-None-Match": first.headers["etag"]})

    assert again.status == 304
    assert again.body == b""


def test_other_machines_need_encryption_or_a_flag(running: Running) -> None:
    with pytest.raises(Refused, match="without encryption"):
        Server(running.ledger, Serving(host="192.0.2.1", port=0))


def test_a_port_in_use_is_refused(running: Running) -> None:
    with pytest.raises(Refused, match="cannot listen"):
        Server(running.ledger, Serving(port=running.server.port))


def test_a_large_body_is_refused(running: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.server.port, timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {running.server.secret}", **FORM}
    connection.request("POST", "/s/demo/annotate", b"note=" + b"x" * (3 << 20), headers)

    assert connection.getresponse().status == 413
    connection.close()


def test_a_bucket_allows_a_burst_and_then_the_rate() -> None:
    buckets = ClientBuckets(3, 0.0)

    assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
    assert buckets.take("b")


@pytest.mark.finding("users-26")
def test_an_unknown_host_is_told_how_to_be_known(running: Running) -> None:
    answer = running.ask("/api/v1/sessions", headers={"Host": "ledger.corp"})

    assert answer.status == 421
    assert "'ledger.corp'" in answer.json["message"]
    assert "--allow-host NAME" in answer.json["hint"]


@pytest.mark.finding("users-26")
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_a_server_on_all_addresses_prints_one_that_opens(
    own_server: Callable[..., Running], host: str
) -> None:
    running = own_server(Serving(host=host, port=0, insecure=True))

    assert running.server.address == f"http://localhost:{running.server.port}/"
    assert not running.server.has_public_name
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(running.server.address_with_token, timeout=PATIENCE_S) as page:
        assert page.status == 200


NAMED = Serving(port=0, names=("ledger.example.org",))


@pytest.mark.parametrize("host", ["ledger.example.org", "Ledger.Example.org:8443"])
def test_a_proxy_with_tls_passes_a_name_on(own_server: Callable[..., Running], host: str) -> None:
    """A proxy keeps the Host header, which has its port or none, and not that of this server."""
    running = own_server(NAMED)
    named = {"Host": host}

    assert running.ask("/api/v1/sessions", headers=named).status == 200

    answer = running.ask(f"/?token={running.server.secret}", token=None, headers=named)
    assert answer.status == 303
    assert answer.headers["set-cookie"].endswith("; Secure")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    form = {"csrf": csrf_of(cookie.partition("=")[2]), "label": "new"}

    def post(origin: str) -> int:
        sent = {"Cookie": cookie, "Host": host}
        return posted(running, "/api/v1/sessions", form, sent, Origin=origin)

    assert post(f"https://{host.lower()}") != 403
    for origin in (
        f"http://{host.lower()}",
        "https://ledger.example.org:9999",
        "https://evil.example",
        f"http://127.0.0.1:{running.server.port + 1}",
    ):
        assert post(origin) == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "ledger.example.org.evil.example",
        "evil.ledger.example.org",
        "ledger.example.org:443:443",
        "ledger.example.org:",
        "ledger.example.org@evil.example",
        "127.0.0.1",
    ],
)
def test_a_name_that_was_not_passed_is_refused(
    own_server: Callable[..., Running], host: str
) -> None:
    assert own_server(NAMED).ask("/api/v1/sessions", headers={"Host": host}).status == 421


def test_a_login_without_tls_is_kept_by_the_browser(own_server: Callable[..., Running]) -> None:
    """Browsers drop a Secure cookie that was sent without encryption."""
    running = own_server(Serving(port=0, names=NAMED.names, insecure=True))

    for host in ("ledger.example.org", f"ledger.example.org:{running.server.port}"):
        login = f"/?token={running.server.secret}"
        answer = running.ask(login, token=None, headers={"Host": host})
        assert "Secure" not in answer.headers["set-cookie"]


@pytest.mark.parametrize("name", ["https://ledger.example.org", "ledger.example.org:443", ""])
def test_what_is_no_host_name_is_refused(tmp_path: Path, name: str) -> None:
    with (
        Ledger.open(str(tmp_path / "ledger.db")) as ledger,
        pytest.raises(Refused, match="is not a host name"),
    ):
        Server(ledger, Serving(port=0, names=(name,)))


def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    missing = str(tmp_path / "missing.pem")
    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        for certificate, key in ((missing, missing), (str(broken), str(broken)), (missing, None)):
            with pytest.raises(Refused, match=f"cannot use the certificate {certificate}"):
                Server(ledger, Serving(port=0, certificate=certificate, key=key))
        with pytest.raises(Refused, match="--tls-key is given without --tls-certificate"):
            Server(ledger, Serving(port=0, key=str(broken)))
