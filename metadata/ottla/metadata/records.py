"""Constructs, encodes and decodes the records of the metadata log, with one constructor for each
kind of record.

`decode_record` raises an error for a kind of record that it does not know. Such a record was
written by a newer release, and the node must not read the log any further.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from google.protobuf.message import DecodeError

from ottla.metadata.image import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FeatureRange,
    PartitionState,
    RecoveryState,
)
from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.model.ids import NodeId
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.security.acls import AclEntry
from ottla.model.security.delegation_tokens import DelegationToken
from ottla.model.security.scram import ScramCredential
from ottla.model.version import VERSION
from ottla.proto import metadata_pb2 as pb

Record = pb.MetadataRecord

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


def encode_record(record: Record) -> bytes:
    """Return a metadata record encoded as the value of a log record."""
    assert record.WhichOneof("record") is not None
    return record.SerializeToString(deterministic=True)


def decode_record(value: bytes) -> Record:
    """Return the metadata record in the value of a log record.

    Raises CorruptDataError if the value is malformed, and NewerReleaseError if the record's kind is
    unknown.
    """
    try:
        record = Record.FromString(value)
    except DecodeError as error:
        raise CorruptDataError(f"metadata record: {error}") from error
    if record.WhichOneof("record") is None:
        raise _unknown_kind(record)
    return record


def _unknown_kind(record: Record) -> CorruptDataError | NewerReleaseError:
    """Return the error for a metadata record whose kind this release does not know.

    Protobuf keeps the bytes of unknown fields. An empty record is therefore corrupt, and not a
    record of a newer release.
    """
    if record.ByteSize() == 0:
        return CorruptDataError("metadata record: it is empty")
    return NewerReleaseError(
        f"the metadata log has a record of a kind that Ottla {VERSION} does not know: a newer "
        "release wrote it; start this node with that release"
    )


def register_broker_record(broker: BrokerRegistration) -> Record:
    """Return a metadata record of a broker's registration. It replaces the broker's previous
    registration as a whole."""
    return Record(
        register_broker=pb.RegisterBroker(
            broker_id=broker.id,
            incarnation_id=broker.incarnation_id.bytes,
            broker_epoch=broker.epoch,
            endpoints=_endpoints(broker.endpoints),
            features=_feature_ranges(broker.features),
            rack=broker.rack,
            host=broker.host,
            is_fenced=broker.is_fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=[directory.bytes for directory in broker.log_dirs],
            cordoned_log_dirs=[directory.bytes for directory in broker.cordoned_log_dirs],
            principal=broker.principal,
        )
    )


def unregister_broker_record(broker: BrokerRegistration) -> Record:
    """Return a metadata record of the permanent removal of a broker from the cluster."""
    return Record(
        unregister_broker=pb.UnregisterBroker(broker_id=broker.id, broker_epoch=broker.epoch)
    )


def broker_change_record(
    broker: BrokerRegistration,
    *,
    is_fenced: bool | None = None,
    in_controlled_shutdown: bool | None = None,
    log_dirs: Iterable[UUID] | None = None,
    cordoned_log_dirs: Iterable[UUID] | None = None,
) -> Record:
    """Return a metadata record that changes the registered state of a broker. An argument of None
    leaves that field unchanged."""
    change = pb.BrokerRegistrationChange(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        log_dirs=_uuids(log_dirs),
        cordoned_log_dirs=_uuids(cordoned_log_dirs),
    )
    if is_fenced is not None:
        change.is_fenced = is_fenced
    if in_controlled_shutdown is not None:
        change.in_controlled_shutdown = in_controlled_shutdown
    return Record(broker_registration_change=change)


def register_controller_record(controller: ControllerRegistration) -> Record:
    """Return a metadata record of a controller's registration. It replaces the controller's
    previous registration as a whole."""
    return Record(
        register_controller=pb.RegisterController(
            controller_id=controller.id,
            incarnation_id=controller.incarnation_id.bytes,
            endpoints=_endpoints(controller.endpoints),
            features=_feature_ranges(controller.features),
            software_version=controller.software_version,
        )
    )


def unregister_controller_record(controller_id: NodeId) -> Record:
    """Return a metadata record of the removal of a controller's registration."""
    return Record(unregister_controller=pb.UnregisterController(controller_id=controller_id))


def topic_record(name: str, topic_id: UUID) -> Record:
    """Return a metadata record of a new topic, which has no partitions yet."""
    return Record(topic=pb.Topic(name=name, topic_id=topic_id.bytes))


def remove_topic_record(topic_id: UUID) -> Record:
    """Return a metadata record of the deletion of a topic, with its partitions and settings."""
    return Record(remove_topic=pb.RemoveTopic(topic_id=topic_id.bytes))


def partition_record(topic_id: UUID, partition_id: int, state: PartitionState) -> Record:
    """Return a metadata record of the whole state of a partition, which may be new."""
    assert len(state.directories) == len(state.replicas)
    return Record(
        partition=pb.Partition(
            topic_id=topic_id.bytes,
            partition_id=partition_id,
            replicas=state.replicas,
            directories=[directory.bytes for directory in state.directories],
            isr=state.isr,
            eligible_leader_replicas=state.elr,
            last_known_elr=state.last_known_elr,
            adding_replicas=state.adding,
            removing_replicas=state.removing,
            leader=state.leader,
            leader_recovery_state=pb.LeaderRecoveryState.Name(state.recovery_state),
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            unclean_leader_epoch=state.unclean_leader_epoch,
            lost_replicas=state.lost,
        )
    )


def partition_records(
    topic_id: UUID, states: Sequence[PartitionState], first: int = 0
) -> list[Record]:
    """Return the records of a topic's partitions, of which the first has the number `first`.

    A state that several partitions share is encoded once, which takes a fifth of the time.
    """
    encoded: dict[int, pb.Partition] = {}
    records = []
    for partition_id, state in enumerate(states, first):
        same = encoded.get(id(state))
        if same is None:
            record = partition_record(topic_id, partition_id, state)
            encoded[id(state)] = record.partition
        else:
            record = Record(partition=same)
            record.partition.partition_id = partition_id
        records.append(record)
    return records


def partition_change_record(
    topic_id: UUID,
    partition_id: int,
    *,
    isr: Sequence[NodeId] | None = None,
    leader: NodeId | None = None,
    replicas: Sequence[NodeId] | None = None,
    adding: Sequence[NodeId] | None = None,
    removing: Sequence[NodeId] | None = None,
    recovery_state: RecoveryState | None = None,
    elr: Sequence[NodeId] | None = None,
    last_known_elr: Sequence[NodeId] | None = None,
    lost: Sequence[NodeId] | None = None,
    directories: Iterable[UUID] | None = None,
) -> Record:
    """Return a metadata record that changes a partition. An argument of None leaves that field
    unchanged.

    The partition epoch increases by one. The leader epoch increases by one too if `leader` is
    given.
    """
    return Record(
        partition_change=pb.PartitionChange(
            topic_id=topic_id.bytes,
            partition_id=partition_id,
            isr=_node_ids(isr),
            leader=leader,
            replicas=_node_ids(replicas),
            adding_replicas=_node_ids(adding),
            removing_replicas=_node_ids(removing),
            leader_recovery_state=(
                None if recovery_state is None else pb.LeaderRecoveryState.Name(recovery_state)
            ),
            eligible_leader_replicas=_node_ids(elr),
            last_known_elr=_node_ids(last_known_elr),
            lost_replicas=_node_ids(lost),
            directories=_uuids(directories),
        )
    )


def clear_elr_record(topic_name: str) -> Record:
    """Return a metadata record that clears the eligible leader replicas (ELR) of the named topic.
    An empty name means every topic."""
    return Record(clear_elr=pb.ClearElr(topic_name=topic_name))


def config_record(resource_type: int, name: str, key: str, value: str | None) -> Record:
    """Return a metadata record of a resource's dynamic setting. `value` is its new value; None
    removes the setting."""
    return Record(
        config=pb.Config(resource_type=resource_type, resource_name=name, key=key, value=value)
    )


def feature_level_record(name: str, level: int) -> Record:
    """Return a metadata record of a finalised feature level. Level 0 removes the feature."""
    return Record(feature_level=pb.FeatureLevel(name=name, level=level))


def client_quota_record(entity: Iterable[QuotaEntity], key: str, value: float | None) -> Record:
    """Return a metadata record of one quota of a client quota entity, such as a user. `value` is
    the new quota; None removes it."""
    return Record(
        client_quota=pb.ClientQuota(
            entity=[
                pb.QuotaEntity(entity_type=part.type, entity_name=None)
                if part.is_default
                else pb.QuotaEntity(entity_type=part.type, entity_name=part.name)
                for part in entity
            ],
            key=key,
            value=value,
        )
    )


def scram_credential_record(user: str, mechanism: int, credential: ScramCredential) -> Record:
    """Return a metadata record of a user's SCRAM credential. `mechanism` is Kafka's number of the
    SCRAM mechanism."""
    return Record(
        user_scram_credential=pb.UserScramCredential(
            name=user,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    )


def remove_scram_credential_record(user: str, mechanism: int) -> Record:
    """Return a metadata record that deletes a user's credential for one SCRAM mechanism."""
    return Record(
        remove_user_scram_credential=pb.RemoveUserScramCredential(name=user, mechanism=mechanism)
    )


def acl_record(entry_id: UUID, entry: AclEntry) -> Record:
    """Return a metadata record of a new ACL."""
    return Record(
        access_control_entry=pb.AccessControlEntry(
            id=entry_id.bytes,
            resource_type=entry.resource_type,
            resource_name=entry.resource_name,
            pattern_type=entry.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
    )


def remove_acl_record(entry_id: UUID) -> Record:
    """Return a metadata record of the deletion of an ACL."""
    return Record(remove_access_control_entry=pb.RemoveAccessControlEntry(id=entry_id.bytes))


def delegation_token_record(token: DelegationToken, *, expires_ms: int | None = None) -> Record:
    """Return a metadata record of a delegation token that expires at `expires_ms` (ms since 1970).
    The expiry time in `token` is ignored."""
    return Record(
        delegation_token=pb.DelegationToken(
            token_id=token.id,
            owner=token.owner,
            requester=token.requester,
            renewers=token.renewers,
            issue_timestamp_ms=token.issued_ms,
            max_timestamp_ms=token.max_ms,
            expiration_timestamp_ms=token.expires_ms if expires_ms is None else expires_ms,
        )
    )


def remove_delegation_token_record(token_id: str) -> Record:
    """Return a metadata record of the deletion of a delegation token."""
    return Record(remove_delegation_token=pb.RemoveDelegationToken(token_id=token_id))


def producer_ids_record(broker: NodeId, broker_epoch: int, next_producer_id: int) -> Record:
    """Return a metadata record that allocates all producer ids below `next_producer_id`. The ids
    since the previous such record belong to `broker`."""
    return Record(
        producer_ids=pb.ProducerIds(
            broker_id=broker, broker_epoch=broker_epoch, next_producer_id=next_producer_id
        )
    )


def no_op_record() -> Record:
    """Return a metadata record without effect on the image. Appending it advances the end of the
    metadata log."""
    return Record(no_op=pb.NoOp())


def _endpoints(endpoints: Iterable[Endpoint]) -> list[pb.Endpoint]:
    return [
        pb.Endpoint(name=name, host=host, port=port, security_protocol=protocol)
        for name, host, port, protocol in endpoints
    ]


def _feature_ranges(features: Iterable[FeatureRange]) -> list[pb.FeatureRange]:
    return [
        pb.FeatureRange(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, lowest, highest in features
    ]


def _node_ids(ids: Sequence[NodeId] | None) -> pb.NodeIds | None:
    return None if ids is None else pb.NodeIds(ids=ids)


def _uuids(ids: Iterable[UUID] | None) -> pb.Uuids | None:
    return None if ids is None else pb.Uuids(ids=[one.bytes for one in ids])
