"""Describes records of the metadata log in words, for operators.

All functions are pure. Descriptions contain no secrets: neither credentials nor the values of
secret settings. A topic is described by the name that the caller supplies, or by its id if the
caller does not know it. `WORDS` has a function for each kind of record. Other kinds are described
by their name, so that records of later releases are shown too.
"""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from ottla.metadata.features import level_name
from ottla.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    Record,
)
from ottla.model.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from ottla.model.settings.security.dynamic_tls import is_secret_key
from ottla.proto import metadata_pb2 as pb

TopicName = Callable[[bytes], str]
"""Type of a function that returns the name of the topic with the given id (16 bytes)."""

RESOURCES = {
    TOPIC_RESOURCE: "topic",
    BROKER_RESOURCE: "broker",
    CLIENT_METRICS_RESOURCE: "client metrics",
    GROUP_RESOURCE: "group",
}
SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NO_LEADER = -1


def words_of(record: Record, topic_name: TopicName) -> str:
    """Return a description of a metadata record in one line of text."""
    kind = record.WhichOneof("record")
    if kind is None:
        return "a record of a later release"
    words = WORDS.get(kind)
    if words is None:
        return str(kind).replace("_", " ")
    return words(getattr(record, kind), topic_name)


def topic_id_text(topic_id: bytes) -> str:
    """Return the text of a topic id, or a note that the id is malformed."""
    return str(UUID(bytes=topic_id)) if len(topic_id) == 16 else "(malformed id)"


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _endpoints(endpoints: Iterable[pb.Endpoint]) -> str:
    return ", ".join(f"{one.name}://{one.host}:{one.port}" for one in endpoints) or "no address"


def _register_broker(body: pb.RegisterBroker, topic_name: TopicName) -> str:
    return f"broker {body.broker_id} registered with {_endpoints(body.endpoints)}"


def _unregister_broker(body: pb.UnregisterBroker, topic_name: TopicName) -> str:
    return f"broker {body.broker_id} was unregistered"


def _change_broker(body: pb.BrokerRegistrationChange, topic_name: TopicName) -> str:
    changes = []
    if body.HasField("is_fenced"):
        changes.append("is fenced" if body.is_fenced else "serves")
    if body.HasField("in_controlled_shutdown"):
        is_stopping = body.in_controlled_shutdown
        changes.append("stops in order" if is_stopping else "stops no longer")
    if body.HasField("log_dirs"):
        changes.append(f"has {len(body.log_dirs.ids)} log directories")
    if body.HasField("cordoned_log_dirs"):
        changes.append(f"has {len(body.cordoned_log_dirs.ids)} cordoned log directories")
    return f"broker {body.broker_id} {' and '.join(changes) or 'is unchanged'}"


def _register_controller(body: pb.RegisterController, topic_name: TopicName) -> str:
    return f"controller {body.controller_id} registered with {_endpoints(body.endpoints)}"


def _unregister_controller(body: pb.UnregisterController, topic_name: TopicName) -> str:
    return f"controller {body.controller_id} was unregistered"


def _topic(body: pb.Topic, topic_name: TopicName) -> str:
    return f"topic {body.name} was created with id {topic_id_text(body.topic_id)}"


def _remove_topic(body: pb.RemoveTopic, topic_name: TopicName) -> str:
    return f"topic {topic_name(body.topic_id)} was deleted"


def _leader(leader: int) -> str:
    return "no leader" if leader == NO_LEADER else f"leader {leader}"


def _partition(body: pb.Partition, topic_name: TopicName) -> str:
    return (
        f"partition {topic_name(body.topic_id)}-{body.partition_id} has {_leader(body.leader)}, "
        f"replicas {_ids(body.replicas)}, in sync {_ids(body.isr)}"
    )


def _change_partition(body: pb.PartitionChange, topic_name: TopicName) -> str:
    changes = []
    if body.HasField("leader"):
        changes.append(_leader(body.leader))
    for field, name in (
        ("replicas", "replicas"),
        ("isr", "in sync"),
        ("adding_replicas", "adding"),
        ("removing_replicas", "removing"),
        ("eligible_leader_replicas", "eligible"),
        ("last_known_elr", "last known leader"),
        ("lost_replicas", "lost"),
    ):
        if body.HasField(field):
            changes.append(f"{name} {_ids(getattr(body, field).ids)}")
    if body.HasField("leader_recovery_state"):
        changes.append(pb.LeaderRecoveryState.Name(body.leader_recovery_state).lower())
    if body.HasField("directories"):
        changes.append("other log directories")
    name = f"{topic_name(body.topic_id)}-{body.partition_id}"
    return f"partition {name}: {'; '.join(changes) or 'unchanged'}"


def _clear_elr(body: pb.ClearElr, topic_name: TopicName) -> str:
    where = f"topic {body.topic_name}" if body.topic_name else "all topics"
    return f"the eligible leader replicas of {where} were cleared"


def _config(body: pb.Config, topic_name: TopicName) -> str:
    resource = RESOURCES.get(body.resource_type, f"resource of type {body.resource_type}")
    where = f"{resource} {body.resource_name}" if body.resource_name else f"every {resource}"
    if not body.HasField("value"):
        return f"{where}: {body.key} was removed"
    value = "(hidden)" if is_secret_key(body.key) else body.value
    return f"{where}: {body.key}={value}"


def _feature(body: pb.FeatureLevel, topic_name: TopicName) -> str:
    return f"feature {body.name} has level {level_name(body.name, body.level)}"


def _quota(body: pb.ClientQuota, topic_name: TopicName) -> str:
    parts = [
        f"{part.entity_type} {part.entity_name if part.HasField('entity_name') else '(default)'}"
        for part in body.entity
    ]
    change = f"{body.key}={body.value:g}" if body.HasField("value") else f"{body.key} was removed"
    return f"quota of {', '.join(parts)}: {change}"


def _mechanism(number: int) -> str:
    return SCRAM_MECHANISMS.get(number, f"mechanism {number}")


def _credential(body: pb.UserScramCredential, topic_name: TopicName) -> str:
    return f"user {body.name} has another credential for {_mechanism(body.mechanism)}"


def _remove_credential(body: pb.RemoveUserScramCredential, topic_name: TopicName) -> str:
    return f"user {body.name} has no credential for {_mechanism(body.mechanism)}"


def _acl(body: pb.AccessControlEntry, topic_name: TopicName) -> str:
    try:
        permission = AclPermission(body.permission_type).name.lower()
        operation = AclOperation(body.operation).name.lower()
        resource = ResourceType(body.resource_type).name.lower()
        pattern = PatternType(body.pattern_type).name.lower()
    except ValueError:
        return f"ACL {topic_id_text(body.id)} was added"
    return (
        f"ACL {topic_id_text(body.id)} was added: {permission} {body.principal} from {body.host} "
        f"to {operation} the {resource} {body.resource_name} ({pattern})"
    )


def _remove_acl(body: pb.RemoveAccessControlEntry, topic_name: TopicName) -> str:
    return f"ACL {topic_id_text(body.id)} was removed"


def _token(body: pb.DelegationToken, topic_name: TopicName) -> str:
    return f"delegation token {body.token_id} of {body.owner} was created or renewed"


def _remove_token(body: pb.RemoveDelegationToken, topic_name: TopicName) -> str:
    return f"delegation token {body.token_id} was removed"


def _producer_ids(body: pb.ProducerIds, topic_name: TopicName) -> str:
    return f"producer ids below {body.next_producer_id} are allocated, the last ones to " + (
        f"broker {body.broker_id}" if body.broker_id >= 0 else "no broker"
    )


def _no_op(body: pb.NoOp, topic_name: TopicName) -> str:
    return "nothing changed"


WORDS: dict[str, Callable[[Any, TopicName], str]] = {
    "register_broker": _register_broker,
    "unregister_broker": _unregister_broker,
    "broker_registration_change": _change_broker,
    "register_controller": _register_controller,
    "unregister_controller": _unregister_controller,
    "topic": _topic,
    "remove_topic": _remove_topic,
    "partition": _partition,
    "partition_change": _change_partition,
    "clear_elr": _clear_elr,
    "config": _config,
    "feature_level": _feature,
    "client_quota": _quota,
    "user_scram_credential": _credential,
    "remove_user_scram_credential": _remove_credential,
    "access_control_entry": _acl,
    "remove_access_control_entry": _remove_acl,
    "delegation_token": _token,
    "remove_delegation_token": _remove_token,
    "producer_ids": _producer_ids,
    "no_op": _no_op,
}
"""Functions that describe a metadata record in words, by the kind of record."""
