"""The TLS level of the end-of-process oracle finds a planted bug, on a process of its own."""

import multiprocessing
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
import trio

from ottla.client.network.connection import ConnectionLostError, open_connection
from ottla.client.network.tls import TLS, TlsDialer
from ottla.model.settings.security.tls import SSL, TlsConfig
from ottla.model.tls.context_driver import client_context
from ottla.model.tls.session_driver import TlsFloodError, TlsSession
from ottla.node.clock_driver import RealClock
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.node.network.tls.served_tls_driver import ServedTls
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire.apis import API_VERSIONS
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from tests.jepsen.oracles.end_of_process import HuntReport
from tests.jepsen.oracles.tls_end_of_process import TlsHuntReport, hunt_listeners, kinds_of_manners
from tests.jepsen.oracles.tls_targets import target_of

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

SECONDS = 60.0
QUIET_SECONDS = 4.0
SEED = 7

Decrypt = Callable[..., int]
Plant = Callable[[Decrypt], Decrypt]


def _change_nothing(decrypt: Decrypt) -> Decrypt:
    return decrypt


def _end_the_process(decrypt: Decrypt) -> Decrypt:
    def planted(*given: object) -> int:
        try:
            return decrypt(*given)
        except TlsFloodError:
            raise SystemExit("a flood has ended the process") from None

    return planted


def _end_everybody(decrypt: Decrypt) -> Decrypt:
    has_ended = False

    def planted(*given: object) -> int:
        nonlocal has_ended
        if has_ended:
            raise TlsFloodError("another connection was a flood")
        try:
            return decrypt(*given)
        except TlsFloodError:
            has_ended = True
            raise

    return planted


BUGS: dict[str, Plant] = {
    "flood-ends-the-process": _end_the_process,
    "flood-ends-everybody": _end_everybody,
}


def on_hello(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    served = ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=4)
    return ApiVersionsResponse(api_keys=[served])


def serve(plant: Plant, certificate: str, channel: Connection) -> NoReturn:
    """Serve one listener with a planted bug; say its port."""
    TlsSession.decrypt = plant(TlsSession.decrypt)  # type: ignore[method-assign]

    async def run() -> None:
        tls = ServedTls(SSL, TlsConfig(certificate_location=certificate), failure_delay_ms=0)
        listener = Listener(name=SSL, host="127.0.0.1", port=0, tls=tls)
        async with open_socket_server(
            [listener], Dispatcher({API_VERSIONS: on_hello}), clock=RealClock(), disk=RealDisk()
        ) as server:
            channel.send(server.addresses[SSL][1])
            await trio.sleep_forever()

    trio.run(run)
    raise AssertionError("a server does not end")


@contextmanager
def served(plant: Plant, certificate: Path) -> Iterator[tuple[BaseProcess, int]]:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=serve, args=(plant, str(certificate), theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(60)
        yield process, ours.recv()
    finally:
        process.kill()
        process.join()


async def ask_again(address: str, config: TlsConfig, report: HuntReport) -> None:
    TLS.set(TlsDialer(config))
    host, _, port = address.rpartition(":")
    try:
        async with open_connection(host, int(port)) as connection:
            while True:
                await connection.request(ApiVersionsRequest(), ApiVersionsResponse, 0)
                report.add_answers(1, 0.0)
                await trio.sleep(0.01)
    except ConnectionLostError as error:
        report.add_violation(f"a neighbour was lost: {error}")


async def hunted(
    plant: Plant, authority: "CertificateAuthority", folder: Path, seconds: float
) -> TlsHuntReport:
    trust = TlsConfig(trust_location=str(authority.file))

    def new_context() -> ssl.SSLContext:
        return client_context(trust)

    with served(plant, authority.issue()) as (process, port):
        target = target_of(SSL, port, new_context, None)

        def deaths() -> list[str]:
            return [] if process.is_alive() else [f"exit code {process.exitcode}"]

        neighbour = partial(ask_again, f"127.0.0.1:{port}", trust)
        return await hunt_listeners(
            [target], [neighbour], deaths, seed=SEED, seconds=seconds, folder=folder
        )


@pytest.mark.interpreted_only("a method of a class is replaced")
@pytest.mark.parametrize("bug", BUGS)
async def test_the_oracle_finds_a_record_that_ends_more_than_its_connection(
    bug: str, authority: "CertificateAuthority", tmp_path: Path
) -> None:
    report = await hunted(BUGS[bug], authority, tmp_path, SECONDS)
    assert report.neighbours.violations, str(report)


@pytest.mark.interpreted_only("a method of a class is replaced")
async def test_the_oracle_finds_nothing_where_nothing_is_planted(
    authority: "CertificateAuthority", tmp_path: Path
) -> None:
    report = await hunted(_change_nothing, authority, tmp_path, QUIET_SECONDS)
    assert not report.neighbours.violations, str(report)
    assert report.neighbours.neighbour_answers
    assert report.newcomer_count
    assert report.sent


def test_every_kind_of_record_has_every_delivery() -> None:
    kinds = [one.kind for one in kinds_of_manners()]
    assert len(kinds) == len(set(kinds)) >= 80
