"""Exceptions, grouped by the cause of the error.

There are exactly five families: a peer's bytes violate the protocol (`ProtocolError`), a request is
refused with one of Kafka's codes (`RefusedError`), data on disk is corrupt (`CorruptDataError`), a
setting is invalid (`ConfigError`), or there is a bug in Ottla (`AssertionError`). Each
code is one row of `ERRORS`, with its meaning and whether a client may retry.
"""

from enum import IntEnum
from typing import NamedTuple


class ErrorCode(IntEnum):
    """Kafka's error codes, under Kafka's names (int16 on the wire)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    CONTROLLER_ID_NOT_REGISTERED = 136


class Row(NamedTuple):
    """Description of one error code: its number, its name, its meaning, and whether the same
    request may be retried."""

    code: int
    name: str
    is_retriable: bool
    meaning: str


ROWS = (
    Row(
        -1,
        "UNKNOWN_SERVER_ERROR",
        False,
        "The server met a fault it has no code for; its log says more.",
    ),
    Row(0, "NONE", False, "All is well."),
    Row(1, "OFFSET_OUT_OF_RANGE", False, "The offset lies outside the range this replica holds."),
    Row(2, "CORRUPT_MESSAGE", True, "A batch fails its checksum or its size."),
    Row(3, "UNKNOWN_TOPIC_OR_PARTITION", True, "This broker knows no such topic or partition."),
    Row(4, "INVALID_FETCH_SIZE", False, "The asked fetch size is invalid."),
    Row(5, "LEADER_NOT_AVAILABLE", True, "The partition has no leader at the moment."),
    Row(
        6,
        "NOT_LEADER_OR_FOLLOWER",
        True,
        "This broker is not the leader of the partition, or not a replica of it.",
    ),
    Row(7, "REQUEST_TIMED_OUT", True, "The request was not finished in its time."),
    Row(8, "BROKER_NOT_AVAILABLE", False, "The broker is not available."),
    Row(9, "REPLICA_NOT_AVAILABLE", True, "The replica is not available on this broker."),
    Row(10, "MESSAGE_TOO_LARGE", False, "The batch is larger than max.message.bytes allows."),
    Row(11, "STALE_CONTROLLER_EPOCH", False, "The controller moved to a newer epoch."),
    Row(
        12,
        "OFFSET_METADATA_TOO_LARGE",
        False,
        "The metadata string of the committed offset is too long.",
    ),
    Row(13, "NETWORK_EXCEPTION", True, "The connection was lost before an answer came."),
    Row(14, "COORDINATOR_LOAD_IN_PROGRESS", True, "The coordinator is still loading its state."),
    Row(15, "COORDINATOR_NOT_AVAILABLE", True, "No coordinator is available."),
    Row(
        16,
        "NOT_COORDINATOR",
        True,
        "This broker is not the coordinator of that group or transaction.",
    ),
    Row(17, "INVALID_TOPIC_EXCEPTION", False, "The topic's name is not allowed."),
    Row(18, "RECORD_LIST_TOO_LARGE", False, "The batch is larger than a segment may be."),
    Row(
        19,
        "NOT_ENOUGH_REPLICAS",
        True,
        "Fewer replicas are in sync than min.insync.replicas demands.",
    ),
    Row(
        20,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        True,
        "The batch was written, but too few replicas are in sync.",
    ),
    Row(21, "INVALID_REQUIRED_ACKS", False, "acks must be -1, 0 or 1."),
    Row(22, "ILLEGAL_GENERATION", False, "The group has moved to another generation."),
    Row(
        23,
        "INCONSISTENT_GROUP_PROTOCOL",
        False,
        "The member's protocols do not fit those of the group.",
    ),
    Row(24, "INVALID_GROUP_ID", False, "The group id is not allowed."),
    Row(25, "UNKNOWN_MEMBER_ID", False, "The coordinator does not know this member."),
    Row(
        26,
        "INVALID_SESSION_TIMEOUT",
        False,
        "The session timeout is outside the broker's bounds.",
    ),
    Row(27, "REBALANCE_IN_PROGRESS", False, "The group is rebalancing; join again."),
    Row(28, "INVALID_COMMIT_OFFSET_SIZE", False, "The commit is too large."),
    Row(29, "TOPIC_AUTHORIZATION_FAILED", False, "The principal may not do this on the topic."),
    Row(30, "GROUP_AUTHORIZATION_FAILED", False, "The principal may not do this on the group."),
    Row(31, "CLUSTER_AUTHORIZATION_FAILED", False, "The principal may not do this on the cluster."),
    Row(32, "INVALID_TIMESTAMP", False, "A record's timestamp is outside the topic's bounds."),
    Row(33, "UNSUPPORTED_SASL_MECHANISM", False, "The broker does not offer this SASL mechanism."),
    Row(34, "ILLEGAL_SASL_STATE", False, "The request does not fit the state of authentication."),
    Row(35, "UNSUPPORTED_VERSION", False, "The broker does not speak this version of the request."),
    Row(36, "TOPIC_ALREADY_EXISTS", False, "A topic of this name exists."),
    Row(37, "INVALID_PARTITIONS", False, "The number of partitions is not allowed."),
    Row(
        38,
        "INVALID_REPLICATION_FACTOR",
        False,
        "The replication factor is below 1 or above the number of brokers.",
    ),
    Row(39, "INVALID_REPLICA_ASSIGNMENT", False, "The assignment of replicas is not allowed."),
    Row(40, "INVALID_CONFIG", False, "A setting's name or value is not allowed."),
    Row(41, "NOT_CONTROLLER", True, "This node is not the active controller."),
    Row(42, "INVALID_REQUEST", False, "The request contradicts itself or the protocol."),
    Row(
        43,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        False,
        "The stored message format does not support this.",
    ),
    Row(44, "POLICY_VIOLATION", False, "A policy of this cluster forbids it."),
    Row(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False, "A producer's sequence number leaves a gap."),
    Row(
        46,
        "DUPLICATE_SEQUENCE_NUMBER",
        False,
        "A producer's sequence number was seen before and its batch is no longer known.",
    ),
    Row(47, "INVALID_PRODUCER_EPOCH", False, "The producer's epoch is older than the one known."),
    Row(48, "INVALID_TXN_STATE", False, "The transaction is in a state that does not allow this."),
    Row(
        49,
        "INVALID_PRODUCER_ID_MAPPING",
        False,
        "The producer id does not belong to this transactional id.",
    ),
    Row(
        50,
        "INVALID_TRANSACTION_TIMEOUT",
        False,
        "The transaction timeout is above the broker's maximum.",
    ),
    Row(
        51,
        "CONCURRENT_TRANSACTIONS",
        True,
        "Another operation on the same transaction is under way.",
    ),
    Row(
        52,
        "TRANSACTION_COORDINATOR_FENCED",
        False,
        "The transaction coordinator was replaced by a newer one.",
    ),
    Row(
        53,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        False,
        "The principal may not use this transactional id.",
    ),
    Row(54, "SECURITY_DISABLED", False, "No authorizer is configured."),
    Row(
        55,
        "OPERATION_NOT_ATTEMPTED",
        False,
        "An earlier error kept the operation from being tried.",
    ),
    Row(56, "KAFKA_STORAGE_ERROR", True, "The disk or its log directory failed."),
    Row(57, "LOG_DIR_NOT_FOUND", False, "The log directory is not one of this broker's."),
    Row(58, "SASL_AUTHENTICATION_FAILED", False, "Authentication failed."),
    Row(59, "UNKNOWN_PRODUCER_ID", False, "The broker holds no state of this producer."),
    Row(60, "REASSIGNMENT_IN_PROGRESS", False, "The partition is being reassigned."),
    Row(61, "DELEGATION_TOKEN_AUTH_DISABLED", False, "Delegation tokens are not enabled."),
    Row(62, "DELEGATION_TOKEN_NOT_FOUND", False, "There is no such delegation token."),
    Row(
        63,
        "DELEGATION_TOKEN_OWNER_MISMATCH",
        False,
        "The delegation token belongs to another user.",
    ),
    Row(
        64,
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        False,
        "Delegation token requests are not allowed on this channel.",
    ),
    Row(
        65,
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        False,
        "The principal may not use this delegation token.",
    ),
    Row(66, "DELEGATION_TOKEN_EXPIRED", False, "The delegation token has expired."),
    Row(67, "INVALID_PRINCIPAL_TYPE", False, "The principal's type is not supported."),
    Row(68, "NON_EMPTY_GROUP", False, "The group still has members."),
    Row(69, "GROUP_ID_NOT_FOUND", False, "There is no such group."),
    Row(70, "FETCH_SESSION_ID_NOT_FOUND", True, "The broker holds no such fetch session."),
    Row(
        71,
        "INVALID_FETCH_SESSION_EPOCH",
        True,
        "The fetch session's epoch is not the expected one.",
    ),
    Row(
        72,
        "LISTENER_NOT_FOUND",
        True,
        "The leader has no listener of the name the request came in by.",
    ),
    Row(73, "TOPIC_DELETION_DISABLED", False, "Deletion of topics is switched off."),
    Row(74, "FENCED_LEADER_EPOCH", True, "The request's leader epoch is older than the broker's."),
    Row(75, "UNKNOWN_LEADER_EPOCH", True, "The request's leader epoch is newer than the broker's."),
    Row(
        76,
        "UNSUPPORTED_COMPRESSION_TYPE",
        False,
        "The compression type is not supported in this request version.",
    ),
    Row(77, "STALE_BROKER_EPOCH", False, "The broker's registration was replaced by a newer one."),
    Row(78, "OFFSET_NOT_AVAILABLE", True, "The new leader's high watermark has not caught up yet."),
    Row(79, "MEMBER_ID_REQUIRED", False, "Join again with the member id this answer gives."),
    Row(80, "PREFERRED_LEADER_NOT_AVAILABLE", True, "The preferred leader is not available."),
    Row(81, "GROUP_MAX_SIZE_REACHED", False, "The group is full."),
    Row(82, "FENCED_INSTANCE_ID", False, "Another member took over this static instance id."),
    Row(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", True, "No eligible leader is available."),
    Row(84, "ELECTION_NOT_NEEDED", True, "The partition already has the leader asked for."),
    Row(85, "NO_REASSIGNMENT_IN_PROGRESS", False, "No reassignment of the partition is under way."),
    Row(
        86,
        "GROUP_SUBSCRIBED_TO_TOPIC",
        False,
        "The group subscribes to the topic, so its offset stays.",
    ),
    Row(87, "INVALID_RECORD", False, "A record breaks a rule of the broker."),
    Row(
        88,
        "UNSTABLE_OFFSET_COMMIT",
        True,
        "An open transaction holds offsets that are not yet stable.",
    ),
    Row(89, "THROTTLING_QUOTA_EXCEEDED", True, "The quota is used up; wait for the throttle time."),
    Row(90, "PRODUCER_FENCED", False, "A newer producer took over this transactional id."),
    Row(91, "RESOURCE_NOT_FOUND", False, "There is no such resource."),
    Row(92, "DUPLICATE_RESOURCE", False, "The request names a resource twice."),
    Row(93, "UNACCEPTABLE_CREDENTIAL", False, "The credential does not meet the rules."),
    Row(94, "INCONSISTENT_VOTER_SET", False, "The sets of voters of the two sides differ."),
    Row(
        95,
        "INVALID_UPDATE_VERSION",
        False,
        "The state has a newer version than the update was made for.",
    ),
    Row(96, "FEATURE_UPDATE_FAILED", False, "The finalised features could not be changed."),
    Row(
        97,
        "PRINCIPAL_DESERIALIZATION_FAILURE",
        False,
        "The forwarded principal could not be read.",
    ),
    Row(98, "SNAPSHOT_NOT_FOUND", False, "There is no such snapshot."),
    Row(99, "POSITION_OUT_OF_RANGE", False, "The position lies outside the snapshot."),
    Row(100, "UNKNOWN_TOPIC_ID", True, "This broker knows no topic of this id."),
    Row(
        101,
        "DUPLICATE_BROKER_REGISTRATION",
        False,
        "Another live broker is registered under this id.",
    ),
    Row(102, "BROKER_ID_NOT_REGISTERED", False, "No broker of this id is registered."),
    Row(
        103,
        "INCONSISTENT_TOPIC_ID",
        True,
        "The topic's id in the log differs from the request's.",
    ),
    Row(104, "INCONSISTENT_CLUSTER_ID", False, "The two sides belong to different clusters."),
    Row(105, "TRANSACTIONAL_ID_NOT_FOUND", False, "There is no such transactional id."),
    Row(
        106,
        "FETCH_SESSION_TOPIC_ID_ERROR",
        True,
        "The fetch session mixes topic names and topic ids.",
    ),
    Row(107, "INELIGIBLE_REPLICA", False, "A replica may not join the in-sync replicas now."),
    Row(
        108,
        "NEW_LEADER_ELECTED",
        False,
        "The change elected another leader, so it was accepted but ends this leadership.",
    ),
    Row(109, "OFFSET_MOVED_TO_TIERED_STORAGE", False, "The offset lies in tiered storage."),
    Row(110, "FENCED_MEMBER_EPOCH", False, "The member's epoch was fenced; join again."),
    Row(
        111,
        "UNRELEASED_INSTANCE_ID",
        False,
        "The static instance id is still held by another member.",
    ),
    Row(112, "UNSUPPORTED_ASSIGNOR", False, "The assignor is not supported."),
    Row(
        113,
        "STALE_MEMBER_EPOCH",
        False,
        "The member's epoch is stale; retry after the next heartbeat.",
    ),
    Row(
        114,
        "MISMATCHED_ENDPOINT_TYPE",
        False,
        "The request was sent to the wrong kind of endpoint.",
    ),
    Row(115, "UNSUPPORTED_ENDPOINT_TYPE", False, "This kind of endpoint is not supported."),
    Row(116, "UNKNOWN_CONTROLLER_ID", False, "There is no controller of this id."),
    Row(
        117,
        "UNKNOWN_SUBSCRIPTION_ID",
        False,
        "The telemetry subscription has changed; get it again.",
    ),
    Row(118, "TELEMETRY_TOO_LARGE", False, "The pushed metrics are too large."),
    Row(
        119,
        "INVALID_REGISTRATION",
        False,
        "The controller refused the broker's registration as invalid.",
    ),
    Row(
        120,
        "TRANSACTION_ABORTABLE",
        False,
        "The transaction must be aborted; then the producer may go on.",
    ),
    Row(
        121,
        "INVALID_RECORD_STATE",
        False,
        "The acquired record is not in a state that allows this.",
    ),
    Row(122, "SHARE_SESSION_NOT_FOUND", True, "There is no such share session."),
    Row(
        123,
        "INVALID_SHARE_SESSION_EPOCH",
        True,
        "The share session's epoch is not the expected one.",
    ),
    Row(124, "FENCED_STATE_EPOCH", False, "The share state's epoch is older than the one known."),
    Row(125, "INVALID_VOTER_KEY", False, "The request was meant for another voter of this id."),
    Row(126, "DUPLICATE_VOTER", False, "The voter is already in the set of voters."),
    Row(127, "VOTER_NOT_FOUND", False, "There is no such voter."),
    Row(128, "INVALID_REGULAR_EXPRESSION", False, "The regular expression is not valid."),
    Row(
        129,
        "REBOOTSTRAP_REQUIRED",
        False,
        "The client's view is of another cluster; it must bootstrap again.",
    ),
    Row(130, "STREAMS_INVALID_TOPOLOGY", False, "The topology is not valid."),
    Row(131, "STREAMS_INVALID_TOPOLOGY_EPOCH", False, "The topology's epoch is not valid."),
    Row(132, "STREAMS_TOPOLOGY_FENCED", False, "The topology's epoch is outdated."),
    Row(
        133,
        "SHARE_SESSION_LIMIT_REACHED",
        True,
        "The broker holds as many share sessions as it may.",
    ),
    Row(136, "CONTROLLER_ID_NOT_REGISTERED", False, "No controller is registered with this id."),
)

ERRORS: dict[int, Row] = {row.code: row for row in ROWS}


def row_of(code: int) -> Row:
    """Return the description of an error code. For an unknown code, returns the description of
    UNKNOWN_SERVER_ERROR."""
    return ERRORS.get(code, ERRORS[ErrorCode.UNKNOWN_SERVER_ERROR])


def code_of(number: int) -> ErrorCode:
    """Return the error code with the number in a response. Returns UNKNOWN_SERVER_ERROR for an
    unknown number."""
    return ErrorCode(row_of(number).code)


class OttlaError(Exception):
    """Base class of Ottla's exceptions. Ottla raises only its subclasses."""


class ProtocolError(OttlaError):
    """Error for bytes of a peer that violate the protocol.

    The usual cause is a client, a proxy or a port scanner that speaks another protocol. The
    connection is closed, and no other connection is affected. `where` names the field or the rule
    that is violated.
    """

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


REFUSAL_CHARS_MAX = 500
"""Maximum length of a refusal's message, in characters. A smaller limit would cut off Ottla's own
longest messages. With a larger limit, an escaped message may not fit into the headers of a gRPC
response, or next to a long name in a Kafka response."""


def shortened(text: str, chars_max: int = REFUSAL_CHARS_MAX) -> str:
    """Return `text`, with its middle left out if it is longer than `chars_max` characters."""
    if len(text) <= chars_max:
        return text
    cut = f" [{len(text)} characters] "
    tail_chars = chars_max // 3
    return text[: chars_max - len(cut) - tail_chars] + cut + text[-tail_chars:]


class RefusedError(OttlaError):
    """Refusal of a well-formed request, with one of Kafka's error codes.

    `code` is a row of `ERRORS`. `message` is one sentence for the person who sent the request. Its
    default is the meaning of the code. The length of the message is limited, because it may quote
    an untrusted request.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        """Kafka's error code of the refusal."""
        self.message = ERRORS[code].meaning if message is None else shortened(message)
        """Reason for the refusal, as one sentence."""
        super().__init__(f"{code.name}: {self.message}")

    @property
    def is_retriable(self) -> bool:
        """True if the same request may succeed later."""
        return ERRORS[self.code].is_retriable


class CorruptDataError(OttlaError):
    """Error for corrupt data that Ottla has written. The log that contains the data goes offline;
    all other logs stay online."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


class NewerReleaseError(OttlaError):
    """A newer release of Ottla wrote data that this release cannot interpret. The node stops with
    this error. The data is intact."""


class ConfigError(OttlaError):
    """A setting has an invalid value.

    A client raises this error when a program opens or configures the client. A node or a command
    prints the message and exits.
    """

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        """Kafka's key of the setting, or the command-line option."""
        self.problem = problem
        """Description of the wrong value and of the allowed values. Together with the name of the
        setting, it forms a sentence."""


assert len(ERRORS) == len(ROWS) == len(ErrorCode)
assert all(ErrorCode(row.code).name == row.name for row in ROWS)


def only_error(error: BaseException) -> BaseException:
    """Return the only exception in nested exception groups, or the outermost group if it contains
    several exceptions."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
