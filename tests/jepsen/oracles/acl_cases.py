"""Requests of every API that needs permissions, and the error code of each refusal: data, not
tests.

One case is one request; `needs` are the operations that it requires, each a set of alternatives.
The same requests are sent to ottla's broker and, in the long form, to a Kafka.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import trio

from ottla.client.network.connection import BrokerConnection, open_stream
from ottla.model.errors import ErrorCode
from ottla.model.ids import ProducerId
from ottla.model.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.sasl import SaslLogin
from ottla.wire import schema
from ottla.wire.api import AUTHORIZATION_CODES
from ottla.wire.apis import API, CREATE_ACLS, request_class, response_class
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec_types import Message, Struct
from ottla.wire.schema import StructSchema

TOPIC, GROUP, TXN = "acl-topic", "acl-group", "acl-transaction"
NAMES = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.TRANSACTIONAL_ID: TXN,
    ResourceType.CLUSTER: CLUSTER_NAME,
}
STATES = ("no ACL", "deny", "allow", "prefixed", "super user")
REFUSED_IN = frozenset(("no ACL", "deny"))

ANSWER_TIMEOUT_S = 60

OP, R = AclOperation, ResourceType
Need = tuple[AclOperation, ResourceType]

CLUSTER_ACTION: Need = (OP.CLUSTER_ACTION, R.CLUSTER)
CLUSTER_ALTER: Need = (OP.ALTER, R.CLUSTER)
CLUSTER_DESCRIBE: Need = (OP.DESCRIBE, R.CLUSTER)
CLUSTER_CONFIGS: Need = (OP.DESCRIBE_CONFIGS, R.CLUSTER)
CLUSTER_ALTER_CONFIGS: Need = (OP.ALTER_CONFIGS, R.CLUSTER)
GROUP_READ: Need = (OP.READ, R.GROUP)
GROUP_DESCRIBE: Need = (OP.DESCRIBE, R.GROUP)
GROUP_DELETE: Need = (OP.DELETE, R.GROUP)
TOPIC_READ: Need = (OP.READ, R.TOPIC)
TOPIC_WRITE: Need = (OP.WRITE, R.TOPIC)
TOPIC_DESCRIBE: Need = (OP.DESCRIBE, R.TOPIC)
TOPIC_DELETE: Need = (OP.DELETE, R.TOPIC)
TOPIC_ALTER: Need = (OP.ALTER, R.TOPIC)
TXN_WRITE: Need = (OP.WRITE, R.TRANSACTIONAL_ID)
TXN_DESCRIBE: Need = (OP.DESCRIBE, R.TRANSACTIONAL_ID)


class AclCase(NamedTuple):
    """One request."""

    key: int
    version: int
    fields: dict[str, Any]
    needs: tuple[tuple[Need, ...], ...]
    code: ErrorCode | None = None
    """Error code of a refusal, if it is not the resource's code."""
    code_if_denied: ErrorCode | None = None
    """Error code if one ACL denies and another allows, if that is not `code`:
    an entry that allows Delete shows the topic, also where another denies it."""

    @property
    def title(self) -> str:
        """Name of the case in test output."""
        return f"{API[self.key].name} {self.version}"


class Ask(NamedTuple):
    """One case with one need in one state, asked by a user of its own."""

    user: str
    case: AclCase
    need: Need
    state: str
    entries: tuple[AclEntry, ...]

    @property
    def title(self) -> str:
        """Name of the ask in test output."""
        operation, resource = self.need
        return f"{self.case.title}, {resource.name} {operation.name}: {self.state}"

    @property
    def code(self) -> ErrorCode:
        """The code of the need where it is not allowed."""
        return self.case.code or AUTHORIZATION_CODES[self.need[1]]

    @property
    def is_super(self) -> bool:
        """True if the user is a super user."""
        return self.state == "super user"

    @property
    def expected(self) -> ErrorCode:
        """Expected error code of the authorizer, NONE if the request is allowed."""
        if self.state == "deny" and self.case.code_if_denied is not None:
            return self.case.code_if_denied
        return self.code if self.state in REFUSED_IN else ErrorCode.NONE


def _one_partition(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": TOPIC, "partitions": [{"partition_index": 0, **fields}]}]


BATCH = build_batch([(1_700_000_000_000, None, b"value")])
TRANSACTIONAL_BATCH = build_batch(
    [(1_700_000_000_000, None, b"value")],
    producer_id=ProducerId(4_000),
    producer_epoch=0,
    base_sequence=0,
    is_transactional=True,
)
IN_TRANSACTION = [{"name": TOPIC, "partition_data": [{"index": 0, "records": TRANSACTIONAL_BATCH}]}]
PRODUCED = [{"name": TOPIC, "partition_data": [{"index": 0, "records": BATCH}]}]
PRODUCED_BY_ID = [{"topic_id": TOPIC, "partition_data": [{"index": 0, "records": BATCH}]}]
FETCHED = [{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0}]}]
SHARED = [{"topic_id": TOPIC, "partitions": [{"partition_index": 0}]}]
FETCHED_BY_ID = [{"topic_id": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0}]}]
COMMITTED = _one_partition(committed_offset=0, committed_metadata="")
COMMITTED_BY_ID = [{**COMMITTED[0], "name": "", "topic_id": TOPIC}]
OFFSETS = [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]
OFFSETS_BY_ID = [{"group_id": GROUP, "topics": [{"topic_id": TOPIC, "partition_indexes": [0]}]}]
CONFIG = {"name": "retention.ms", "value": "1000000"}
BROKER_CONFIG = {"name": "log.cleaner.threads", "value": "1"}
GROUP_CONFIG = {"name": "consumer.session.timeout.ms", "value": "50000"}
USER_QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "u"}],
    "ops": [{"key": "producer_byte_rate", "value": 1e6}],
}
PRODUCER = {"producer_id": 4_000, "producer_epoch": 0}
CREATED = [{"name": f"{TOPIC}-new", "num_partitions": 1, "replication_factor": 1}]
CREATION = {
    "resource_type": 2,
    "resource_name": "no-such",
    "principal": "User:none",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FILTER: dict[str, Any] = {
    "resource_name_filter": "no-such",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def _configs(kind: int, name: str, *changes: dict[str, Any]) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": list(changes)}]}


def _described(kind: int, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name}]}


def _share_state(**fields: int) -> dict[str, Any]:
    return {
        "group_id": GROUP,
        "topics": [{"topic_id": TOPIC, "partitions": [{"partition": 0, **fields}]}],
    }


BROKER_CASES = (
    AclCase(0, 9, {"acks": 1, "timeout_ms": 1_000, "topic_data": PRODUCED}, ((TOPIC_WRITE,),)),
    AclCase(
        0, 13, {"acks": 1, "timeout_ms": 1_000, "topic_data": PRODUCED_BY_ID}, ((TOPIC_WRITE,),)
    ),
    AclCase(
        0,
        9,
        {"transactional_id": TXN, "acks": -1, "timeout_ms": 1_000, "topic_data": IN_TRANSACTION},
        ((TXN_WRITE,), (TOPIC_WRITE,)),
    ),
    AclCase(1, 11, {"topics": FETCHED, "max_bytes": 1_000}, ((TOPIC_READ,),)),
    AclCase(1, 17, {"topics": FETCHED_BY_ID, "max_bytes": 1_000}, ((TOPIC_READ,),)),
    AclCase(
        1,
        11,
        {"topics": FETCHED, "max_bytes": 1_000, "replica_id": 77},
        ((CLUSTER_ACTION,),),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    AclCase(2, 7, {"replica_id": -1, "topics": _one_partition(timestamp=-1)}, ((TOPIC_DESCRIBE,),)),
    AclCase(
        3,
        9,
        {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False},
        ((TOPIC_DESCRIBE,),),
    ),
    AclCase(3, 12, {"topics": [{"topic_id": TOPIC, "name": None}]}, ((TOPIC_DESCRIBE,),)),
    AclCase(8, 8, {"group_id": GROUP, "topics": COMMITTED}, ((GROUP_READ,), (TOPIC_READ,))),
    AclCase(8, 10, {"group_id": GROUP, "topics": COMMITTED_BY_ID}, ((GROUP_READ,), (TOPIC_READ,))),
    AclCase(
        9,
        7,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        ((GROUP_DESCRIBE,), (TOPIC_DESCRIBE,)),
    ),
    AclCase(
        9,
        1,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        ((GROUP_DESCRIBE,), (TOPIC_DESCRIBE,)),
    ),
    AclCase(9, 8, {"groups": OFFSETS}, ((GROUP_DESCRIBE,), (TOPIC_DESCRIBE,))),
    AclCase(9, 10, {"groups": OFFSETS_BY_ID}, ((GROUP_DESCRIBE,), (TOPIC_DESCRIBE,))),
    AclCase(10, 2, {"key": GROUP, "key_type": 0}, ((GROUP_DESCRIBE,),)),
    AclCase(10, 2, {"key": TXN, "key_type": 1}, ((TXN_DESCRIBE,),)),
    AclCase(10, 4, {"coordinator_keys": [GROUP], "key_type": 0}, ((GROUP_DESCRIBE,),)),
    AclCase(10, 4, {"coordinator_keys": [TXN], "key_type": 1}, ((TXN_DESCRIBE,),)),
    AclCase(
        10,
        6,
        {"coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAQ:0"], "key_type": 2},
        ((CLUSTER_ACTION,),),
    ),
    AclCase(
        11,
        5,
        {
            "group_id": GROUP,
            "session_timeout_ms": 6_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range"}],
        },
        ((GROUP_READ,),),
    ),
    AclCase(12, 4, {"group_id": GROUP, "member_id": "none"}, ((GROUP_READ,),)),
    AclCase(13, 4, {"group_id": GROUP, "members": [{"member_id": "none"}]}, ((GROUP_READ,),)),
    AclCase(14, 4, {"group_id": GROUP, "member_id": "none"}, ((GROUP_READ,),)),
    AclCase(15, 5, {"groups": [GROUP]}, ((GROUP_DESCRIBE,),)),
    AclCase(
        21,
        2,
        {"topics": _one_partition(offset=0), "timeout_ms": 1_000},
        ((TOPIC_DELETE,),),
    ),
    AclCase(
        22,
        4,
        {"transactional_id": TXN, "transaction_timeout_ms": 10_000},
        ((TXN_WRITE,),),
    ),
    AclCase(
        22,
        4,
        {"transactional_id": None, "transaction_timeout_ms": 10_000},
        (((OP.IDEMPOTENT_WRITE, R.CLUSTER), TOPIC_WRITE),),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
    AclCase(
        23,
        4,
        {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        ((TOPIC_DESCRIBE, CLUSTER_ACTION),),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    AclCase(
        24,
        3,
        {
            "v3_and_below_transactional_id": TXN,
            "v3_and_below_producer_id": 4_000,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        ((TXN_WRITE,), (TOPIC_WRITE,)),
    ),
    AclCase(
        24,
        4,
        {
            "transactions": [
                {
                    "transactional_id": TXN,
                    "verify_only": True,
                    "topics": [{"name": TOPIC, "partitions": [0]}],
                    **PRODUCER,
                }
            ]
        },
        ((CLUSTER_ACTION,),),
    ),
    AclCase(
        25,
        3,
        {"transactional_id": TXN, "group_id": GROUP, **PRODUCER},
        ((TXN_WRITE,), (GROUP_READ,)),
    ),
    AclCase(26, 3, {"transactional_id": TXN, "committed": False, **PRODUCER}, ((TXN_WRITE,),)),
    AclCase(
        27,
        1,
        {
            "markers": [
                {"topics": [{"name": f"{TOPIC}-none", "partition_indexes": [0]}], **PRODUCER}
            ]
        },
        ((CLUSTER_ALTER, CLUSTER_ACTION),),
    ),
    AclCase(
        28,
        3,
        {"transactional_id": TXN, "group_id": GROUP, "topics": COMMITTED, **PRODUCER},
        ((TXN_WRITE,), (GROUP_READ,), (TOPIC_READ,)),
    ),
    AclCase(83, 0, _share_state(state_epoch=0, start_offset=0), ((CLUSTER_ACTION,),)),
    AclCase(84, 0, _share_state(leader_epoch=0), ((CLUSTER_ACTION,),)),
    AclCase(
        85, 1, _share_state(state_epoch=0, leader_epoch=0, start_offset=0), ((CLUSTER_ACTION,),)
    ),
    AclCase(86, 0, _share_state(), ((CLUSTER_ACTION,),)),
    AclCase(87, 1, _share_state(leader_epoch=0), ((CLUSTER_ACTION,),)),
    AclCase(32, 4, _described(2, TOPIC), (((OP.DESCRIBE_CONFIGS, R.TOPIC),),)),
    AclCase(32, 4, _described(4, "NODE"), ((CLUSTER_CONFIGS,),)),
    AclCase(32, 4, _described(8, "NODE"), ((CLUSTER_CONFIGS,),)),
    AclCase(32, 4, _described(16, "metrics"), ((CLUSTER_CONFIGS,),)),
    AclCase(32, 4, _described(32, GROUP), (((OP.DESCRIBE_CONFIGS, R.GROUP),),)),
    AclCase(
        34,
        2,
        {"dirs": [{"path": "/no/such", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        ((CLUSTER_ALTER,),),
    ),
    AclCase(
        35,
        4,
        {"topics": [{"topic": TOPIC, "partitions": [0]}]},
        ((CLUSTER_DESCRIBE,),),
    ),
    AclCase(
        44,
        1,
        {
            **_configs(8, "NODE", {"name": "root", "config_operation": 0, "value": "INFO"}),
            "validate_only": True,
        },
        ((CLUSTER_ALTER_CONFIGS,),),
    ),
    AclCase(
        47, 0, {"group_id": GROUP, "topics": _one_partition()}, ((GROUP_DELETE,), (TOPIC_READ,))
    ),
    AclCase(42, 2, {"groups_names": [GROUP]}, ((GROUP_DELETE,),)),
    AclCase(48, 1, {}, ((CLUSTER_CONFIGS,),)),
    AclCase(50, 0, {"users": [{"name": "no-such"}]}, ((CLUSTER_DESCRIBE,),)),
    AclCase(61, 0, {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}, ((TOPIC_READ,),)),
    AclCase(65, 0, {"transactional_ids": [TXN]}, ((TXN_DESCRIBE,),)),
    AclCase(
        68,
        0,
        {
            "group_id": GROUP,
            "member_epoch": 0,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": [TOPIC],
        },
        ((GROUP_READ,), (TOPIC_DESCRIBE,)),
    ),
    AclCase(69, 0, {"group_ids": [GROUP]}, ((GROUP_DESCRIBE,),)),
    AclCase(74, 1, {}, ((CLUSTER_CONFIGS,),)),
    AclCase(75, 0, {"topics": [{"name": TOPIC}]}, ((TOPIC_DESCRIBE,),)),
    AclCase(77, 1, {"group_ids": [GROUP]}, ((GROUP_DESCRIBE,),)),
    AclCase(
        76,
        1,
        {
            "group_id": GROUP,
            "member_id": "m1",
            "member_epoch": -1,
            "subscribed_topic_names": [TOPIC],
        },
        ((GROUP_READ,), (TOPIC_DESCRIBE,)),
    ),
    AclCase(
        90,
        1,
        {"groups": [{"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]},
        ((GROUP_DESCRIBE,), (TOPIC_DESCRIBE,)),
    ),
    AclCase(
        91,
        0,
        {
            "group_id": GROUP,
            "topics": [
                {
                    "topic_name": TOPIC,
                    "partitions": [{"partition_index": 0, "start_offset": 0}],
                }
            ],
        },
        ((GROUP_READ,), (TOPIC_READ,)),
    ),
    AclCase(
        92,
        0,
        {"group_id": GROUP, "topics": [{"topic_name": TOPIC}]},
        ((GROUP_DELETE,), (TOPIC_READ,)),
    ),
    AclCase(
        78,
        2,
        {
            "group_id": GROUP,
            "member_id": "m1",
            "share_session_epoch": 0,
            "topics": SHARED,
        },
        ((GROUP_READ,), (TOPIC_READ,)),
    ),
    AclCase(
        79,
        2,
        {"group_id": GROUP, "member_id": "m1", "share_session_epoch": 1, "topics": SHARED},
        ((GROUP_READ,),),
    ),
)
"""Cases that a broker decides."""

CONTROLLER_CASES = (
    AclCase(
        19,
        7,
        {"topics": CREATED, "validate_only": True, "timeout_ms": 5_000},
        (((OP.CREATE, R.CLUSTER), (OP.CREATE, R.TOPIC)),),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    AclCase(
        20,
        5,
        {"topic_names": [f"{TOPIC}-none"], "timeout_ms": 5_000},
        ((TOPIC_DELETE,),),
        code_if_denied=ErrorCode.NONE,
    ),
    AclCase(
        37,
        3,
        {"topics": [{"name": TOPIC, "count": 2}], "validate_only": True, "timeout_ms": 5_000},
        ((TOPIC_ALTER,),),
    ),
    AclCase(
        33,
        2,
        {**_configs(2, TOPIC, CONFIG), "validate_only": True},
        (((OP.ALTER_CONFIGS, R.TOPIC),),),
    ),
    AclCase(
        33,
        2,
        {**_configs(4, "NODE", BROKER_CONFIG), "validate_only": True},
        ((CLUSTER_ALTER_CONFIGS,),),
    ),
    AclCase(
        44,
        1,
        {**_configs(2, TOPIC, {**CONFIG, "config_operation": 0}), "validate_only": True},
        (((OP.ALTER_CONFIGS, R.TOPIC),),),
    ),
    AclCase(
        44,
        1,
        {**_configs(4, "NODE", {**BROKER_CONFIG, "config_operation": 0}), "validate_only": True},
        ((CLUSTER_ALTER_CONFIGS,),),
    ),
    AclCase(
        44,
        1,
        {**_configs(32, GROUP, {**GROUP_CONFIG, "config_operation": 0}), "validate_only": True},
        (((OP.ALTER_CONFIGS, R.GROUP),),),
    ),
    AclCase(
        43,
        2,
        {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout_ms": 5_000},
        ((CLUSTER_ALTER,),),
    ),
    AclCase(45, 0, {"topics": [], "timeout_ms": 5_000}, ((CLUSTER_ALTER,),)),
    AclCase(46, 0, {"topics": None, "timeout_ms": 5_000}, ((CLUSTER_DESCRIBE,),)),
    AclCase(49, 1, {"entries": [USER_QUOTA], "validate_only": True}, ((CLUSTER_ALTER_CONFIGS,),)),
    AclCase(51, 0, {"deletions": [{"name": "no-such", "mechanism": 1}]}, ((CLUSTER_ALTER,),)),
    AclCase(
        55,
        1,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        ((CLUSTER_DESCRIBE,),),
    ),
    AclCase(57, 1, {"validate_only": True, "timeout_ms": 5_000}, ((CLUSTER_ALTER,),)),
    AclCase(64, 0, {"broker_id": 999}, ((CLUSTER_ALTER,),)),
    AclCase(80, 1, {"cluster_id": None, "voter_id": 999}, ((CLUSTER_ALTER,),)),
    AclCase(81, 0, {"cluster_id": None, "voter_id": 999}, ((CLUSTER_ALTER,),)),
    AclCase(94, 0, {"controller_id": 999}, ((CLUSTER_ALTER,),)),
)
"""Cases that the active controller decides."""

ACL_CASES = (
    AclCase(29, 3, {"resource_type_filter": 2, **FILTER}, ((CLUSTER_DESCRIBE,),)),
    AclCase(30, 3, {"creations": [CREATION]}, ((CLUSTER_ALTER,),)),
    AclCase(31, 3, {"filters": [{"resource_type_filter": 2, **FILTER}]}, ((CLUSTER_ALTER,),)),
)
"""The requests on ACLs themselves."""

OWN_CASES = (
    AclCase(20000, 0, {}, ((CLUSTER_DESCRIBE,),)),
    AclCase(20001, 0, {"undo": True}, ((CLUSTER_ALTER,),)),
    AclCase(20002, 0, {}, ((CLUSTER_DESCRIBE,),)),
    AclCase(20003, 0, {}, ((CLUSTER_DESCRIBE,),)),
    AclCase(20004, 0, {}, ((CLUSTER_DESCRIBE,),)),
    AclCase(20005, 0, {"retry": True}, ((CLUSTER_ALTER,),)),
    AclCase(20006, 0, {}, ((CLUSTER_CONFIGS,),)),
    AclCase(20007, 0, {"start_offset": -1}, ((CLUSTER_DESCRIBE,), (CLUSTER_CONFIGS,))),
    AclCase(20008, 0, {"validate_only": True}, ((CLUSTER_ALTER,),)),
    AclCase(20009, 0, {"group_id": GROUP}, ((GROUP_DESCRIBE,),)),
    AclCase(
        20010,
        0,
        {"group_id": GROUP, "topic_name": TOPIC, "range_count_max": 1},
        ((GROUP_DESCRIBE,), (TOPIC_DESCRIBE,)),
    ),
    AclCase(20011, 0, {"validate_only": True}, ((CLUSTER_ALTER,),)),
)
"""Ottla's own requests."""


def asks(cases: tuple[AclCase, ...], *, prefix: str = "u") -> Iterator[Ask]:
    """Yield every need of every case in every state, each for a user of its own."""
    number = 0
    for case in cases:
        for group in case.needs:
            for need in group:
                for state in STATES:
                    if state == "prefixed" and need[1] is R.CLUSTER:
                        continue  # an entry has its whole name, or is refused
                    user = f"{prefix}{number}"
                    number += 1
                    others = [
                        entry(user, *other[0], AclPermission.ALLOW)
                        for other in case.needs
                        if other is not group
                    ]
                    own = list(_entries(user, need, state))
                    yield Ask(user, case, need, state, (*others, *own))


def _entries(user: str, need: Need, state: str) -> Iterator[AclEntry]:
    if state in ("allow", "deny"):
        yield entry(user, *need, AclPermission.ALLOW, name=_asked_name(need))
    if state == "deny":
        yield entry(user, *need, AclPermission.DENY, name=_asked_name(need))
    if state == "prefixed":
        yield entry(
            user, *need, AclPermission.ALLOW, name=NAMES[need[1]][:4], pattern=PatternType.PREFIXED
        )


def _asked_name(need: Need) -> str:
    """Return the name of a literal entry; some cases use names that begin with the topic's."""
    return "*" if need[1] is R.TOPIC else NAMES[need[1]]


def entry(
    user: str,
    operation: AclOperation,
    resource: ResourceType,
    permission: AclPermission,
    *,
    name: str | None = None,
    pattern: PatternType = PatternType.LITERAL,
) -> AclEntry:
    """Return an entry on the resource of the cases, or on a named one."""
    return AclEntry(
        resource_type=resource,
        resource_name=NAMES[resource] if name is None else name,
        pattern_type=pattern,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission=permission,
    )


def request_of(case: AclCase, *, topic_id: UUID, node_id: int) -> Message:
    """Return the request of a case; the id TOPIC and the name NODE are replaced by the
    cluster's."""
    made: Message = _made(request_class(case.key), case.fields, topic_id, str(node_id))
    return made


def creation_of(entries: Iterable[AclEntry]) -> Message:
    """Return a CreateAcls of entries."""
    creations = [
        {
            "resource_type": one.resource_type,
            "resource_name": one.resource_name,
            "resource_pattern_type": one.pattern_type,
            "principal": one.principal,
            "host": one.host,
            "operation": one.operation,
            "permission_type": one.permission,
        }
        for one in entries
    ]
    made: Message = _made(request_class(CREATE_ACLS), {"creations": creations}, UUID(int=0), "")
    return made


def _made(kind: type[Message], fields: dict[str, Any], topic_id: UUID, node_id: str) -> Any:
    classes = vars(sys.modules[kind.__module__])

    def struct(of: StructSchema, given: dict[str, Any]) -> Any:
        inner = {field.name: field.struct for field in of.fields}
        return classes[of.name](
            **{name: value(name, inner[name], one) for name, one in given.items()}
        )

    def value(name: str, inner: StructSchema | None, given: Any) -> Any:
        if name == "topic_id":
            return topic_id
        if inner is not None and isinstance(given, list):
            return [struct(inner, one) for one in given]
        return node_id if given == "NODE" else given

    return struct(schema.load(kind.SCHEMA)[kind.__name__].root, fields)


def codes_of(answer: Any) -> set[int]:
    """Return every error code anywhere in an answer."""
    if isinstance(answer, list):
        return set().union(*map(codes_of, answer)) if answer else set()
    if not isinstance(answer, Struct):
        return set()
    found: set[int] = set()
    for name in answer.__slots__:
        value = getattr(answer, name)
        if name == "topic_config_error_code":
            continue  # of details that are no part of what was asked for
        if name.endswith("error_code"):
            found.add(int(value))
        elif isinstance(value, list | Struct):
            found |= codes_of(value)
    return found - {0}


REFUSALS = {int(code) for code in AUTHORIZATION_CODES.values()}


def refusal_in(answer: Any) -> set[int]:
    """Return the codes of an answer by which authorisation refuses."""
    return codes_of(answer) & REFUSALS


async def answer_of(
    ask: Ask, host: str, port: int, *, topic_id: UUID, node_id: int, password: str
) -> Message:
    """Send a request as a user who logs in by SASL/PLAIN, and return the response."""
    request = request_of(ask.case, topic_id=topic_id, node_id=node_id)
    login = SaslLogin(mechanism="PLAIN", username=ask.user, password=password)
    connection = await open_stream(
        BrokerConnection, host, port, client_id="acl-cases", timeout_s=10, login=login
    )
    try:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            return await connection.request(request, response_class(ask.case.key), ask.case.version)
    finally:
        await connection.aclose()
