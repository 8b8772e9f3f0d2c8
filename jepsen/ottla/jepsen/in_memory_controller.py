"""A controller without quorum, clock or network, for tests and simulations: every decision is
committed at once.

One object contains the whole metadata of a cluster. Tests advance its clock by hand.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from ottla.controller import client_requests
from ottla.controller.decision import Context, Decision, QuorumStatus, R, decided
from ottla.controller.membership import brokers
from ottla.controller.membership.sessions import BrokerSessions
from ottla.controller.mutation_quotas import NO_CHARGE, MutationCharge, MutationQuotas
from ottla.controller.replication import partitions
from ottla.controller.requester import A_BROKER, Requester
from ottla.metadata import features, fold
from ottla.metadata.audit_log import AuditLog
from ottla.metadata.image import EMPTY, MetadataImage, PartitionState
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.ids import Epoch, NodeId, Offset, TopicIdPartition
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.controller import ControllerConfig
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.raft.voters import QuorumIdentity, Voter, VoterSet
from ottla.wire.codec_types import Message

CLUSTER_ID = "rehearsal"
CONTROLLER = NodeId(101)
IDENTITY = QuorumIdentity(
    node_id=CONTROLLER,
    directory_id=UUID(int=CONTROLLER),
    cluster_id=CLUSTER_ID,
    voters=VoterSet((Voter(id=CONTROLLER, directory_id=UUID(int=CONTROLLER)),)),
)
FIRST_UUID = 0x1000
FIRST_OFFSET = Offset(0)


@dataclass(slots=True)
class CountingRng:
    """Replacement for a random number generator. Each result depends only on the number of earlier
    calls, so every run of a test is the same."""

    drawn: int = 0

    def random(self) -> float:
        """Return the constant 0.5."""
        return 0.5

    def below(self, bound: int) -> int:
        """Return the next integer of a counter, modulo `bound`."""
        self.drawn += 1
        return self.drawn % bound

    def uuid(self) -> UUID:
        """Return a UUID that was never returned before."""
        self.drawn += 1
        return UUID(int=FIRST_UUID + self.drawn)


@dataclass(slots=True)
class InMemoryController:
    """The metadata of one cluster without a quorum, and methods that send requests on behalf of its
    brokers and clients."""

    config: ControllerConfig = field(default_factory=ControllerConfig)
    min_insync_replicas: int = 1
    now_ms: int = 0
    next_offset: Offset = field(default=FIRST_OFFSET)
    image: MetadataImage = EMPTY
    rng: CountingRng = field(default_factory=CountingRng)
    sessions: BrokerSessions = field(init=False)
    mutations: MutationQuotas = field(default_factory=lambda: MutationQuotas(WindowShape()))
    last_charge: MutationCharge = NO_CHARGE
    """Charge of the last client request against the controller mutation quota."""

    authorizer: StandardAuthorizer | None = field(init=False, default=None)
    """Authorizer of client requests, or None if authorization is off."""

    def __post_init__(self) -> None:
        if self.config.authorizer.is_on:
            audit = AuditLog(lambda: self.now_ms)
            self.authorizer = StandardAuthorizer(self.config.authorizer, audit)
        self.sessions = BrokerSessions(self.config.session_timeout_ms)
        bootstrap = features.bootstrap_records(min_insync_replicas=self.min_insync_replicas)
        self.take(decided(self.image, bootstrap, None))

    def take(self, decision: Decision[R]) -> R:
        """Apply the records of a controller decision to the metadata, and return the decision's
        response."""
        self.image = fold.apply_all(self.image, decision.records)
        assert decision.image == self.image, "a decision carries what its records come to"
        self.next_offset = Offset(self.next_offset + len(decision.records))
        return decision.reply

    def register(
        self,
        broker: int,
        *,
        incarnation: int = 1,
        previous_epoch: int = -1,
        rack: str | None = None,
        host: str | None = None,
        directories: int = 1,
        principal: str = "",
        lost: Iterable[TopicIdPartition] = (),
    ) -> int:
        """Register a broker with the controller and return the broker's epoch."""
        request = registration(
            broker,
            incarnation=incarnation,
            previous_epoch=previous_epoch,
            rack=rack,
            host=host,
            directories=directories,
        )
        request.principal = principal
        for topic_id, partition in lost:
            request.lost_replicas.add(topic_id=topic_id.bytes, partitions=[partition])
        return self.take(
            brokers.register(
                self.image,
                self.config,
                self.sessions,
                request,
                identity=IDENTITY,
                next_offset=self.next_offset,
                now_ms=self.now_ms,
            )
        ).broker_epoch

    def heartbeat(
        self,
        broker: int,
        *,
        metadata_offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: tuple[UUID, ...] = (),
        cordoned_log_dirs: tuple[UUID, ...] | None = None,
    ) -> pb.HeartbeatResponse:
        """Send a broker's heartbeat, and return the response. If `metadata_offset` is None, the
        heartbeat reports that the broker has applied all metadata."""
        applied = self.next_offset - 1 if metadata_offset is None else metadata_offset
        request = pb.HeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.image.brokers[NodeId(broker)].epoch,
            current_metadata_offset=applied,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=[one.bytes for one in offline_log_dirs],
        )
        if cordoned_log_dirs is not None:
            request.cordoned_log_dirs.ids.extend(one.bytes for one in cordoned_log_dirs)
            request.cordoned_log_dirs.SetInParent()
        return self.take(
            brokers.heartbeat(
                self.image,
                self.config,
                self.sessions,
                request,
                next_offset=self.next_offset,
                now_ms=self.now_ms,
            )
        )

    def start(self, *ids: int) -> None:
        """Register and unfence the brokers with the node ids `ids`."""
        for broker in ids:
            self.register(broker)
            self.heartbeat(broker)

    def fence_expired(self) -> tuple[NodeId, ...]:
        """Fence the brokers whose sessions have expired, and return the brokers' ids."""
        return self.take(brokers.fence_expired(self.image, self.config, self.sessions, self.now_ms))

    def kill(self, *ids: int) -> None:
        """Expire the sessions of the brokers with the node ids `ids`, after a heartbeat of every
        other broker."""
        self.now_ms += self.config.session_timeout_ms
        for broker in self.image.brokers.values():
            if broker.id not in ids and not broker.is_fenced:
                self.sessions.touch(broker.id, broker.epoch, Offset(-1), self.now_ms)
        assert set(self.fence_expired()) == set(ids)

    def forward(
        self,
        request: Message,
        version: int | None = None,
        *,
        user: str = "ANONYMOUS",
        client_id: str = "",
        host: str = "127.0.0.1",
        is_token: bool = False,
    ) -> Message:
        """Decide a client's request as the controller does, and apply the decision to the metadata.
        Returns the response."""
        if self.authorizer is not None:
            self.authorizer.take(self.image.acls)
        requester = Requester(f"User:{user}", host, self.authorizer, is_token=is_token)
        return self._forward(request, version, requester, user=user, client_id=client_id)

    def forward_own(self, request: Message, version: int | None = None) -> Message:
        """Decide a request that a broker sends for itself, and apply the decision to the metadata.
        Returns the response."""
        return self._forward(request, version, A_BROKER)

    def _forward(
        self,
        request: Message,
        version: int | None,
        requester: Requester,
        *,
        user: str = "",
        client_id: str = "",
    ) -> Message:
        api_version = request.VERSIONS[-1] if version is None else version
        self.last_charge = self.mutations.charge(
            self.image.client_quotas,
            api_key=request.API_KEY,
            api_version=api_version,
            user=user,
            client_id=client_id,
            now_ms=self.now_ms,
        )
        context = Context(
            config=self.config,
            rng=self.rng,
            quorum_status=self.quorum_status,
            charge=self.last_charge,
            requester=requester,
            wall_ms=lambda: self.now_ms,
            api_version=api_version,
            cluster_id=IDENTITY.cluster_id,
        )
        return self.take(client_requests.decide(self.image, request.API_KEY, request, context))

    def alter_isr(self, topic: str, partition: int, *isr: int) -> pb.AlterPartitionResult:
        """Send an AlterPartition request on behalf of the partition's leader, which proposes the
        ISR `isr` with the current epochs. Returns the partition's result."""
        found = self.image.topic(topic)
        assert found is not None
        state = found.partitions[partition]
        proposal = pb.AlterPartitionProposal(
            partition_id=partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=[
                pb.BrokerState(broker_id=one, broker_epoch=self.image.brokers[NodeId(one)].epoch)
                for one in isr
            ],
        )
        request = pb.AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=self.image.brokers[state.leader].epoch,
            topics=[pb.AlterPartitionTopic(topic_id=found.id.bytes, partitions=[proposal])],
        )
        reply = self.take(partitions.alter_partition(self.image, self.config, request))
        return reply.topics[0].partitions[0]

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        """Return the current state of one partition in the metadata."""
        found = self.image.topic(topic)
        assert found is not None
        return found.partitions[partition]

    def quorum_status(self) -> QuorumStatus:
        """Return the status of a controller quorum that has no voters."""
        return QuorumStatus(
            leader_id=CONTROLLER,
            leader_epoch=Epoch(1),
            high_watermark=self.next_offset,
            voters=(),
            observers=(),
        )


def registration(
    broker: int,
    *,
    incarnation: int = 1,
    previous_epoch: int = -1,
    rack: str | None = None,
    host: str | None = None,
    directories: int = 1,
) -> pb.RegisterRequest:
    """Return the registration request of a broker that runs this release."""
    return pb.RegisterRequest(
        cluster_id=CLUSTER_ID,
        broker_id=broker,
        incarnation_id=UUID(int=broker * 1000 + incarnation).bytes,
        listeners=[metadata_pb2.Endpoint(name="PLAINTEXT", host=f"broker-{broker}", port=9092)],
        features=[
            metadata_pb2.FeatureRange(
                name=name, min_supported_version=lowest, max_supported_version=highest
            )
            for name, (lowest, highest) in features.SUPPORTED.items()
        ],
        rack=rack,
        host=host,
        log_dirs=[directory_id(broker, index).bytes for index in range(directories)],
        previous_broker_epoch=previous_epoch,
    )


def directory_id(broker: int, index: int = 0) -> UUID:
    """Return the id of the log directory number `index` of a broker."""
    return UUID(int=(broker << 32) + 100 + index)
