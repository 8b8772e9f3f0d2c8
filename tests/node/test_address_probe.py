"""Evidence that a process is gone: only a refusal by every address of its host."""

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.node.address_probe import PROBE_TIMEOUT_MS, ProbeResult, outcome_of
from ottla.node.address_probe_driver import ADDRESSES_MAX, probe_address

HOST = "127.0.0.1"


def listening(backlog: int = 1) -> socket.socket:
    server = socket.create_server((HOST, 0), backlog=backlog)
    server.setblocking(False)
    return server


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


async def test_a_port_where_nothing_listens_refuses() -> None:
    with listening() as server:
        port = port_of(server)

    assert await probe_address(HOST, port) is ProbeResult.REFUSED


async def test_a_process_that_accepts_nothing_lives_for_its_kernel_answers() -> None:
    """So does one that was stopped: its backlog takes the connection."""
    with listening() as server:
        assert await probe_address(HOST, port_of(server)) is ProbeResult.ACCEPTED


async def test_a_proxy_that_resets_every_connection_is_something_that_listens() -> None:
    with listening() as server:
        probed = await probe_address(HOST, port_of(server))
        connection, _ = server.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    assert probed is ProbeResult.ACCEPTED


async def test_a_name_that_is_not_found_says_nothing() -> None:
    assert await probe_address("nowhere.invalid", 9092) is ProbeResult.UNKNOWN
    assert await probe_address("a" * 70 + ".invalid", 9092) is ProbeResult.UNKNOWN


Tries = dict[str, int | None]
"""Error number of a connection to each address; None if it is accepted."""


def resolving_to(tries: Tries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve every host to these addresses."""

    async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 9092)) for one in tries]

    class ScriptedSocket:
        def __enter__(self) -> "ScriptedSocket":
            return self

        def __exit__(self, *_: object) -> None: ...

        async def connect(self, address: tuple[str, int]) -> None:
            number = tries[address[0]]
            if number == errno.ETIMEDOUT:
                await trio.sleep_forever()
            if number is not None:
                raise OSError(number, "scripted")

    monkeypatch.setattr(trio.socket, "getaddrinfo", getaddrinfo)
    make: Callable[..., ScriptedSocket] = lambda *_: ScriptedSocket()  # noqa: E731
    monkeypatch.setattr(trio.socket, "socket", make)


@pytest.mark.parametrize(
    ("tries", "probed"),
    [
        ({"a": errno.ECONNREFUSED, "b": errno.ECONNREFUSED}, ProbeResult.REFUSED),
        ({"a": errno.ECONNREFUSED, "b": None}, ProbeResult.ACCEPTED),
        ({"a": errno.ECONNREFUSED, "b": errno.EHOSTUNREACH}, ProbeResult.UNKNOWN),
        ({"a": errno.EHOSTUNREACH}, ProbeResult.UNKNOWN),
        ({"a": errno.ENETUNREACH}, ProbeResult.UNKNOWN),
        ({"a": errno.ECONNRESET}, ProbeResult.UNKNOWN),
        ({"a": errno.EACCES}, ProbeResult.UNKNOWN),
        ({"::1": errno.EADDRNOTAVAIL, "a": errno.ECONNREFUSED}, ProbeResult.REFUSED),
        ({"::1": errno.EADDRNOTAVAIL}, ProbeResult.UNKNOWN),
        ({}, ProbeResult.UNKNOWN),
        ({str(one): errno.ECONNREFUSED for one in range(ADDRESSES_MAX + 1)}, ProbeResult.UNKNOWN),
    ],
)
async def test_every_address_must_refuse(
    tries: Tries, probed: ProbeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving_to(tries, monkeypatch)

    assert await probe_address("host", 9092) is probed


async def test_no_answer_in_time_says_nothing(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    resolving_to({"a": errno.ECONNREFUSED, "b": errno.ETIMEDOUT}, monkeypatch)

    assert await probe_address("host", 9092) is ProbeResult.UNKNOWN
    assert trio.current_time() * 1000 >= PROBE_TIMEOUT_MS


def test_nothing_tried_says_nothing() -> None:
    assert outcome_of([]) is ProbeResult.UNKNOWN
