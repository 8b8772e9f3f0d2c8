"""HTTP fetches of keys and tokens over TLS from a real web server: trusted CAs and time-outs."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ottla.client.network.bearer_tokens import ALLOWED_URLS_VARIABLE, granted
from ottla.client.network.web_fetch import WebFetchError, fetch
from ottla.model.settings.security.client_security import login_of
from ottla.model.settings.security.oauth import OAuthGrant, endpoint_tls_of
from ottla.model.settings.security.tls import TlsConfig

Authority = Any  # the class of the fixture, in tests/conftest.py
HOST = "127.0.0.1"


class WebServer:
    """A TLS web server with fixed answers that counts its requests."""

    def __init__(self, authority: Authority) -> None:
        self.answers: list[int] = []
        """Codes of the next answers; then 200."""
        self.asked: list[str] = []
        self.slow_s = 0.0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                code = server.answers.pop(0) if server.answers else 200
                time.sleep(server.slow_s)
                body = json.dumps({"access_token": "token", "keys": []}).encode()
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", f"{server.url}/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue(HOST))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{HOST}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def web(authority: Authority) -> Iterator[WebServer]:
    found = WebServer(authority)
    yield found
    found.close()


def trusting(authority: Authority) -> TlsConfig:
    found = endpoint_tls_of({"ssl.truststore.location": str(authority.file)})
    assert found is not None
    return found


def grant_at(web: WebServer, authority: Authority, **more: Any) -> OAuthGrant:
    return OAuthGrant(
        token_url=web.url, client_id="c", client_secret="s", tls=trusting(authority), **more
    )


def test_a_server_is_trusted_by_the_ca_that_is_set_and_by_no_other(
    web: WebServer, authority: Authority, new_authority: Callable[[str], Authority]
) -> None:
    assert b"keys" in fetch(web.url, bytes_max=1_000, tls=trusting(authority))
    for tls in (None, trusting(new_authority("stranger"))):
        with pytest.raises(WebFetchError, match="certificate is not accepted: unable to get"):
            fetch(web.url, bytes_max=1_000, tls=tls)
    assert len(web.asked) == 1


def test_a_certificate_of_another_host_is_not_accepted(
    web: WebServer, authority: Authority
) -> None:
    elsewhere = web.url.replace(HOST, "localhost")
    with pytest.raises(WebFetchError, match="certificate is not accepted: hostname mismatch"):
        fetch(elsewhere, bytes_max=1_000, tls=trusting(authority))


def test_redirects_and_answers_beyond_the_bound_are_refused(
    web: WebServer, authority: Authority
) -> None:
    ask = partial(fetch, web.url, tls=trusting(authority))
    web.answers = [302]
    with pytest.raises(WebFetchError, match="answers 302") as caught:
        ask(bytes_max=1_000)
    assert caught.value.is_final
    with pytest.raises(WebFetchError, match="longer than 10 bytes"):
        ask(bytes_max=10)
    assert web.asked == ["", ""] or web.asked == ["/", "/"]


def test_a_file_of_cas_that_cannot_be_read_is_said(web: WebServer) -> None:
    tls = endpoint_tls_of({"ssl.truststore.location": "/nowhere.pem"})
    with pytest.raises(WebFetchError, match=r"option ssl\.truststore\.location.*cannot be read"):
        fetch(web.url, bytes_max=1_000, tls=tls)


async def test_the_time_of_an_answer_is_bounded_by_its_setting(
    web: WebServer, authority: Authority
) -> None:
    web.slow_s = 3
    grant = grant_at(web, authority, read_timeout_ms=50, retry_backoff_max_ms=0)
    with pytest.raises(WebFetchError, match="timed out"):
        await granted(grant)


async def test_the_time_of_a_connection_is_bounded_by_its_setting(authority: Authority) -> None:
    # A listener whose queue is full accepts no connection.
    with socket.socket() as full:
        full.bind((HOST, 0))
        full.listen(0)
        address = full.getsockname()
        others = [socket.socket() for _ in range(4)]
        for one in others:
            one.setblocking(False)
            one.connect_ex(address)
        grant = OAuthGrant(
            token_url=f"https://{HOST}:{address[1]}",
            tls=trusting(authority),
            connect_timeout_ms=50,
            retry_backoff_max_ms=0,
        )
        with pytest.raises(WebFetchError, match="timed out"):
            await granted(grant)
        for one in others:
            one.close()


async def test_a_token_is_asked_for_again_while_the_server_cannot(
    web: WebServer, authority: Authority
) -> None:
    web.answers = [503, 429]
    found = await granted(grant_at(web, authority, retry_backoff_ms=1))
    assert (found.value, len(web.asked)) == ("token", 3)


@pytest.mark.parametrize(("code", "max_ms"), [(401, 10_000), (503, 0)])
async def test_no_token_is_asked_for_again_where_that_is_in_vain_or_not_meant(
    web: WebServer, authority: Authority, code: int, max_ms: int
) -> None:
    web.answers = [code]
    with pytest.raises(WebFetchError, match=str(code)):
        await granted(grant_at(web, authority, retry_backoff_max_ms=max_ms))
    assert len(web.asked) == 1


async def test_a_process_may_list_where_tokens_come_from(
    web: WebServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = grant_at(web, authority)
    monkeypatch.setenv(ALLOWED_URLS_VARIABLE, "https://issuer.example/token")
    with pytest.raises(WebFetchError, match=f"{ALLOWED_URLS_VARIABLE} does not list {web.url}"):
        await granted(grant)
    assert not web.asked
    monkeypatch.setenv(ALLOWED_URLS_VARIABLE, f"https://issuer.example/token, {web.url}")
    assert (await granted(grant)).value == "token"


async def test_a_client_says_by_librdkafkas_key_whom_it_trusts(
    web: WebServer, authority: Authority
) -> None:
    login = login_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": web.url,
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.client.secret": "s",
            "https.ca.location": str(authority.file),
        }
    )
    assert login is not None
    assert login.grant is not None
    assert (await granted(login.grant)).value == "token"


@pytest.mark.parametrize(
    "start", ["", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"]
)
def test_a_server_that_says_a_byte_now_and_then_is_left_at_the_deadline(start: str) -> None:
    """Each byte is in time; the head, or the length of a chunk, never ends."""
    is_over = threading.Event()

    def drip(listener: socket.socket) -> None:
        with listener.accept()[0] as accepted:
            accepted.sendall(start.encode())
            while not is_over.is_set():
                try:
                    accepted.sendall(b"1" if start else b"H")
                except OSError:
                    return
                time.sleep(0.05)

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        begun_s = time.monotonic()
        try:
            with pytest.raises(WebFetchError, match=r"it takes too long|timed out"):
                fetch(
                    f"http://{HOST}:{listener.getsockname()[1]}",
                    bytes_max=1_000_000,
                    connect_timeout_s=0.5,
                    read_timeout_s=0.5,
                )
        finally:
            is_over.set()
            thread.join()
    # It would go on for as long as the server does: 65,536 bytes of a line are an hour.
    assert time.monotonic() - begun_s < 60
