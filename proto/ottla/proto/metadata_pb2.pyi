from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LeaderRecoveryState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOVERED: _ClassVar[LeaderRecoveryState]
    RECOVERING: _ClassVar[LeaderRecoveryState]
RECOVERED: LeaderRecoveryState
RECOVERING: LeaderRecoveryState

class MetadataRecord(_message.Message):
    __slots__ = ("register_broker", "unregister_broker", "topic", "partition", "config", "partition_change", "remove_topic", "delegation_token", "user_scram_credential", "feature_level", "client_quota", "producer_ids", "broker_registration_change", "access_control_entry", "remove_access_control_entry", "no_op", "remove_user_scram_credential", "remove_delegation_token", "register_controller", "clear_elr", "unregister_controller")
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PARTITION_CHANGE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    USER_SCRAM_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_QUOTA_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    BROKER_REGISTRATION_CHANGE_FIELD_NUMBER: _ClassVar[int]
    ACCESS_CONTROL_ENTRY_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ACCESS_CONTROL_ENTRY_FIELD_NUMBER: _ClassVar[int]
    NO_OP_FIELD_NUMBER: _ClassVar[int]
    REMOVE_USER_SCRAM_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    REMOVE_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REGISTER_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    CLEAR_ELR_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    register_broker: RegisterBroker
    unregister_broker: UnregisterBroker
    topic: Topic
    partition: Partition
    config: Config
    partition_change: PartitionChange
    remove_topic: RemoveTopic
    delegation_token: DelegationToken
    user_scram_credential: UserScramCredential
    feature_level: FeatureLevel
    client_quota: ClientQuota
    producer_ids: ProducerIds
    broker_registration_change: BrokerRegistrationChange
    access_control_entry: AccessControlEntry
    remove_access_control_entry: RemoveAccessControlEntry
    no_op: NoOp
    remove_user_scram_credential: RemoveUserScramCredential
    remove_delegation_token: RemoveDelegationToken
    register_controller: RegisterController
    clear_elr: ClearElr
    unregister_controller: UnregisterController
    def __init__(self, register_broker: _Optional[_Union[RegisterBroker, _Mapping[str, object]]] = ..., unregister_broker: _Optional[_Union[UnregisterBroker, _Mapping[str, object]]] = ..., topic: _Optional[_Union[Topic, _Mapping[str, object]]] = ..., partition: _Optional[_Union[Partition, _Mapping[str, object]]] = ..., config: _Optional[_Union[Config, _Mapping[str, object]]] = ..., partition_change: _Optional[_Union[PartitionChange, _Mapping[str, object]]] = ..., remove_topic: _Optional[_Union[RemoveTopic, _Mapping[str, object]]] = ..., delegation_token: _Optional[_Union[DelegationToken, _Mapping[str, object]]] = ..., user_scram_credential: _Optional[_Union[UserScramCredential, _Mapping[str, object]]] = ..., feature_level: _Optional[_Union[FeatureLevel, _Mapping[str, object]]] = ..., client_quota: _Optional[_Union[ClientQuota, _Mapping[str, object]]] = ..., producer_ids: _Optional[_Union[ProducerIds, _Mapping[str, object]]] = ..., broker_registration_change: _Optional[_Union[BrokerRegistrationChange, _Mapping[str, object]]] = ..., access_control_entry: _Optional[_Union[AccessControlEntry, _Mapping[str, object]]] = ..., remove_access_control_entry: _Optional[_Union[RemoveAccessControlEntry, _Mapping[str, object]]] = ..., no_op: _Optional[_Union[NoOp, _Mapping[str, object]]] = ..., remove_user_scram_credential: _Optional[_Union[RemoveUserScramCredential, _Mapping[str, object]]] = ..., remove_delegation_token: _Optional[_Union[RemoveDelegationToken, _Mapping[str, object]]] = ..., register_controller: _Optional[_Union[RegisterController, _Mapping[str, object]]] = ..., clear_elr: _Optional[_Union[ClearElr, _Mapping[str, object]]] = ..., unregister_controller: _Optional[_Union[UnregisterController, _Mapping[str, object]]] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("name", "host", "port", "security_protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    security_protocol: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., security_protocol: _Optional[int] = ...) -> None: ...

class FeatureRange(_message.Message):
    __slots__ = ("name", "min_supported_version", "max_supported_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_SUPPORTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_SUPPORTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_supported_version: int
    max_supported_version: int
    def __init__(self, name: _Optional[str] = ..., min_supported_version: _Optional[int] = ..., max_supported_version: _Optional[int] = ...) -> None: ...

class RegisterBroker(_message.Message):
    __slots__ = ("broker_id", "incarnation_id", "broker_epoch", "endpoints", "features", "rack", "host", "is_fenced", "in_controlled_shutdown", "log_dirs", "cordoned_log_dirs", "principal")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    CORDONED_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    incarnation_id: bytes
    broker_epoch: int
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[FeatureRange]
    rack: str
    host: str
    is_fenced: bool
    in_controlled_shutdown: bool
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    cordoned_log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    principal: str
    def __init__(self, broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., broker_epoch: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., features: _Optional[_Iterable[_Union[FeatureRange, _Mapping[str, object]]]] = ..., rack: _Optional[str] = ..., host: _Optional[str] = ..., is_fenced: bool = ..., in_controlled_shutdown: bool = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., cordoned_log_dirs: _Optional[_Iterable[bytes]] = ..., principal: _Optional[str] = ...) -> None: ...

class UnregisterBroker(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class BrokerRegistrationChange(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "is_fenced", "in_controlled_shutdown", "log_dirs", "cordoned_log_dirs")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    CORDONED_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    is_fenced: bool
    in_controlled_shutdown: bool
    log_dirs: Uuids
    cordoned_log_dirs: Uuids
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., is_fenced: bool = ..., in_controlled_shutdown: bool = ..., log_dirs: _Optional[_Union[Uuids, _Mapping[str, object]]] = ..., cordoned_log_dirs: _Optional[_Union[Uuids, _Mapping[str, object]]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "replicas", "directories", "isr", "eligible_leader_replicas", "last_known_elr", "adding_replicas", "removing_replicas", "leader", "leader_recovery_state", "leader_epoch", "partition_epoch", "unclean_leader_epoch", "lost_replicas")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_LEADER_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOST_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    directories: _containers.RepeatedScalarFieldContainer[bytes]
    isr: _containers.RepeatedScalarFieldContainer[int]
    eligible_leader_replicas: _containers.RepeatedScalarFieldContainer[int]
    last_known_elr: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    leader: int
    leader_recovery_state: LeaderRecoveryState
    leader_epoch: int
    partition_epoch: int
    unclean_leader_epoch: int
    lost_replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., directories: _Optional[_Iterable[bytes]] = ..., isr: _Optional[_Iterable[int]] = ..., eligible_leader_replicas: _Optional[_Iterable[int]] = ..., last_known_elr: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., leader: _Optional[int] = ..., leader_recovery_state: _Optional[_Union[LeaderRecoveryState, str]] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., unclean_leader_epoch: _Optional[int] = ..., lost_replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionChange(_message.Message):
    __slots__ = ("topic_id", "partition_id", "isr", "leader", "replicas", "removing_replicas", "adding_replicas", "leader_recovery_state", "eligible_leader_replicas", "last_known_elr", "directories", "lost_replicas")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_LEADER_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    LOST_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    isr: NodeIds
    leader: int
    replicas: NodeIds
    removing_replicas: NodeIds
    adding_replicas: NodeIds
    leader_recovery_state: LeaderRecoveryState
    eligible_leader_replicas: NodeIds
    last_known_elr: NodeIds
    directories: Uuids
    lost_replicas: NodeIds
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., isr: _Optional[_Union[NodeIds, _Mapping[str, object]]] = ..., leader: _Optional[int] = ..., replicas: _Optional[_Union[NodeIds, _Mapping[str, object]]] = ..., removing_replicas: _Optional[_Union[NodeIds, _Mapping[str, object]]] = ..., adding_replicas: _Optional[_Union[NodeIds, _Mapping[str, object]]] = ..., leader_recovery_state: _Optional[_Union[LeaderRecoveryState, str]] = ..., eligible_leader_replicas: _Optional[_Union[NodeIds, _Mapping[str, object]]] = ..., last_known_elr: _Optional[_Union[NodeIds, _Mapping[str, object]]] = ..., directories: _Optional[_Union[Uuids, _Mapping[str, object]]] = ..., lost_replicas: _Optional[_Union[NodeIds, _Mapping[str, object]]] = ...) -> None: ...

class NodeIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Uuids(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RemoveTopic(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    def __init__(self, topic_id: _Optional[bytes] = ...) -> None: ...

class Config(_message.Message):
    __slots__ = ("resource_type", "resource_name", "key", "value")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    key: str
    value: str
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class FeatureLevel(_message.Message):
    __slots__ = ("name", "level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class ClientQuota(_message.Message):
    __slots__ = ("entity", "key", "value")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntity]
    key: str
    value: float
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntity, _Mapping[str, object]]]] = ..., key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class QuotaEntity(_message.Message):
    __slots__ = ("entity_type", "entity_name")
    ENTITY_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENTITY_NAME_FIELD_NUMBER: _ClassVar[int]
    entity_type: str
    entity_name: str
    def __init__(self, entity_type: _Optional[str] = ..., entity_name: _Optional[str] = ...) -> None: ...

class UserScramCredential(_message.Message):
    __slots__ = ("name", "mechanism", "salt", "stored_key", "server_key", "iterations")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ..., salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ..., iterations: _Optional[int] = ...) -> None: ...

class RemoveUserScramCredential(_message.Message):
    __slots__ = ("name", "mechanism")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ...) -> None: ...

class AccessControlEntry(_message.Message):
    __slots__ = ("id", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(self, id: _Optional[bytes] = ..., resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission_type: _Optional[int] = ...) -> None: ...

class RemoveAccessControlEntry(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    def __init__(self, id: _Optional[bytes] = ...) -> None: ...

class DelegationToken(_message.Message):
    __slots__ = ("token_id", "owner", "requester", "renewers", "issue_timestamp_ms", "max_timestamp_ms", "expiration_timestamp_ms")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    ISSUE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    owner: str
    requester: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int
    def __init__(self, token_id: _Optional[str] = ..., owner: _Optional[str] = ..., requester: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., issue_timestamp_ms: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., expiration_timestamp_ms: _Optional[int] = ...) -> None: ...

class RemoveDelegationToken(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class ProducerIds(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "next_producer_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    next_producer_id: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., next_producer_id: _Optional[int] = ...) -> None: ...

class NoOp(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClearElr(_message.Message):
    __slots__ = ("topic_name",)
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    topic_name: str
    def __init__(self, topic_name: _Optional[str] = ...) -> None: ...

class RegisterController(_message.Message):
    __slots__ = ("controller_id", "incarnation_id", "endpoints", "features", "software_version")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[FeatureRange]
    software_version: str
    def __init__(self, controller_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., features: _Optional[_Iterable[_Union[FeatureRange, _Mapping[str, object]]]] = ..., software_version: _Optional[str] = ...) -> None: ...

class UnregisterController(_message.Message):
    __slots__ = ("controller_id",)
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    def __init__(self, controller_id: _Optional[int] = ...) -> None: ...
