"""No flood of TLS records holds the loop, over any kind of listener; see `tls_hold`."""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.node_tls import node_tls_of
from ottla.model.settings.security.sasl import SASL_SSL
from ottla.model.settings.security.tls import SSL, TlsConfig
from ottla.model.settings.telemetry.metrics_access import MetricsAccess
from ottla.model.tls import session_driver
from ottla.model.tls.context_driver import client_context
from ottla.node.authentication.sasl_session import SaslCounts, SaslRules, SaslSession
from ottla.node.clock_driver import RealClock
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.node.network.tls.served_tls_driver import ServedTls
from ottla.rpc.rpc_driver import open_rpc_runtime
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.telemetry.metrics.metrics_http_driver import serve_metrics
from ottla.wire.apis import API_VERSIONS
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from tests.jepsen.oracles.loop_cost import LoopWatch
from tests.jepsen.oracles.tls_hold import TlsTarget, costs_of
from tests.jepsen.oracles.tls_targets import SCRAPE, NewContext, target_of

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

RECORD_COUNT = 10_000
"""OpenSSL needs 0.2 s for as many KeyUpdates."""


def on_hello(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    return ApiVersionsResponse()


@asynccontextmanager
async def client_listener(
    protocol: str, config: TlsConfig, new_context: NewContext
) -> AsyncIterator[TlsTarget]:
    watch = LoopWatch()
    dispatcher = Dispatcher({API_VERSIONS: on_hello})
    if protocol == SASL_SSL:
        rules = SaslRules(mechanisms={}, failure_delay_ms=0, session_ms_max={}, counts=SaslCounts())
        dispatcher.guards = {protocol: partial(SaslSession, rules)}
    tls = ServedTls(protocol, config, failure_delay_ms=0)
    listener = Listener(name=protocol, host="127.0.0.1", port=0, tls=tls)
    async with open_socket_server(
        [listener], dispatcher, clock=RealClock(), disk=RealDisk()
    ) as server:
        with watch.watching():
            target = target_of(protocol, server.addresses[protocol][1], new_context, watch)
            # Before a login, a client asks for versions once.
            yield replace(target, serves_repeats=protocol != SASL_SSL)


@asynccontextmanager
async def metrics_port(config: TlsConfig, new_context: NewContext) -> AsyncIterator[TlsTarget]:
    def render() -> Iterator[bytes]:
        yield b"one 1\n"

    watch = LoopWatch()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(
            partial(
                serve_metrics, render, host="127.0.0.1", port=0, access=MetricsAccess(tls=config)
            )
        )
        with watch.watching():
            yield target_of("/metrics", port, new_context, watch, SCRAPE)
        nursery.cancel_scope.cancel()


def violations(target: TlsTarget, folder: Path) -> list[str]:
    found = costs_of(target, folder, record_count=RECORD_COUNT)
    return [one.violation for one in found if one.violation is not None]


def first_violation(target: TlsTarget, folder: Path) -> str | None:
    found = costs_of(target, folder, record_count=RECORD_COUNT, patience_s=1)
    return next((one.violation for one in found if one.violation is not None), None)


@pytest.fixture
def new_context(authority: "CertificateAuthority") -> NewContext:
    config = TlsConfig(trust_location=str(authority.file))
    return lambda: client_context(config)


@pytest.fixture
def config(authority: "CertificateAuthority") -> TlsConfig:
    return TlsConfig(certificate_location=str(authority.issue()))


@pytest.mark.parametrize("protocol", [SSL, SASL_SSL])
async def test_no_flood_of_records_holds_a_listener_of_clients(
    protocol: str, config: TlsConfig, new_context: NewContext, tmp_path: Path
) -> None:
    async with client_listener(protocol, config, new_context) as target:
        assert not await trio.to_thread.run_sync(violations, target, tmp_path)


async def test_no_flood_of_records_holds_the_metrics_port(
    config: TlsConfig, new_context: NewContext, tmp_path: Path
) -> None:
    async with metrics_port(config, new_context) as target:
        assert not await trio.to_thread.run_sync(violations, target, tmp_path)


async def test_no_flood_of_records_keeps_a_controller_from_others(
    authority: "CertificateAuthority", tmp_path: Path
) -> None:
    texts = {
        "ssl.keystore.location": str(authority.issue()),
        "ssl.truststore.location": str(authority.file),
    }
    tls = node_tls_of(texts, [ListenAddress("CONTROLLER", "", 0, "SSL")])["CONTROLLER"]
    known = TlsConfig(
        trust_location=str(authority.file), certificate_location=str(authority.issue())
    )

    def new_context() -> ssl.SSLContext:
        context = client_context(known)
        context.set_alpn_protocols(["h2"])
        return context

    async with open_rpc_runtime() as runtime:
        port = await runtime.serve("127.0.0.1", 0, [], tls=tls)
        target = target_of("a controller", port, new_context, None, b"PRI * HTTP/2.0\r\n\r\n")
        # What gRPC ends, and when, is its own; that it serves others is ours to see.
        await trio.to_thread.run_sync(
            lambda: list(costs_of(target, tmp_path, record_count=3_000, patience_s=0.5))
        )


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(
            {
                "RECORDS_PER_PIECE": 1 << 30,
                "PIECE_BYTES": 1 << 30,
                "RECORDS_WITHOUT_DATA_MAX": 1 << 30,
            },
            id="pieces-unbounded",
        ),
        pytest.param({"RECORDS_WITHOUT_DATA_MAX": 1 << 30}, id="records-uncounted"),
    ],
)
@pytest.mark.interpreted_only("constants of a module are replaced")
async def test_the_oracle_finds_each_bound_that_is_taken_out(
    bug: dict[str, int],
    config: TlsConfig,
    new_context: NewContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in bug.items():
        monkeypatch.setattr(session_driver, name, value)
    async with client_listener(SSL, config, new_context) as target:
        assert await trio.to_thread.run_sync(first_violation, target, tmp_path)
