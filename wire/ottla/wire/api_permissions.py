"""Which operations a client must be allowed for each API: one declared row per API.

`PERMISSIONS` has a row for every API of `apis.py`, Kafka's and ours, and `RPC_PERMISSIONS` one for
every gRPC method between our nodes; a test fails where one is missing.  Rows are Kafka's
(KafkaApis, ControllerApis, AclApis, AuthHelper).  A broker's gates are made of them, the controller
decides forwarded requests by them, and docs/security.md shows them.
"""

from enum import Enum, StrEnum

from ottla.model.acls import AclOperation, ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.values import frozen
from ottla.wire import apis
from ottla.wire.apis import API

AUTHORIZATION_CODES: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The code that refuses an operation on a resource, unless its row has another."""


class Scope(Enum):
    """What is refused where an operation is not allowed."""

    REQUEST = "the request"
    EACH = "each one named"
    """The one element, with the code in its own place of the answer."""
    HIDDEN = "left out of the answer"
    OPTION = "an option"
    """What the client asked for besides; the rest is served."""


class When(StrEnum):
    """In which requests of an API an operation is needed."""

    ALWAYS = ""
    TRANSACTIONAL = "with a transactional id"
    NOT_TRANSACTIONAL = "without a transactional id"
    TWO_PHASE = "with two-phase commit"
    CONSUMER = "from a consumer"
    FOLLOWER = "from a replica"
    OF_CLIENTS = "up to version 3"
    OF_BROKERS = "from version 4"
    GROUP_KEYS = "for groups"
    TRANSACTION_KEYS = "for transactional ids"
    SHARE_KEYS = "for share groups"
    TOPIC_CONFIGS = "for topics"
    GROUP_CONFIGS = "for groups' settings"
    CLUSTER_CONFIGS = "for brokers, loggers and client metrics"
    TOPIC_IDS = "by topic id"
    CREATING = "to create topics"
    OTHER_OWNER = "for another owner"
    OTHER_TOKENS = "for tokens of others"
    ON_CONTROLLERS = "on a controller"


class Decider(Enum):
    """The node that decides a request that reached a broker."""

    BROKER = "broker"
    CONTROLLER = "controller"
    """The active one: brokers forward the request with its principal and address."""


@frozen(kw_only=True)
class Need:
    """One operation that is needed."""

    operation: AclOperation
    resource: ResourceType
    scope: Scope = Scope.REQUEST
    named_by: str = ""
    """The field of the request with the resource's name; of the cluster, the elements that need the
    operation.  Empty for all of the request, and where the answer names the resources."""
    when: When = When.ALWAYS
    code: ErrorCode
    is_somewhere: bool = False
    """Whether the operation is enough on any resource of the type."""
    hides_as: ErrorCode | None = None
    """What a client is told instead where it may not know that the resource exists."""


@frozen
class AnyOf:
    """Operations of which one is enough; the code of the last one refuses."""

    needs: tuple[Need, ...]


@frozen(kw_only=True)
class ApiPermission:
    """What one API needs: all of `needs`; an empty tuple with the reason why it needs nothing."""

    key: int
    needs: tuple[Need | AnyOf, ...]
    decider: Decider
    why_open: str = ""

    @property
    def single_needs(self) -> tuple[Need, ...]:
        """Every need of the row, alternatives included."""
        found: list[Need] = []
        for one in self.needs:
            found += one.needs if isinstance(one, AnyOf) else (one,)
        return tuple(found)


_OP = AclOperation
_CLUSTER, _TOPIC, _GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
_TXN, _USER, _TOKEN = (
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.USER,
    ResourceType.DELEGATION_TOKEN,
)
_EACH, _HIDDEN, _OPTION = Scope.EACH, Scope.HIDDEN, Scope.OPTION


def _need(
    operation: AclOperation,
    resource: ResourceType,
    named_by: str = "",
    scope: Scope = Scope.REQUEST,
    *,
    when: When = When.ALWAYS,
    code: ErrorCode | None = None,
    is_somewhere: bool = False,
    hides_as: ErrorCode | None = None,
) -> Need:
    return Need(
        operation=operation,
        resource=resource,
        scope=scope,
        named_by=named_by,
        when=when,
        code=AUTHORIZATION_CODES[resource] if code is None else code,
        is_somewhere=is_somewhere,
        hides_as=hides_as,
    )


def _on_cluster(operation: AclOperation, *, when: When = When.ALWAYS) -> Need:
    return _need(operation, _CLUSTER, when=when)


def _topic(operation: AclOperation, named_by: str = "topics.name", scope: Scope = _EACH) -> Need:
    return _need(operation, _TOPIC, named_by, scope)


def _group(
    operation: AclOperation, named_by: str = "group_id", scope: Scope = Scope.REQUEST
) -> Need:
    return _need(operation, _GROUP, named_by, scope)


def _of_transaction(named_by: str = "transactional_id", *, when: When = When.ALWAYS) -> Need:
    return _need(_OP.WRITE, _TXN, named_by, when=when)


def _configs(operation: AclOperation) -> tuple[Need, ...]:
    name = "resources.resource_name"
    return (
        _need(operation, _TOPIC, name, _EACH, when=When.TOPIC_CONFIGS),
        _need(operation, _GROUP, name, _EACH, when=When.GROUP_CONFIGS),
        _need(operation, _CLUSTER, name, _EACH, when=When.CLUSTER_CONFIGS),
    )


def _row(key: int, *needs: Need | AnyOf) -> ApiPermission:
    assert needs, f"{API[key].name} needs something, or is open for a reason"
    is_forwarded = API[key].is_forwarded
    decider = Decider.CONTROLLER if is_forwarded or not API[key].on_broker else Decider.BROKER
    return ApiPermission(key=key, needs=needs, decider=decider)


def _open(key: int, why: str) -> ApiPermission:
    return ApiPermission(key=key, needs=(), decider=Decider.BROKER, why_open=why)


_BEFORE = "it comes before a client is known"
_TELEMETRY = "an operator asked clients for it"

_DATA_ROWS = (
    _row(
        apis.PRODUCE,
        _of_transaction(when=When.TRANSACTIONAL),
        _topic(_OP.WRITE, "topic_data.name"),
    ),
    _row(
        apis.FETCH,
        _need(_OP.READ, _TOPIC, "topics.topic", _EACH, when=When.CONSUMER),
        _need(
            _OP.CLUSTER_ACTION,
            _CLUSTER,
            "topics.topic",
            _EACH,
            when=When.FOLLOWER,
            code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    ),
    _row(apis.LIST_OFFSETS, _topic(_OP.DESCRIBE)),
    _row(
        apis.METADATA,
        _topic(_OP.DESCRIBE),
        _need(_OP.DESCRIBE, _TOPIC, "", _HIDDEN),
        AnyOf(
            (
                _need(_OP.CREATE, _CLUSTER, "", _OPTION, when=When.CREATING),
                _need(_OP.CREATE, _TOPIC, "topics.name", _OPTION, when=When.CREATING),
            )
        ),
    ),
    _row(
        apis.DESCRIBE_TOPIC_PARTITIONS,
        _topic(_OP.DESCRIBE),
        _need(_OP.DESCRIBE, _TOPIC, "", _HIDDEN),
    ),
    _row(apis.DELETE_RECORDS, _topic(_OP.DELETE)),
    _row(
        apis.OFFSET_FOR_LEADER_EPOCH,
        AnyOf((_on_cluster(_OP.CLUSTER_ACTION), _topic(_OP.DESCRIBE, "topics.topic"))),
    ),
    _row(apis.DESCRIBE_PRODUCERS, _topic(_OP.READ)),
    _row(apis.ALTER_REPLICA_LOG_DIRS, _on_cluster(_OP.ALTER)),
    _row(apis.DESCRIBE_LOG_DIRS, _on_cluster(_OP.DESCRIBE)),
)

_GROUP_ROWS = (
    _row(apis.OFFSET_COMMIT, _group(_OP.READ), _topic(_OP.READ)),
    _row(
        apis.OFFSET_FETCH,
        _group(_OP.DESCRIBE, "groups.group_id", _EACH),
        _topic(_OP.DESCRIBE, "groups.topics.name"),
        _need(_OP.DESCRIBE, _TOPIC, "", _HIDDEN),
    ),
    _row(apis.OFFSET_DELETE, _group(_OP.DELETE), _topic(_OP.READ)),
    _row(
        apis.FIND_COORDINATOR,
        _need(_OP.DESCRIBE, _GROUP, "coordinator_keys", _EACH, when=When.GROUP_KEYS),
        _need(_OP.DESCRIBE, _TXN, "coordinator_keys", _EACH, when=When.TRANSACTION_KEYS),
        _need(_OP.CLUSTER_ACTION, _CLUSTER, "coordinator_keys", _EACH, when=When.SHARE_KEYS),
    ),
    _row(apis.JOIN_GROUP, _group(_OP.READ)),
    _row(apis.SYNC_GROUP, _group(_OP.READ)),
    _row(apis.HEARTBEAT, _group(_OP.READ)),
    _row(apis.LEAVE_GROUP, _group(_OP.READ)),
    _row(
        apis.CONSUMER_GROUP_HEARTBEAT,
        _group(_OP.READ),
        _topic(_OP.DESCRIBE, "subscribed_topic_names", Scope.REQUEST),
        _need(_OP.DESCRIBE, _TOPIC, "", _HIDDEN),
    ),
    _row(apis.DESCRIBE_GROUPS, _group(_OP.DESCRIBE, "groups", _EACH)),
    _row(
        apis.CONSUMER_GROUP_DESCRIBE,
        _group(_OP.DESCRIBE, "group_ids", _EACH),
        _need(_OP.DESCRIBE, _TOPIC, "", _EACH),
    ),
    _row(
        apis.LIST_GROUPS,
        AnyOf((_on_cluster(_OP.DESCRIBE), _need(_OP.DESCRIBE, _GROUP, "", _HIDDEN))),
    ),
    _row(apis.DELETE_GROUPS, _group(_OP.DELETE, "groups_names", _EACH)),
    _row(
        76,  # ShareGroupHeartbeat
        _group(_OP.READ),
        _topic(_OP.DESCRIBE, "subscribed_topic_names", Scope.REQUEST),
    ),
    _row(
        77,  # ShareGroupDescribe
        _group(_OP.DESCRIBE, "group_ids", _EACH),
        _need(_OP.DESCRIBE, _TOPIC, "", _EACH),
    ),
    _row(78, _group(_OP.READ), _topic(_OP.READ, "topics.topic_id")),  # ShareFetch
    _row(79, _group(_OP.READ), _topic(_OP.READ, "topics.topic_id")),  # ShareAcknowledge
    *(_row(key, _on_cluster(_OP.CLUSTER_ACTION)) for key in range(83, 88)),  # share state
    _row(
        88,  # StreamsGroupHeartbeat
        _group(_OP.READ),
        _topic(_OP.DESCRIBE, "topology.subtopologies", Scope.REQUEST),
        AnyOf(
            (
                _need(_OP.CREATE, _CLUSTER, "", _OPTION, when=When.CREATING),
                _need(_OP.CREATE, _TOPIC, "", _OPTION, when=When.CREATING),
            )
        ),
    ),
    _row(
        89,  # StreamsGroupDescribe
        _group(_OP.DESCRIBE, "group_ids", _EACH),
        _need(_OP.DESCRIBE, _TOPIC, "", _EACH),
    ),
    _row(  # DescribeShareGroupOffsets
        90, _group(_OP.DESCRIBE, "groups.group_id", _EACH), _topic(_OP.DESCRIBE, "groups.topics")
    ),
    _row(91, _group(_OP.READ), _topic(_OP.READ, "topics.topic_name")),  # AlterShareGroupOffsets
    _row(92, _group(_OP.DELETE), _topic(_OP.READ, "topics.topic_name")),  # DeleteShareGroupOffsets
    _row(93, _group(_OP.READ)),  # StreamsGroupTopologyDescriptionUpdate
)

_TRANSACTION_ROWS = (
    _row(
        apis.INIT_PRODUCER_ID,
        _of_transaction(when=When.TRANSACTIONAL),
        _need(_OP.TWO_PHASE_COMMIT, _TXN, "transactional_id", when=When.TWO_PHASE),
        AnyOf(
            (
                _need(
                    _OP.WRITE,
                    _TOPIC,
                    when=When.NOT_TRANSACTIONAL,
                    is_somewhere=True,
                    code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                ),
                _on_cluster(_OP.IDEMPOTENT_WRITE, when=When.NOT_TRANSACTIONAL),
            )
        ),
    ),
    _row(
        apis.ADD_PARTITIONS_TO_TXN,
        _of_transaction("v3_and_below_transactional_id", when=When.OF_CLIENTS),
        _need(_OP.WRITE, _TOPIC, "v3_and_below_topics.name", _EACH, when=When.OF_CLIENTS),
        _on_cluster(_OP.CLUSTER_ACTION, when=When.OF_BROKERS),
    ),
    _row(apis.ADD_OFFSETS_TO_TXN, _of_transaction(), _group(_OP.READ)),
    _row(apis.END_TXN, _of_transaction()),
    _row(
        apis.WRITE_TXN_MARKERS,
        AnyOf((_on_cluster(_OP.ALTER), _on_cluster(_OP.CLUSTER_ACTION))),
    ),
    _row(apis.TXN_OFFSET_COMMIT, _of_transaction(), _group(_OP.READ), _topic(_OP.READ)),
    _row(
        apis.DESCRIBE_TRANSACTIONS,
        _need(_OP.DESCRIBE, _TXN, "transactional_ids", _EACH),
        _need(_OP.DESCRIBE, _TOPIC, "", _HIDDEN),
    ),
    _row(apis.LIST_TRANSACTIONS, _need(_OP.DESCRIBE, _TXN, "", _HIDDEN)),
)

_ADMIN_ROWS = (
    _row(
        apis.CREATE_TOPICS,
        AnyOf((_on_cluster(_OP.CREATE), _topic(_OP.CREATE))),
        _need(_OP.DESCRIBE_CONFIGS, _TOPIC, "topics.name", _OPTION),
    ),
    _row(
        apis.DELETE_TOPICS,
        AnyOf((_on_cluster(_OP.DELETE), _topic(_OP.DELETE))),
        _need(_OP.DESCRIBE, _TOPIC, "topics.topic_id", _OPTION, when=When.TOPIC_IDS),
    ),
    _row(37, _topic(_OP.ALTER)),  # CreatePartitions
    _row(29, _on_cluster(_OP.DESCRIBE)),  # DescribeAcls
    _row(30, _on_cluster(_OP.ALTER)),  # CreateAcls
    _row(31, _on_cluster(_OP.ALTER)),  # DeleteAcls
    _row(apis.DESCRIBE_CONFIGS, *_configs(_OP.DESCRIBE_CONFIGS)),
    _row(33, *_configs(_OP.ALTER_CONFIGS)),  # AlterConfigs
    _row(apis.INCREMENTAL_ALTER_CONFIGS, *_configs(_OP.ALTER_CONFIGS)),
    _row(apis.LIST_CONFIG_RESOURCES, _on_cluster(_OP.DESCRIBE_CONFIGS)),
    _row(apis.DESCRIBE_CLIENT_QUOTAS, _on_cluster(_OP.DESCRIBE_CONFIGS)),
    _row(49, _on_cluster(_OP.ALTER_CONFIGS)),  # AlterClientQuotas
    _row(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, _on_cluster(_OP.DESCRIBE)),
    _row(apis.ALTER_USER_SCRAM_CREDENTIALS, _on_cluster(_OP.ALTER)),
    _row(  # CreateDelegationToken
        38, _need(_OP.CREATE_TOKENS, _USER, "owner_principal_name", when=When.OTHER_OWNER)
    ),
    _open(39, "only a token's owner and renewers renew it"),  # RenewDelegationToken
    _open(40, "only a token's owner and renewers expire it"),  # ExpireDelegationToken
    _row(  # DescribeDelegationToken
        41,
        AnyOf(
            (
                _need(_OP.DESCRIBE_TOKENS, _USER, "", _HIDDEN, when=When.OTHER_TOKENS),
                _need(_OP.DESCRIBE, _TOKEN, "", _HIDDEN, when=When.OTHER_TOKENS),
            )
        ),
    ),
    _row(43, _on_cluster(_OP.ALTER)),  # ElectLeaders
    _row(45, _on_cluster(_OP.ALTER)),  # AlterPartitionReassignments
    _row(46, _on_cluster(_OP.DESCRIBE)),  # ListPartitionReassignments
    _row(apis.DESCRIBE_QUORUM, _on_cluster(_OP.DESCRIBE)),
    _row(57, _on_cluster(_OP.ALTER)),  # UpdateFeatures
    _row(apis.DESCRIBE_CLUSTER, _on_cluster(_OP.ALTER, when=When.ON_CONTROLLERS)),
    _row(apis.UNREGISTER_BROKER, _on_cluster(_OP.ALTER)),
    _row(80, _on_cluster(_OP.ALTER)),  # AddRaftVoter
    _row(81, _on_cluster(_OP.ALTER)),  # RemoveRaftVoter
)

_NODE_ROWS = tuple(
    _row(key, _on_cluster(_OP.CLUSTER_ACTION))
    for key in (52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82)
)
"""What only nodes of the cluster send: Vote to UpdateRaftVoter."""

_OPEN_ROWS = (
    _open(apis.SASL_HANDSHAKE, _BEFORE),
    _open(apis.API_VERSIONS, _BEFORE),
    _open(apis.SASL_AUTHENTICATE, _BEFORE),
    _open(apis.GET_TELEMETRY_SUBSCRIPTIONS, _TELEMETRY),
    _open(apis.PUSH_TELEMETRY, _TELEMETRY),
)

_OWN_ROWS = (
    _row(apis.DESCRIBE_NODE, _on_cluster(_OP.DESCRIBE)),
    _row(apis.DRAIN_BROKER, _on_cluster(_OP.ALTER)),
    _row(apis.DESCRIBE_CLIENT_INSTANCES, _on_cluster(_OP.DESCRIBE)),
    _row(apis.TAIL_CLIENT_METRICS, _on_cluster(_OP.DESCRIBE)),
    _row(apis.DESCRIBE_CLEANER, _on_cluster(_OP.DESCRIBE)),
    _row(apis.CLEAN_LOGS, _on_cluster(_OP.ALTER)),
    _row(apis.DESCRIBE_QUOTA_USAGE, _on_cluster(_OP.DESCRIBE_CONFIGS)),
)

_ROWS = (
    *_DATA_ROWS,
    *_GROUP_ROWS,
    *_TRANSACTION_ROWS,
    *_ADMIN_ROWS,
    *_NODE_ROWS,
    *_OPEN_ROWS,
    *_OWN_ROWS,
)

PERMISSIONS = {row.key: row for row in sorted(_ROWS, key=lambda row: row.key)}
"""The rows by API key."""

assert len(PERMISSIONS) == len(_ROWS)

RPC_PERMISSIONS: dict[str, Need] = dict.fromkeys(
    (
        *(
            f"/ottla.controller.Controller/{name}"
            for name in (
                "Register",
                "Heartbeat",
                "Attend",
                "AlterPartition",
                "AllocateProducerIds",
                "AssignReplicasToDirs",
                "Unregister",
                "Forward",
            )
        ),
        *(
            f"/ottla.quorum.Quorum/{name}"
            for name in ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "FetchSnapshot")
        ),
    ),
    _on_cluster(_OP.CLUSTER_ACTION),
)
"""What the caller of a gRPC method must be allowed, by the method's path: all are of nodes."""
