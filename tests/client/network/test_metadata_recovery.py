"""A client whose metadata leads to another broker or cluster, or nowhere, starts again from its
bootstrap addresses (KIP-899, 1102, 1242)."""

from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import trio
import trio.testing

from ottla.client.network.cluster import Cluster, MetadataRecovery
from ottla.client.network.connection import (
    ConnectionLostError,
    MisroutedConnectionError,
    open_connection,
)
from ottla.client.network.transport import TRANSPORT
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.seams import Transport
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.client.network.scripted_brokers import Address, ScriptedBroker, ScriptedNetwork

BOOT, HERE, THERE = ("boot", 1), ("here", 1), ("there", 1)
ONE = NodeId(1)
Body = Callable[[Cluster, ScriptedNetwork], Awaitable[None]]


def ours(address: Address = HERE, knows: int = 5) -> ScriptedBroker:
    return ScriptedBroker("ours", 1, {1: address}, knows=knows)


def theirs(address: Address = HERE, knows: int = 5) -> ScriptedBroker:
    return ScriptedBroker("theirs", 1, {1: address}, knows=knows)


def play(
    brokers: dict[Address, ScriptedBroker],
    body: Body,
    recovery: MetadataRecovery | None = None,
) -> None:
    """Run `body` with a client whose only bootstrap address is `BOOT`."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            network = ScriptedNetwork(nursery, brokers)
            TRANSPORT.set(cast(Transport, network))
            cluster = Cluster(
                [BOOT], request_timeout_s=30.0, recovery=recovery or MetadataRecovery()
            )
            await body(cluster, network)
            await cluster.aclose()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def lose_connections(cluster: Cluster) -> None:
    """Close the connections, as the end of a broker's process does."""
    for connection in list(cluster._connections.values()):
        await cluster._drop(connection)


async def ask(cluster: Cluster, node: NodeId | None = None) -> str | None:
    """Return the cluster id in the response of a broker, asked until one responds."""
    for _ in range(5):
        try:
            answer = await cluster.request(MetadataRequest(topics=[]), MetadataResponse, node=node)
        except ConnectionLostError:
            continue
        return answer.cluster_id
    raise AssertionError("no broker responded")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]


def test_only_a_known_broker_is_named() -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        await ask(cluster, ONE)
        assert network.brokers[BOOT].asked == [(3, None, -1)]
        assert network.brokers[HERE].asked == [(5, "ours", 1)]

    play({BOOT: ours(), HERE: ours()}, body)


def test_another_cluster_at_a_known_address_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        at = TopicPartition("of-ours", 0)
        await cluster.metadata(["of-ours"])
        assert cluster.known_leader(at) is not None
        await lose_connections(cluster)
        # Both clusters have changed places; the bootstrap address follows ours.
        network.brokers = {BOOT: ours(THERE), HERE: theirs(), THERE: ours(THERE)}
        reason = "here:1 is not broker 1 of cluster ours"
        with pytest.raises(MisroutedConnectionError, match=reason):
            await cluster.request(MetadataRequest(topics=[]), MetadataResponse, node=ONE)
        assert (cluster.cluster_id, cluster.topics) == (None, {})
        assert cluster.known_leader(at) is None
        assert await ask(cluster, ONE) == "ours"
        assert cluster.address_of(ONE) == THERE
        assert network.brokers[HERE].asked == [(5, "ours", 1)]

    play({BOOT: ours(), HERE: ours()}, body)
    assert warnings(caplog) == [
        "here:1 is not broker 1 of cluster ours, as the metadata says; dropping all metadata and "
        "connections, and starting again from the bootstrap addresses"
    ]


def test_another_broker_of_the_cluster_at_a_known_address_is_not_used() -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        await lose_connections(cluster)
        second = ScriptedBroker("ours", 2, {2: HERE})
        network.brokers = {BOOT: second, HERE: second}
        with pytest.raises(MisroutedConnectionError):
            await cluster.request(MetadataRequest(topics=[]), MetadataResponse, node=ONE)
        assert await ask(cluster, NodeId(2)) == "ours"
        with pytest.raises(ConnectionLostError, match="broker 1 is not known"):
            await cluster.request(MetadataRequest(topics=[]), MetadataResponse, node=ONE)

    play({BOOT: ours(), HERE: ours()}, body)


def test_all_open_connections_are_left() -> None:
    """Also those that links and coordinators own: their requests would go to the other cluster."""

    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        nodes = {1: HERE, 2: THERE}
        for node, address in nodes.items():
            network.brokers[address] = ScriptedBroker("ours", node, nodes)
        network.brokers[BOOT] = network.brokers[HERE]
        woken: list[bool] = []
        cluster.call_when_forgotten(lambda: woken.append(True))
        await cluster.metadata([])
        link = await cluster.connect(THERE, client_id="link", timeout_s=1.0)
        network.brokers[THERE].is_silent = True
        submitted = await link.submit(MetadataRequest(topics=[]), MetadataResponse)
        network.brokers[HERE] = theirs()
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(ConnectionLostError):
                    await submitted.answer()
                with pytest.raises(ConnectionLostError, match="was left: here:1 is not broker 1"):
                    await link.request(MetadataRequest(topics=[]), MetadataResponse)

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(MisroutedConnectionError):
                await cluster.request(MetadataRequest(topics=[]), MetadataResponse, node=ONE)
        assert woken == [True]

    play({}, body)


@pytest.mark.parametrize("knows", [4, 3, 0, -1])
def test_a_broker_that_knows_only_older_versions_is_asked_once_more(knows: int) -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        assert await ask(cluster, ONE) == "ours"
        versions = [version for version, *_ in network.brokers[HERE].asked]
        assert versions == [5, max(knows, 0)]

    play({BOOT: ours(knows=knows), HERE: ours(knows=knows)}, body)


def test_metadata_of_another_cluster_from_an_old_broker_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        await lose_connections(cluster)
        network.brokers = {BOOT: ours(THERE, 4), HERE: theirs(HERE, 4), THERE: ours(THERE, 4)}
        with pytest.raises(MisroutedConnectionError):
            await cluster.metadata([])
        await cluster.metadata([])
        assert (cluster.cluster_id, cluster.address_of(ONE)) == ("ours", THERE)

    play({BOOT: ours(knows=4), HERE: ours(knows=4)}, body)
    assert len(warnings(caplog)) == 1
    assert "a broker belongs to cluster theirs, the others to ours" in warnings(caplog)[0]


def test_a_broker_may_require_a_new_bootstrap_by_metadata() -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        network.brokers[BOOT].metadata_code = ErrorCode.REBOOTSTRAP_REQUIRED
        with pytest.raises(MisroutedConnectionError):
            await cluster.metadata([])
        network.brokers[BOOT] = theirs()
        await cluster.metadata([])
        assert cluster.cluster_id == "theirs"

    play({BOOT: ours(), HERE: ours()}, body)


def test_silent_brokers_are_left_after_the_trigger(caplog: pytest.LogCaptureFixture) -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        network.brokers = {}
        await lose_connections(cluster)
        began_s = trio.current_time()
        while cluster.address_of(ONE) is not None:
            with pytest.raises(ConnectionLostError):
                await cluster.metadata([])
            await trio.sleep(1)
        assert trio.current_time() - began_s == pytest.approx(300, abs=2)
        assert not cluster.topics

    play({BOOT: ours(), HERE: ours()}, body)
    assert [one for one in warnings(caplog) if "has answered a request" in one] == [
        "no broker has answered a request for metadata for 300 s; dropping all metadata and "
        "connections, and starting again from the bootstrap addresses"
    ]


def test_a_bootstrap_address_is_asked_while_no_known_broker_answers() -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        await lose_connections(cluster)
        network.brokers = {BOOT: ours(THERE), THERE: ours(THERE)}
        await cluster.metadata([])
        assert cluster.address_of(ONE) == THERE
        assert network.dialled[-2:] == [HERE, BOOT]

    play({BOOT: ours(), HERE: ours()}, body)


def test_without_recovery_bootstrap_addresses_are_used_once() -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        await lose_connections(cluster)
        network.brokers = {BOOT: ours(THERE)}
        for _ in range(400):
            with pytest.raises(ConnectionLostError):
                await cluster.metadata([])
            await trio.sleep(1)
        network.brokers[HERE] = theirs()
        await cluster.metadata([])
        assert network.dialled.count(BOOT) == 1
        assert network.brokers[HERE].asked == [(3, None, -1)]
        assert cluster.cluster_id == "theirs"

    play({BOOT: ours(), HERE: ours()}, body, MetadataRecovery(is_enabled=False))


def test_without_the_check_no_broker_is_named() -> None:
    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        await lose_connections(cluster)
        network.brokers = {BOOT: ours(THERE), HERE: theirs()}
        await cluster.metadata([])
        assert cluster.cluster_id == "theirs"
        assert network.brokers[HERE].asked == [(3, None, -1)]

    play({BOOT: ours(), HERE: ours()}, body, MetadataRecovery(is_cluster_checked=False))


def test_an_address_of_several_brokers_is_not_checked() -> None:
    """Each of them answers there, as behind a load balancer."""

    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        await cluster.metadata([])
        await ask(cluster, NodeId(2))
        assert network.brokers[HERE].asked == [(3, None, -1)]

    both = ScriptedBroker("ours", 1, {1: HERE, 2: HERE})
    play({BOOT: both, HERE: ScriptedBroker("ours", 1, both.nodes)}, body)


def test_the_same_reason_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A bootstrap address may name the wrong broker for good."""

    async def body(cluster: Cluster, network: ScriptedNetwork) -> None:
        began_s = trio.current_time()
        while trio.current_time() - began_s < 90:
            with pytest.raises(ConnectionLostError):
                await cluster.request(MetadataRequest(topics=[]), MetadataResponse, node=ONE)
            await trio.sleep(0.1)

    play({BOOT: ours(), HERE: theirs()}, body)
    assert len(warnings(caplog)) == 2


def test_other_refusals_of_api_versions_are_reported() -> None:
    async def body(_: Cluster, network: ScriptedNetwork) -> None:
        class RefusingBroker(ScriptedBroker):
            def _versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)

        network.brokers[BOOT] = RefusingBroker("ours", 1, {})
        with pytest.raises(RefusedError, match="boot:1 refused ApiVersions") as refused:
            async with open_connection(*BOOT):
                raise AssertionError
        assert refused.value.code is ErrorCode.INVALID_REQUEST

    play({}, body)
