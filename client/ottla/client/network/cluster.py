"""A client's view of a cluster: its metadata, and open connections to its brokers.

The metadata may be outdated at any time. It is requested again when a response shows that it is
outdated. If its addresses lead to brokers of another cluster, or if no broker responds, all
metadata is discarded, and the client starts again from its bootstrap addresses.
"""

import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID
from weakref import WeakSet

import trio

from ottla.client.network.answer_checks import only
from ottla.client.network.arguments import check_text
from ottla.client.network.broker_versions import (
    OWN_FEATURES,
    OWN_FEATURES_FROM,
    ExpectedNode,
)
from ottla.client.network.connection import ConnectionLostError, MisroutedConnectionError
from ottla.client.network.pipeline import Pipeline, open_pipeline
from ottla.client.network.reachability import Reachability
from ottla.client.network.tls import TlsDialer
from ottla.client.telemetry.measures import ConnectionMeasures
from ottla.model.errors import ErrorCode, OttlaError, ProtocolError, RefusedError, row_of
from ottla.model.ids import NO_EPOCH, ZERO_UUID, Epoch, NodeId, TopicPartition
from ottla.model.version import VERSION
from ottla.wire.apis import API
from ottla.wire.codec_types import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic

if TYPE_CHECKING:
    from ottla.model.settings.client import ConsumerConfig, ProducerConfig
    from ottla.model.settings.metadata_recovery import RecoveringClient
    from ottla.model.settings.security.sasl import SaslLogin
    from ottla.model.settings.security.tls import TlsConfig
    from ottla.model.settings.share_client import ShareConsumerConfig

R = TypeVar("R", bound=Message)

LOG = logging.getLogger("ottla.client.network")

RETRY_WAIT_S = 0.1
NEXT_BROKER_AFTER_S = 0.5
"""Seconds after which a client sends a request to the next broker in addition, because the first
broker may not respond."""


CONNECT_TIMEOUT_S = 10.0
SAME_REASON_AFTER_S = 60.0
"""Seconds after a warning during which the client does not log the same warning again. The warning
states why the client has discarded its metadata and starts again from its bootstrap addresses."""


class KnownLeader(NamedTuple):
    """Node id and leader epoch of a partition's leader."""

    node: NodeId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic as described by the latest Metadata response."""

    topic_id: UUID
    is_internal: bool
    partitions: tuple[int, ...]
    available: tuple[int, ...]
    """Numbers of the topic's partitions that have a leader."""
    at: Mapping[int, TopicPartition]
    """TopicPartition objects of the topic by partition number. They are created once, because a
    producer needs one for each record."""
    racks: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Racks of the replicas by partition number. Empty if no broker with a replica has a rack."""


class MetadataRecovery(NamedTuple):
    """Conditions under which a client discards its metadata and starts again from its bootstrap
    addresses."""

    is_enabled: bool = True
    """True if the client may return to its bootstrap addresses. If False, it uses them only until
    it has received metadata for the first time."""
    trigger_s: float = 300.0
    """Time in seconds without a Metadata response after which the metadata is discarded."""
    is_cluster_checked: bool = True
    """True if the client states in its requests which broker and cluster it expects (KIP-1242), and
    compares the cluster ids in responses."""


DEFAULT_RECOVERY = MetadataRecovery()


class Cluster:
    """The brokers of one cluster: their metadata, and connections to them. The connection to a
    broker is opened when it is first needed.

    All tasks share these connections. Requests to one broker are pipelined on one connection.
    """

    def __init__(
        self,
        bootstrap: Iterable[tuple[str, int]],
        *,
        client_id: str = "ottla",
        request_timeout_s: float | None = None,
        login: "SaslLogin | None" = None,
        tls: "TlsConfig | None" = None,
        recovery: MetadataRecovery = DEFAULT_RECOVERY,
    ) -> None:
        """Create the object without opening a connection.

        Raises ConfigError if the certificates of `tls` are unusable, and ValueError if UTF-8 cannot
        encode the client id.
        """
        check_text("client_id", client_id)
        self.login = login
        """Login of the connections. None means the login that is set for the calling task
        (`LOGIN`)."""
        self.tls = None if tls is None else TlsDialer(tls)
        """TLS settings of the connections. None means the TLS settings of the calling task
        (`TLS`)."""
        self.cluster_id: str | None = None
        """Cluster id in the latest Metadata response."""
        self.topics: dict[str, KnownTopic] = {}
        self.names: dict[UUID, str] = {}
        """Names of topics by topic id, including deleted topics, because a topic id is never reused
        for another name."""
        self.measures: ConnectionMeasures | None = ConnectionMeasures()
        """Measurements of connections and latencies for client metrics (KIP-714). None if they are
        not reported."""
        self._serves_own_requests: bool | None = None
        self.is_used = trio.Event()
        """Event that is set once the first connection is open."""
        self._on_forgotten: Callable[[], None] = _ignore
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._addresses: dict[NodeId, tuple[str, int]] = {}
        self._racks: dict[int, str] = {}
        self._connections: dict[tuple[str, int], Pipeline] = {}
        self._connecting: dict[tuple[str, int], trio.Lock] = {}
        self._failed_at: dict[tuple[str, int], float] = {}
        self._reachability = Reachability()
        self._leaders: dict[TopicPartition, KnownLeader] = {}
        self._recovery = recovery
        self._opened: WeakSet[Pipeline] = WeakSet()
        """Every open connection to the cluster, including connections that callers of `connect`
        must close."""
        self._restart_count = 0
        """Number of times that the metadata was discarded."""
        self._unanswered_since_s: float | None = None
        """Start time, in seconds, of the oldest Metadata request that no broker has answered. None
        if there was no such request since the last Metadata response."""
        self._logged: tuple[str, float] = ("", -math.inf)
        """Reason and time of the last warning about discarded metadata."""

    async def metadata(
        self, topics: Iterable[str] | None = None, *, may_create: bool = False
    ) -> MetadataResponse:
        """Request the metadata of `topics`, or of all topics if `topics` is None. Stores the
        response and returns it.

        With `may_create`, the broker creates missing topics if its settings allow this.
        """
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=may_create,
        )
        return await self._learn(request)

    async def learn_names(self, topic_ids: Iterable[UUID]) -> None:
        """Request the metadata of topics by their ids.  Ids that the broker does not know are
        ignored."""
        await self._learn(
            MetadataRequest(
                topics=[MetadataRequestTopic(topic_id=one, name=None) for one in topic_ids],
                allow_auto_topic_creation=False,
            )
        )

    async def _learn(self, request: MetadataRequest) -> MetadataResponse:
        answer = await self._ask(request)
        if answer.brokers:
            self._addresses = {
                NodeId(broker.node_id): (broker.host, broker.port) for broker in answer.brokers
            }
            self._racks = {
                broker.node_id: broker.rack for broker in answer.brokers if broker.rack is not None
            }
        self.cluster_id = answer.cluster_id
        for topic in answer.topics:
            self._learn_topic(topic)
        return answer

    async def _ask(self, request: MetadataRequest) -> MetadataResponse:
        """Request metadata. If the response belongs to another cluster than the known metadata,
        discards the known metadata and raises MisroutedConnectionError."""
        if self._unanswered_since_s is None:
            self._unanswered_since_s = trio.current_time()
        is_answered = False
        try:
            answer = await self.request(request, MetadataResponse)
            is_answered = True
        finally:
            if not is_answered:
                self._start_again_if_silent()
        self._unanswered_since_s = None
        reason = self._reason_to_start_again(answer)
        if reason is not None:
            self._start_again(reason)
            raise MisroutedConnectionError(reason)
        return answer

    def _reason_to_start_again(self, answer: MetadataResponse) -> str | None:
        """Return the reason in a Metadata response to discard the known metadata, or None if the
        response has no such reason."""
        recovery, known = self._recovery, self.cluster_id
        if not recovery.is_enabled:
            return None
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            return "a broker requires a new bootstrap (REBOOTSTRAP_REQUIRED)"
        is_other = None not in (known, answer.cluster_id) and answer.cluster_id != known
        if recovery.is_cluster_checked and is_other:
            return f"a broker belongs to cluster {answer.cluster_id}, the others to {known}"
        return None

    def _start_again_if_silent(self) -> None:
        """Discard the metadata if no broker has answered a Metadata request for too long."""
        recovery, since_s = self._recovery, self._unanswered_since_s
        if not recovery.is_enabled or not self._addresses or since_s is None:
            return
        silent_s = trio.current_time() - since_s
        if silent_s >= recovery.trigger_s:
            self._start_again(f"no broker has answered a request for metadata for {silent_s:.0f} s")

    def _start_again(self, reason: str) -> None:
        """Discard all metadata, close all connections, and log `reason`. The next request is sent
        to a bootstrap address."""
        self._restart_count += 1
        for connection in list(self._opened):
            connection.abort(f"{connection.address} was left: {reason}")
        self._opened.clear()
        self._connections.clear()
        self._unanswered_since_s = None
        self.cluster_id = None
        self.topics.clear()
        self._leaders.clear()
        self._addresses.clear()
        self._racks.clear()
        self._failed_at.clear()
        now_s, (logged, logged_s) = trio.current_time(), self._logged
        if reason != logged or now_s - logged_s >= SAME_REASON_AFTER_S:
            self._logged = (reason, now_s)
            LOG.warning(
                "%s; dropping all metadata and connections, and starting again from the bootstrap "
                "addresses",
                reason,
            )
        self._on_forgotten()

    def known_leader(self, partition: TopicPartition) -> KnownLeader | None:
        """Return the leader of a partition according to the latest metadata, without a request.
        Returns None if the leader is unknown."""
        return self._leaders.get(partition)

    def address_of(self, node: NodeId) -> tuple[str, int] | None:
        """Return the host and port of a broker according to the latest metadata, without a request.
        Returns None if the broker is unknown."""
        return self._addresses.get(node)

    def node_at(self, address: str) -> NodeId | None:
        """Return the id of the broker at `host:port`, or None if the metadata contains no broker
        with this address."""
        for node, (host, port) in self._addresses.items():
            if address == f"{host}:{port}":
                return node
        return None

    @property
    def has_connection(self) -> bool:
        """True if at least one connection is open that can be used for requests to any broker."""
        return bool(self._connections)

    def call_when_forgotten(self, callback: Callable[[], None]) -> None:
        """Set the function that is called after all metadata has been discarded. The client then
        requests the metadata that it needs."""
        self._on_forgotten = callback

    def learn_leader(self, partition: TopicPartition, leader: KnownLeader) -> bool:
        """Store the leader of a partition that a broker's response contains (KIP-951).

        Returns True if this leader is newer than the known leader.
        """
        known = self._leaders.get(partition)
        if leader.node < 0 or leader.node not in self._addresses:
            return False
        if known is not None and known.epoch >= leader.epoch:
            return False
        self._leaders[partition] = leader
        return True

    def learn_address(self, node: NodeId, host: str, port: int) -> None:
        """Store the address of a broker that another broker's response contains."""
        self._addresses[node] = (host, port)

    def _learn_topic(self, topic: MetadataResponseTopic) -> None:
        name = topic.name or ""
        known = self.topics.get(name)
        is_new = known is not None and known.topic_id != topic.topic_id
        if topic.error_code != ErrorCode.NONE or is_new:
            # The topic was deleted, or another topic has its name now: leader epochs start again.
            self.topics.pop(name, None)
            for one in [one for one in self._leaders if one.topic == name]:
                del self._leaders[one]
        if topic.error_code != ErrorCode.NONE:
            return
        for partition in topic.partitions:
            one = TopicPartition(name, partition.partition_index)
            found = KnownLeader(NodeId(partition.leader_id), Epoch(partition.leader_epoch))
            before = self._leaders.get(one)
            if before is not None and NO_EPOCH < found.epoch < before.epoch:
                continue  # this broker is behind: another one has reported a newer epoch
            if found.node < 0:
                self._leaders.pop(one, None)
            else:
                self._leaders[one] = found
        if topic.topic_id is not None and topic.topic_id != ZERO_UUID:
            self.names[topic.topic_id] = name
        numbers = sorted(partition.partition_index for partition in topic.partitions)
        at = {number: TopicPartition(name, number) for number in numbers}
        self.topics[name] = KnownTopic(
            topic_id=topic.topic_id or ZERO_UUID,
            is_internal=topic.is_internal,
            partitions=tuple(numbers),
            available=tuple(n for n in numbers if at[n] in self._leaders),
            at=at,
            racks=self._racks_of(topic) if self._racks else {},
        )

    def _racks_of(self, topic: MetadataResponseTopic) -> dict[int, frozenset[str]]:
        """Return the racks of a topic's replicas, by partition number."""
        racks = self._racks
        return {
            partition.partition_index: frozenset(
                racks[node] for node in partition.replica_nodes if node in racks
            )
            for partition in topic.partitions
        }

    async def partitions_of(
        self,
        topic: str,
        *,
        may_create: bool = False,
        deadline_s: float = 10.0,
        on_missing: Callable[[], None] | None = None,
    ) -> list[int]:
        """Return the partition numbers of a topic, including partitions without a leader.

        With `may_create`, the broker creates a missing topic if its settings allow this. Raises
        RefusedError if the topic is unknown, or is not created in time. Raises ConnectionLostError
        if no broker responds in time. `on_missing` is called for each response that does not
        contain the topic. If it raises an error, that error is raised to the caller.
        """
        code: int = ErrorCode.NONE
        is_answered = False
        with trio.move_on_after(deadline_s):
            while True:
                answer = await self.metadata([topic], may_create=may_create)
                is_answered = True
                found = only(answer.topics, "topic")
                code = found.error_code
                if code == ErrorCode.NONE and found.partitions:
                    return sorted(p.partition_index for p in found.partitions)
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and on_missing is not None:
                    on_missing()
                # A topic is unknown while it is being created.
                is_passing = may_create and row_of(code).is_retriable
                if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) and not is_passing:
                    break
                await trio.sleep(RETRY_WAIT_S)
        if not is_answered:
            raise self._unanswered(deadline_s)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise_for(code, f"there is no topic {topic!r}")
        if code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise_for(code, f"topic {topic!r}: {row_of(code).meaning}")
        raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r} has no leader")

    async def leader_of(self, partition: TopicPartition, *, deadline_s: float = 10.0) -> NodeId:
        """Return the leader of a partition. Requests metadata if the leader is not known.

        Raises RefusedError if the partition does not exist, or has no leader before the timeout.
        Raises ConnectionLostError if no broker responds in time.
        """
        is_answered = False
        with trio.move_on_after(deadline_s):
            while partition not in self._leaders:
                known = await self.partitions_of(partition.topic, deadline_s=deadline_s)
                is_answered = True
                if partition.partition not in known:
                    raise RefusedError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
                    )
                if partition not in self._leaders:
                    await trio.sleep(RETRY_WAIT_S)
        leader = self._leaders.get(partition)
        if leader is None:
            # A response may be old, and brokers may have become unreachable since.
            if not is_answered or self._reachability.last_reason is not None:
                raise self._unanswered(deadline_s)
            raise RefusedError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader"
            )
        return leader.node

    def _unanswered(self, deadline_s: float) -> ConnectionLostError:
        """Return the error of a request to which no broker has responded before the deadline."""
        return ConnectionLostError(
            self._reachability.last_reason or f"no broker answered in {deadline_s:g} s"
        )

    def forget_leaders(self) -> None:
        """Discard the known leaders of all partitions, because a response has shown that they are
        outdated."""
        self._leaders.clear()

    async def request(
        self,
        message: Message,
        response: type[R],
        *,
        node: NodeId | None = None,
        version: int | None = None,
    ) -> R:
        """Send a request to the broker `node`, or to any broker if `node` is None. Returns the
        decoded response.

        Raises RefusedError with UNSUPPORTED_VERSION if the request is one of Ottla's own and the
        brokers are not Ottla's. Other brokers would close the connection, on which other requests
        wait.
        """
        api = API[message.API_KEY]
        if api.is_own and not await self.serves_own_requests():
            raise RefusedError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the brokers are not Ottla's, and have no {api.name}",
            )
        connection = await self._any() if node is None else await self._of(node)
        try:
            with trio.fail_after(self._request_timeout_s or math.inf):
                return await connection.request(message, response, version)
        except trio.TooSlowError:
            await self._drop(connection)
            raise ConnectionLostError(
                f"{connection.address} did not answer in {self._request_timeout_s:g} s"
            ) from None
        except (ConnectionLostError, ProtocolError):
            await self._drop(connection)
            raise
        except trio.Cancelled:
            if connection.in_flight_count <= 1:
                # The request was cancelled, perhaps because the broker hangs: the next one uses
                # another broker.
                await self._drop(connection)
            raise

    async def serves_own_requests(self) -> bool:
        """Return whether the brokers are Ottla's and serve its own requests. The client sends this
        question once, to one broker."""
        if self._serves_own_requests is None:
            version = await self.version_of(ApiVersionsRequest.API_KEY)
            found = False
            if version >= OWN_FEATURES_FROM:
                request = ApiVersionsRequest(
                    client_software_name="ottla", client_software_version=VERSION
                )
                answer = await self.request(request, ApiVersionsResponse, version=version)
                found = any(one.name.startswith(OWN_FEATURES) for one in answer.supported_features)
            self._serves_own_requests = found
        return self._serves_own_requests

    async def version_of(self, api_key: int, node: NodeId | None = None) -> int:
        """Return the version in which `request` would send an API's requests to the broker `node`.
        Raises RefusedError if client and broker have no version in common."""
        connection = await self._any() if node is None else await self._of(node)
        return connection.version_of(api_key)

    async def refresh_versions(self) -> None:
        """Request the API versions of a connected broker again, because they may change while the
        connection is open."""
        connection = await self._any()
        try:
            with trio.fail_after(self._request_timeout_s or math.inf):
                await connection.negotiate()
        except (ConnectionLostError, ProtocolError, trio.TooSlowError) as error:
            await self._drop(connection)
            raise ConnectionLostError(f"{connection.address}: {error}") from error

    async def aclose(self) -> None:
        """Close all connections to brokers of the cluster."""
        for connection in list(self._connections.values()):
            await self._drop(connection)

    async def _of(self, node: NodeId) -> Pipeline:
        if node not in self._addresses:
            await self.metadata([])
        if node not in self._addresses:
            raise ConnectionLostError(f"broker {node} is not known to the cluster")
        return await self._at(self._addresses[node])

    async def _any(self) -> Pipeline:
        for open_connection in self._connections.values():
            return open_connection
        # Known brokers first: a bootstrap address may lead to another cluster by now.
        known = list(self._addresses.values())
        uses_bootstrap = self._recovery.is_enabled or not known
        addresses = dict.fromkeys([*known, *self._bootstrap] if uses_bootstrap else known)
        # Brokers that have failed lately are tried last.
        return await self._first_to_answer(
            sorted(addresses, key=lambda one: self._failed_at.get(one, 0.0))
        )

    async def _first_to_answer(self, addresses: list[tuple[str, int]]) -> Pipeline:
        """Return a connection to the first broker that responds. Raises the error of a failed
        attempt if no broker responds.

        If a broker has not responded after `NEXT_BROKER_AFTER_S`, the next broker is tried in
        parallel.
        """
        failure: OttlaError = ConnectionLostError("no bootstrap server is given")
        answered: list[Pipeline] = []

        async def attempt(address: tuple[str, int], ended: trio.Event) -> None:
            nonlocal failure
            try:
                answered.append(await self._at(address))
                nursery.cancel_scope.cancel()
            except (ConnectionLostError, ProtocolError, RefusedError) as error:
                failure = error
            ended.set()

        async with trio.open_nursery() as nursery:
            for address in addresses:
                ended = trio.Event()
                nursery.start_soon(attempt, address, ended)
                with trio.move_on_after(NEXT_BROKER_AFTER_S):
                    await ended.wait()
        if not answered:
            # The traceback of the attempts adds nothing to the message.
            raise failure.with_traceback(None)
        return answered[0]

    async def connect(
        self, address: tuple[str, int], *, client_id: str, timeout_s: float
    ) -> Pipeline:
        """Open a connection that the caller has to close, and return it. If the address is
        unreachable, the start and the end of the outage are logged.

        Raises MisroutedConnectionError if the peer is another broker than the metadata has at the
        address. The metadata is then discarded.
        """
        began_s = trio.current_time()
        restart_count = self._restart_count
        try:
            opened = await open_pipeline(
                *address,
                client_id=client_id,
                timeout_s=timeout_s,
                login=self.login,
                tls=self.tls,
                expected=self._expected_at(address),
            )
        except MisroutedConnectionError as error:
            if restart_count == self._restart_count:
                self._start_again(str(error))
            raise
        except ConnectionLostError as error:
            self._reachability.note_failure(
                address, str(error), began_s=began_s, now_s=trio.current_time()
            )
            raise
        self._reachability.note_success(address, now_s=trio.current_time())
        if restart_count != self._restart_count:
            opened.abort("")
            raise ConnectionLostError(f"{address[0]}:{address[1]} is of metadata that was dropped")
        self._opened.add(opened)
        if self.measures is not None:
            opened.latencies_s = self.measures.note_connection(opened.address)
        self.is_used.set()
        return opened

    def _expected_at(self, address: tuple[str, int]) -> ExpectedNode | None:
        """Return the broker that the metadata has at an address.

        Returns None for a bootstrap address that the metadata does not have, for an address that
        several brokers advertise, and if the check is disabled.
        """
        recovery = self._recovery
        if self.cluster_id is None or not (recovery.is_enabled and recovery.is_cluster_checked):
            return None
        nodes = [node for node, known in self._addresses.items() if known == address]
        return ExpectedNode(self.cluster_id, nodes[0]) if len(nodes) == 1 else None

    async def _at(self, address: tuple[str, int]) -> Pipeline:
        async with self._connecting.setdefault(address, trio.Lock()):
            found = self._connections.get(address)
            if found is None:
                try:
                    found = await self.connect(
                        address, client_id=self._client_id, timeout_s=CONNECT_TIMEOUT_S
                    )
                except ConnectionLostError:
                    self._failed_at[address] = trio.current_time()
                    raise
                self._connections[address] = found
        return found

    async def _drop(self, connection: Pipeline) -> None:
        for address, kept in list(self._connections.items()):
            if kept is connection:
                del self._connections[address]
                self._failed_at[address] = trio.current_time()
        # Its requests in flight are lost in any case.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await connection.aclose()


@asynccontextmanager
async def open_cluster(
    bootstrap: Iterable[tuple[str, int]],
    config: "ProducerConfig | ConsumerConfig | ShareConsumerConfig | None" = None,
    *,
    client_id: str = "ottla",
    request_timeout_s: float | None = None,
    login: "SaslLogin | None" = None,
    tls: "TlsConfig | None" = None,
    recovery: MetadataRecovery = DEFAULT_RECOVERY,
) -> AsyncIterator[Cluster]:
    """Open and yield a cluster that is reached through the `bootstrap` addresses.

    `config` contains the client id, the timeout, the login, the TLS settings and the conditions of
    metadata recovery. All connections are closed at the end of the caller's block. Raises
    RuntimeError outside of a trio program.
    """
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "this is the client for trio; with asyncio import it from ottla.client.aio"
        )
    if config is not None:
        client_id, request_timeout_s = config.client_id, config.request_timeout_ms / 1_000
        login, tls = config.login(), config.tls()
        recovery = recovery_of(config)
    cluster = Cluster(
        bootstrap,
        client_id=client_id,
        request_timeout_s=request_timeout_s,
        login=login,
        tls=tls,
        recovery=recovery,
    )
    try:
        yield cluster
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await cluster.aclose()


def recovery_of(config: "RecoveringClient") -> MetadataRecovery:
    """Return the conditions of metadata recovery in the settings of a client."""
    return MetadataRecovery(
        is_enabled=config.metadata_recovery_strategy == "rebootstrap",
        trigger_s=config.metadata_recovery_rebootstrap_trigger_ms / 1_000,
        is_cluster_checked=config.metadata_cluster_check_enable,
    )


def _ignore() -> None:
    """Default callback for discarded metadata. Does nothing."""


def raise_for(code: int, message: str | None = None) -> None:
    """Raise RefusedError if the error code of a response is not NONE. `message` is the broker's
    error message."""
    if code != ErrorCode.NONE:
        row = row_of(code)
        raise RefusedError(ErrorCode(row.code), message or row.meaning)
