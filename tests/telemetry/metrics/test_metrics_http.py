"""GET /metrics over real sockets."""

import gzip
import ssl
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, cast
from urllib.request import Request, urlopen

import pytest
import trio
import trio.testing

from ottla.model.errors import ConfigError, ProtocolError
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.settings.telemetry.metrics_access import MetricsAccess
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.metrics.metrics_http_driver import (
    ANSWER_PATIENCE_S,
    CONNECTION_COUNT_MAX,
    IDLE_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    MetricsServer,
    MetricsTls,
    parse_head,
    serve_metrics,
)

HOST = "127.0.0.1"
TEXT = [f'ottla_x{{a="{at}"}} 1\n'.encode() for at in range(20_000)]


def render() -> Iterator[bytes]:
    return iter(TEXT)


@pytest.fixture
async def port(nursery: trio.Nursery) -> int:
    bound: int = await nursery.start(serve)
    return bound


async def serve(task_status: trio.TaskStatus[int]) -> None:
    await serve_metrics(render, host=HOST, port=0, task_status=task_status)


async def ask(port: int, request: bytes) -> bytes:
    """Send some bytes and return all that comes back."""
    async with await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(request)
        return b"".join([data async for data in stream])


def fetched(port: int, path: str = "/metrics", **headers: str) -> tuple[bytes, dict[str, str]]:
    with urlopen(Request(f"http://{HOST}:{port}{path}", headers=headers)) as response:
        return response.read(), dict(response.headers)


async def test_python_s_own_client_reads_the_text(port: int) -> None:
    body, headers = await trio.to_thread.run_sync(fetched, port)

    assert body == b"".join(TEXT)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_the_text_is_packed_for_who_unpacks_it(port: int) -> None:
    def packed() -> tuple[bytes, dict[str, str]]:
        return fetched(port, **{"Accept-Encoding": "br, gzip;q=0.5"})

    body, headers = await trio.to_thread.run_sync(packed)

    assert headers["Content-Encoding"] == "gzip"
    assert len(body) < sum(map(len, TEXT)) / 5
    assert gzip.decompress(body) == b"".join(TEXT)


async def test_a_connection_is_kept_for_the_next_scrape(port: int) -> None:
    one = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET /metrics?x=y HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

    said = await ask(port, one + one + last)

    assert said.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert said.count(b"\r\n0\r\n\r\n") == 3


async def test_an_old_client_gets_the_text_as_it_is(port: int) -> None:
    said = await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")

    head, _, body = said.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"".join(TEXT)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", b"404 Not Found"),
        (b"GET /metrics/x HTTP/1.1", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed"),
        (b"nonsense", b"400 Bad Request"),
        (b"\x00\x00\x00\x10\x00\x12\x00\x03", b"400 Bad Request"),
    ],
)
async def test_whatever_else_is_asked_for_is_refused(
    port: int, request_line: bytes, status: bytes
) -> None:
    said = await ask(port, request_line + b"\r\n\r\n")

    assert said.startswith(b"HTTP/1.1 " + status + b"\r\n")


async def test_a_request_without_an_end_is_given_up(port: int) -> None:
    said = await ask(port, b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 4_000)

    assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")


Authority = Any  # the class of the fixture, in tests/conftest.py


@pytest.fixture(params=["http", "https"])
async def slow_client(
    request: pytest.FixtureRequest,
    nursery: trio.Nursery,
    authority: Authority,
) -> trio.abc.Stream:
    """A client's end of a connection, over memory."""
    here, there = trio.testing.memory_stream_pair()
    tls, stream = None, cast(trio.abc.Stream, here)
    if request.param == "https":
        file = authority.issue(HOST)
        tls = MetricsTls(TlsConfig(certificate_location=str(file)))
        context = ssl.create_default_context(cafile=str(authority.file))
        stream = trio.SSLStream(here, context, server_hostname=HOST, https_compatible=True)
    server = MetricsServer(lambda: iter(TEXT[:1]), UnexpectedErrors(), tls=tls)
    nursery.start_soon(server.serve, there)
    return stream


async def dripped(stream: trio.abc.Stream, data: bytes, *, pause_s: float = 1.0) -> float:
    """Send one byte after the other until the server hangs up; return the seconds that took."""
    begun_s = trio.current_time()
    for at in range(len(data)):
        try:
            await stream.send_all(data[at : at + 1])
        except trio.BrokenResourceError:
            return trio.current_time() - begun_s
        await trio.sleep(pause_s)
    raise AssertionError("the server took it all")


async def test_a_request_that_comes_byte_by_byte_is_given_up_at_its_deadline(
    slow_client: trio.abc.Stream, autojump_clock: trio.testing.MockClock
) -> None:
    head = b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 100
    assert await dripped(slow_client, head) <= REQUEST_TIMEOUT_S + 1


async def test_so_is_the_next_request_of_a_connection_from_its_first_byte_on(
    slow_client: trio.abc.Stream, autojump_clock: trio.testing.MockClock
) -> None:
    await slow_client.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
    said = b""
    while not said.endswith(b"0\r\n\r\n"):
        said += (piece := bytes(await slow_client.receive_some()))
        assert piece, said
    await trio.sleep(IDLE_TIMEOUT_S - 1)
    head = b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 100
    assert REQUEST_TIMEOUT_S <= await dripped(slow_client, head) <= REQUEST_TIMEOUT_S + 1


async def test_a_handshake_that_comes_byte_by_byte_is_given_up_too(
    nursery: trio.Nursery, authority: Authority, autojump_clock: trio.testing.MockClock
) -> None:
    here, there = trio.testing.memory_stream_pair()
    tls = MetricsTls(TlsConfig(certificate_location=str(authority.issue(HOST))))
    nursery.start_soon(MetricsServer(render, UnexpectedErrors(), tls=tls).serve, there)
    said = ssl.MemoryBIO()
    hello = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), said, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    assert await dripped(here, said.read()) <= REQUEST_TIMEOUT_S + 1


async def test_who_asks_for_nothing_makes_room_for_who_asks(port: int) -> None:
    async with AsyncExitStack() as open_ones:
        idle = [
            await open_ones.enter_async_context(await trio.open_tcp_stream(HOST, port))
            for _ in range(CONNECTION_COUNT_MAX)
        ]
        # One is in the middle of its request, another waits for its next scrape.
        await idle[0].send_all(b"GET /metrics HTTP/1.1\r\nHost:")
        await trio.testing.wait_all_tasks_blocked(0.05)

        for _ in range(3):
            said = await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 200 ")

        with trio.fail_after(60):
            assert await idle[0].receive_some() == b"", "the oldest went first"
        await idle[-1].send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert (await idle[-1].receive_some()).startswith(b"HTTP/1.1 200 ")


async def test_who_is_being_answered_is_not_cut_off_for_others_until_that_takes_too_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = MetricsServer(render, UnexpectedErrors())
    async with AsyncExitStack() as open_ones, trio.open_nursery() as nursery:

        async def connected() -> trio.SocketStream:
            async with await _listening() as listener:
                here = await trio.open_tcp_stream(*listener.socket.getsockname())
                nursery.start_soon(server.serve, await listener.accept())
                return await open_ones.enter_async_context(here)

        for _ in range(CONNECTION_COUNT_MAX):
            # It never reads: the text does not fit the socket's buffers.
            await (await connected()).send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()

        async def asked() -> bytes:
            stream = await connected()
            await stream.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            return bytes(await stream.receive_some(16))

        assert (await asked()).startswith(b"HTTP/1.1 503 ")
        await trio.sleep(ANSWER_PATIENCE_S + 1)
        assert (await asked()).startswith(b"HTTP/1.1 200 ")
        nursery.cancel_scope.cancel()


async def test_a_bug_while_the_text_is_made_ends_that_connection_alone(
    nursery: trio.Nursery,
) -> None:
    errors = UnexpectedErrors()
    renders = iter([_failing, render])

    async def serve_once_badly(task_status: trio.TaskStatus[int]) -> None:
        await serve_metrics(
            lambda: next(renders)(), host=HOST, port=0, errors=errors, task_status=task_status
        )

    port = await nursery.start(serve_once_badly)
    assert not (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"0\r\n\r\n")
    body, _ = await trio.to_thread.run_sync(fetched, port)
    assert body == b"".join(TEXT)
    assert errors.counts == {"connection": 1}


def _failing() -> Iterator[bytes]:
    yield b"ottla_x 1\n"
    raise RuntimeError("a bug")


async def _listening() -> trio.SocketListener:
    return (await trio.open_tcp_listeners(0, host=HOST))[0]


async def test_a_client_that_disconnects_during_a_response_is_harmless(port: int) -> None:
    stream = await trio.open_tcp_stream(HOST, port)
    await stream.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
    await stream.receive_some(100)
    await trio.aclose_forcefully(stream)

    body, _ = await trio.to_thread.run_sync(fetched, port)

    assert body == b"".join(TEXT)


async def test_others_get_their_turns_while_a_long_text_is_made(nursery: trio.Nursery) -> None:
    turns = 0
    seen: list[int] = []

    def slow() -> Iterator[bytes]:
        for _ in range(50):
            seen.append(turns)
            sum(range(500_000))  # some milliseconds
            yield b""

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async def serve_slowly(task_status: trio.TaskStatus[int]) -> None:
        await serve_metrics(slow, host=HOST, port=0, task_status=task_status)

    port = await nursery.start(serve_slowly)
    nursery.start_soon(count_turns)

    await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")

    assert len(set(seen)) > 20


async def test_an_occupied_port_is_reported_with_its_setting(port: int) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.prometheus\.port"):
        await serve_metrics(render, host=HOST, port=port)


@pytest.mark.parametrize(
    ("accepted", "takes_gzip"),
    [("gzip", True), ("deflate, GZIP ;q=1", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
def test_who_is_sent_packed_text(accepted: str, takes_gzip: bool) -> None:
    head = parse_head(f"GET /metrics HTTP/1.1\r\nAccept-Encoding: {accepted}".encode())

    assert head.takes_gzip is takes_gzip


def test_a_request_with_a_body_is_the_last_of_its_connection() -> None:
    assert not parse_head(b"GET /metrics HTTP/1.1\r\nContent-Length: 3").is_kept_alive
    with pytest.raises(ProtocolError):
        parse_head(b"GET /metrics HTTP/1.1\r\nno field")


async def test_probes_are_answered_without_credentials_and_with_a_reason(
    nursery: trio.Nursery,
) -> None:
    reasons: list[str | None] = ["The broker is RECOVERY."]

    async def serve_guarded(task_status: trio.TaskStatus[int]) -> None:
        await serve_metrics(
            render,
            host=HOST,
            port=0,
            access=MetricsAccess(token="secret"),
            unready=lambda: reasons[0],
            task_status=task_status,
        )

    port: int = await nursery.start(serve_guarded)

    async def probe(path: str, method: str = "GET") -> tuple[bytes, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        first, _, body = (await ask(port, head.encode())).partition(b"\r\n\r\n")
        return first.split(b"\r\n")[0].removeprefix(b"HTTP/1.1 "), body

    assert await probe("/healthz") == (b"200 OK", b"ok\n")
    assert await probe("/readyz") == (b"503 Service Unavailable", b"The broker is RECOVERY.\n")
    reasons[0] = None
    assert await probe("/readyz?verbose") == (b"200 OK", b"ok\n")
    assert (await probe("/metrics"))[0] == b"401 Unauthorized"
    assert (await probe("/readyz", "POST"))[0] == b"405 Method Not Allowed"


async def test_a_probe_keeps_its_connection(port: int) -> None:
    one = b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert (await ask(port, one + last)).count(b"HTTP/1.1 200 OK") == 2
