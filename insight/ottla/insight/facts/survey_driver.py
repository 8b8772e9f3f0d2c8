"""Surveys the cluster's present state: its quorum, its brokers, its partitions.

Each broker reports its own state. The requests are concurrent and have a short timeout, so that
only the state of a hanging broker is missing. This module does not assess the state; `health` does.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_cluster import QuorumReplica
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.network.connection import ConnectionLostError, open_connection
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS
from ottla.insight.facts.stored_plan import NO_PLAN, StoredPlan, read_stored_plan
from ottla.model.errors import ErrorCode, OttlaError, RefusedError, code_of
from ottla.model.ids import ZERO_UUID
from ottla.model.settings.resources import ConfigKind
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import DescribeNodeResponse, NodeRegistration
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

QUORUM_TIMEOUT_S = 5.0
NODE_TIMEOUT_S = 3.0
"""Maximum wait, in seconds, for one broker's response to the survey. A slower broker counts as
unhealthy."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"
DRAINS = ("DRAINING", "DRAINED")
"""States of a broker during and after a drain (the transfer of its partition leaderships to other
brokers)."""
UNREPORTED = "unreported"
"""State in a survey of a broker that responds without reporting a state, because it is not a broker
of Ottla."""
EPOCH_METRIC = "broker.epoch"
CLOCK_METRIC = "clock.wall.ms"
MOVING_METRIC = "partitions.moving"
"""Name of a broker's metric: the number of logs that are being moved between its log directories.
"""

REPLICATION_THROTTLES = ("throttle.leader", "throttle.follower")
LOG_DIRS_THROTTLE = "throttle.log.dirs"
"""Name of a broker's metric: the throttle rate of moves between its log directories, in bytes per
second. The metric exists only if the rate is set."""


@dataclass(slots=True, kw_only=True)
class SurveyedReplica:
    """One voter or observer (a node that does not vote) of the controller quorum, as described by
    the quorum's leader."""

    id: int
    directory_id: str
    address: str
    version: str | None = None
    """Version of Ottla that the node runs if it is a controller. None if it is unknown."""
    log_end_offset: int
    lag: int
    last_fetch_ms_ago: int | None
    """Time since the voter or observer last fetched the metadata log, in ms, by the quorum leader's
    clock. None if the leader has seen no fetch."""
    last_caught_up_ms_ago: int | None


@dataclass(slots=True, kw_only=True)
class SurveyedQuorum:
    """State of the quorum of controllers. If the state is unknown, `failure` contains the
    reason."""

    leader_id: int = -1
    epoch: int = -1
    high_watermark: int = -1
    voters: list[SurveyedReplica] = field(default_factory=list)
    observers: list[SurveyedReplica] = field(default_factory=list)
    problems: str = ""
    warnings: str = ""
    failure: str = ""
    denial: str = ""
    """Reason why the user may not read the quorum's state. Empty if the user may read it."""
    clock_ahead_ms: int | None = None
    """Time in ms by which the quorum leader's wall clock is ahead of this machine's clock. None if
    it is unknown."""


@dataclass(slots=True, kw_only=True)
class SurveyedDirectory:
    """Space on the volume of one directory of a broker, as last measured."""

    path: str
    state: str
    """State of the directory's volume: ok, filling or full."""
    total_bytes: int
    usable_bytes: int


@dataclass(slots=True, kw_only=True)
class SurveyedBroker:
    """One registered broker as found by a survey. If the broker did not respond, `failure` contains
    the reason."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    state: str = "unreachable"
    version: str = ""
    """Version of Ottla that the broker runs. Empty if the broker did not respond or is too old to
    report it."""
    failure: str = ""
    denial: str = ""
    """Reason why the user may not read the broker's state. Empty if the user may read it."""
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    directories: list[SurveyedDirectory] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    clock_ahead_ms: int | None = None
    is_cordoned: bool = False
    """True if the broker gets no new replicas."""
    machine: str | None = None
    """Failure domain of the broker: the id of its machine, or the name in
    ottla.failure.domain.host. None if it is unknown."""

    @property
    def address(self) -> str:
        """Address by which clients reach the broker."""
        return f"{self.host}:{self.port}"

    @property
    def usable_bytes(self) -> int | None:
        """Free bytes of the broker's fullest volume, or None if they are unknown."""
        return min((one.usable_bytes for one in self.directories), default=None)

    @property
    def epoch(self) -> int:
        """Broker epoch, or -1 if the broker did not respond."""
        return int(self.metrics.get(EPOCH_METRIC, -1))

    def has_throttle(self, *names: str) -> bool:
        """Return whether at least one of the named replication throttle rates is set for the
        broker."""
        return not self.metrics.keys().isdisjoint(names)


@dataclass(slots=True, kw_only=True)
class SurveyedPartition:
    """One partition as a metadata response describes it."""

    name: str
    topic: str
    leader_id: int
    replicas: list[int]
    isr: list[int]

    @property
    def is_under_replicated(self) -> bool:
        """True if a replica of the partition is not in sync."""
        return len(self.isr) < len(self.replicas)


class Registrations(NamedTuple):
    """Properties of registered nodes that Kafka's requests do not report, by node id."""

    brokers: dict[int, NodeRegistration]
    controllers: dict[int, str]
    """Version of Ottla that each controller runs, by node id. Empty below level 1 of ottla.version.
    """


@dataclass(slots=True, kw_only=True)
class Survey:
    """The state of the cluster as one survey found it."""

    cluster_id: str | None
    quorum: SurveyedQuorum
    brokers: list[SurveyedBroker]
    partitions: list[SurveyedPartition]
    min_insync: dict[str, int]
    """Value of min.insync.replicas of each topic that has under-replicated partitions."""
    reassignment_count: int = 0
    """Number of partitions that are being moved between brokers. The survey requests it only if a
    broker is throttled."""
    balance: StoredPlan = NO_PLAN
    """The balance plan (moves of replicas) that the cluster carries out."""
    serves_own_requests: bool = True
    """False if the brokers are not Ottla's, so that their disks, throttles and states are
    unknown."""

    @property
    def denials(self) -> list[str]:
        """Sentences about nodes whose state the user may not read. The nodes may be healthy."""
        found = [("the quorum", self.quorum.denial)]
        found += [(f"broker {one.id}", one.denial) for one in self.brokers]
        return [f"the state of {node} may not be read ({why})" for node, why in found if why]


async def survey(admin: Admin) -> Survey:
    """Return the state of the cluster, as all its nodes report it. Raises RefusedError if the
    broker that responds to this client cannot return metadata yet."""
    metadata = await admin.cluster.metadata()
    partitions = partitions_of(metadata)
    min_insync = await min_insync_of(admin, partitions)
    found = await _survey_nodes(admin, metadata.cluster_id)
    return replace(found, partitions=partitions, min_insync=min_insync)


async def survey_nodes(admin: Admin) -> Survey:
    """Return the state of the quorum and of all brokers, without partitions. The work does not
    depend on the number of partitions."""
    return await _survey_nodes(admin, (await admin.cluster.metadata([])).cluster_id)


async def _survey_nodes(admin: Admin, cluster_id: str | None) -> Survey:
    brokers = await registered(admin)
    registrations = await registrations_of(admin)
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(_ask_node, admin, broker)
        quorum = await quorum_of(admin)
    _add_registrations(registrations, brokers, quorum)
    is_throttled = any(broker.has_throttle(*REPLICATION_THROTTLES) for broker in brokers)
    return Survey(
        cluster_id=cluster_id,
        quorum=quorum,
        brokers=brokers,
        partitions=[],
        min_insync={},
        reassignment_count=await _count_of_reassignments(admin) if is_throttled else 0,
        balance=await _balance_of(admin),
        serves_own_requests=await admin.cluster.serves_own_requests(),
    )


async def _count_of_reassignments(admin: Admin) -> int:
    try:
        return len(await admin.list_reassignments())
    except (RefusedError, ConnectionLostError):
        return 1  # unknown: no throttle is reported as left over


async def _balance_of(admin: Admin) -> StoredPlan:
    try:
        return await read_stored_plan(admin)
    except (RefusedError, ConnectionLostError):
        return NO_PLAN  # not permitted, or unknown


async def quorum_of(admin: Admin) -> SurveyedQuorum:
    """Return the state of the controller quorum as its leader describes it."""
    try:
        with trio.fail_after(QUORUM_TIMEOUT_S):
            found = await admin.ask_quorum()
        wall_ms = _wall_ms()
    except trio.TooSlowError:
        return SurveyedQuorum(failure=f"no answer in {QUORUM_TIMEOUT_S:g} s")
    except RefusedError as error:
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return SurveyedQuorum(denial=error.message.rstrip("."))
        return SurveyedQuorum(failure=error.message)
    leader = next((one for one in found.voters if one.node == found.leader), None)

    def replica(state: QuorumReplica) -> SurveyedReplica:
        address = found.addresses.get(state.node)
        return _replica(state, leader, "" if address is None else f"{address[0]}:{address[1]}")

    return SurveyedQuorum(
        leader_id=found.leader,
        epoch=found.leader_epoch,
        high_watermark=found.high_watermark,
        voters=[replica(state) for state in found.voters],
        observers=[replica(state) for state in found.observers],
        problems=found.problems,
        warnings=found.warnings,
        clock_ahead_ms=None if leader is None else leader.last_fetch_ms - wall_ms,
    )


async def brokers_of(admin: Admin, *, only: int | None = None) -> list[SurveyedBroker]:
    """Return the registered brokers in order of ids, with the information that each returns about
    itself. If `only` is given, only the broker with that id is returned."""
    brokers = [one for one in await registered(admin) if only in (None, one.id)]
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(_ask_node, admin, broker)
    _add_registrations(await registrations_of(admin), brokers)
    return brokers


async def registrations_of(admin: Admin) -> Registrations:
    """Return the registrations of all nodes. Empty if the broker that responds is too old to report
    them, or if the user may not read them."""
    try:
        answer = await admin.cluster.request(
            DescribeNodeRequest(include_registrations=True), DescribeNodeResponse
        )
    except (RefusedError, ConnectionLostError):
        return Registrations({}, {})
    return Registrations(
        {one.broker_id: one for one in answer.registrations},
        {one.controller_id: one.software_version for one in answer.controllers},
    )


async def controllers_of(admin: Admin) -> dict[int, str | None]:
    """Return the version of Ottla that each voter and each registered controller runs, by node id.
    The version is None if a voter has not registered."""
    quorum = await quorum_of(admin)
    versions = (await registrations_of(admin)).controllers
    nodes = sorted({one.id for one in quorum.voters} | versions.keys())
    return {node: versions.get(node) or None for node in nodes}


def _add_registrations(
    found: Registrations, brokers: Iterable[SurveyedBroker], quorum: SurveyedQuorum | None = None
) -> None:
    """Add the properties in the nodes' registrations to the surveyed brokers and controllers."""
    for broker in brokers:
        registration = found.brokers.get(broker.id)
        if registration is not None:
            broker.is_cordoned, broker.machine = registration.is_cordoned, registration.host
    for replica in (*quorum.voters, *quorum.observers) if quorum is not None else ():
        replica.version = found.controllers.get(replica.id) or None


def not_registered(broker_id: int) -> RefusedError:
    """Return the error for the id of a broker that is not registered."""
    return RefusedError(
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        f"there is no broker {broker_id} in this cluster; see 'ottla broker list'",
    )


def partitions_of(metadata: MetadataResponse) -> list[SurveyedPartition]:
    """Return every partition of a metadata response."""
    return [surveyed_partition(topic, row) for topic in metadata.topics for row in topic.partitions]


def surveyed_partition(
    topic: MetadataResponseTopic, row: MetadataResponsePartition
) -> SurveyedPartition:
    """Convert one partition of a Metadata response to a SurveyedPartition."""
    return SurveyedPartition(
        name=f"{topic.name}-{row.partition_index}",
        topic=topic.name or "",
        leader_id=row.leader_id,
        replicas=list(row.replica_nodes),
        isr=list(row.isr_nodes),
    )


async def registered(admin: Admin) -> list[SurveyedBroker]:
    """Return the registered brokers in order of ids, without sending a request to each of them."""
    found = await admin.describe_cluster(has_fenced=True)
    return [
        SurveyedBroker(
            id=one.node, host=one.host, port=one.port, rack=one.rack, is_fenced=one.is_fenced
        )
        for one in sorted(found.brokers)
    ]


async def _ask_node(admin: Admin, broker: SurveyedBroker) -> None:
    # The address may not be in the metadata, so that the admin client's connections do not reach
    # it: a connection of this task has the same login. A task has its own copy of both variables.
    if admin.cluster.login is not None:
        LOGIN.set(admin.cluster.login)
    if admin.cluster.tls is not None:
        TLS.set(admin.cluster.tls)
    try:
        with trio.fail_after(NODE_TIMEOUT_S):
            async with open_connection(broker.host, broker.port) as connection:
                if not await admin.cluster.serves_own_requests():
                    broker.state = UNREPORTED
                    return
                asked_ms = _wall_ms()
                node = await connection.request(DescribeNodeRequest(), DescribeNodeResponse)
                answered_ms = _wall_ms()
    except trio.TooSlowError:
        broker.failure = f"{broker.address} did not answer in {NODE_TIMEOUT_S:g} s"
        return
    except OttlaError as error:
        broker.failure = str(error)
        return
    if node.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        broker.denial = (node.error_message or "DESCRIBE on the cluster is needed").rstrip(".")
        broker.state = UNREPORTED
        return
    if node.error_code:
        broker.failure = str(RefusedError(code_of(node.error_code), node.error_message))
        return
    if node.node_id != broker.id:
        broker.failure = f"{broker.address} is broker {node.node_id}"
        return
    broker.state = node.state
    broker.version = node.version
    broker.problems = list(node.problems)
    broker.warnings = list(node.warnings)
    broker.directories = [
        SurveyedDirectory(
            path=one.path,
            state=one.state,
            total_bytes=one.total_bytes,
            usable_bytes=one.usable_bytes,
        )
        for one in node.directories
    ]
    broker.metrics = {metric.name: metric.value for metric in node.metrics}
    if CLOCK_METRIC in broker.metrics:
        theirs_ms = int(broker.metrics.pop(CLOCK_METRIC))
        broker.clock_ahead_ms = theirs_ms - (asked_ms + answered_ms) // 2


async def min_insync_of(admin: Admin, partitions: Iterable[SurveyedPartition]) -> dict[str, int]:
    """Return min.insync.replicas of each topic with under-replicated partitions. Empty if the user
    may not read it."""
    topics = sorted({one.topic for one in partitions if one.is_under_replicated})
    if not topics:
        return {}
    try:
        outcomes = await admin.try_describe_configs(
            [ConfigResource(ConfigKind.TOPIC, topic) for topic in topics],
            keys=[MIN_INSYNC_REPLICAS],
        )
    except (RefusedError, ConnectionLostError):
        return {}
    return {
        resource.name: int(entry.value)
        for resource, found in outcomes.items()
        if not isinstance(found, RefusedError)
        and (entry := found.get(MIN_INSYNC_REPLICAS)) is not None
        and entry.value
    }


def _replica(state: QuorumReplica, leader: QuorumReplica | None, address: str) -> SurveyedReplica:
    def ago(timestamp: int) -> int | None:
        if leader is None or timestamp < 0:
            return None
        # The leader reports the present time as its own last fetch.
        return max(0, leader.last_fetch_ms - timestamp)

    end_offset = state.end_offset if leader is None else leader.end_offset
    known = state.directory_id != ZERO_UUID
    return SurveyedReplica(
        id=state.node,
        directory_id=uuid_to_text(state.directory_id) if known else "",
        address=address,
        log_end_offset=state.end_offset,
        lag=max(0, end_offset - max(0, state.end_offset)),
        last_fetch_ms_ago=ago(state.last_fetch_ms),
        last_caught_up_ms_ago=ago(state.last_caught_up_ms),
    )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def counts_of(broker: SurveyedBroker, partitions: list[SurveyedPartition]) -> dict[str, Any]:
    """Return four counts about a broker: its leaderships, its under-replicated leaderships, its
    replicas, and its out-of-sync replicas."""
    led = [one for one in partitions if one.leader_id == broker.id]
    held = [one for one in partitions if broker.id in one.replicas]
    return {
        "leaders": len(led),
        "replicas": len(held),
        "under_replicated": sum(one.is_under_replicated for one in led),
        "out_of_sync": sum(broker.id not in one.isr for one in held),
    }
