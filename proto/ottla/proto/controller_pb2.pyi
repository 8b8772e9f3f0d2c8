from ottla.proto import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "incarnation_id", "listeners", "features", "rack", "host", "log_dirs", "previous_broker_epoch", "cordoned_log_dirs", "principal", "is_named_by_certificate", "has_authorizer", "lost_replicas", "is_controller")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CORDONED_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    IS_NAMED_BY_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    HAS_AUTHORIZER_FIELD_NUMBER: _ClassVar[int]
    LOST_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IS_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    incarnation_id: bytes
    listeners: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.FeatureRange]
    rack: str
    host: str
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    previous_broker_epoch: int
    cordoned_log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    principal: str
    is_named_by_certificate: bool
    has_authorizer: bool
    lost_replicas: _containers.RepeatedCompositeFieldContainer[LostReplicas]
    is_controller: bool
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., listeners: _Optional[_Iterable[_Union[_metadata_pb2.Endpoint, _Mapping[str, object]]]] = ..., features: _Optional[_Iterable[_Union[_metadata_pb2.FeatureRange, _Mapping[str, object]]]] = ..., rack: _Optional[str] = ..., host: _Optional[str] = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., previous_broker_epoch: _Optional[int] = ..., cordoned_log_dirs: _Optional[_Iterable[bytes]] = ..., principal: _Optional[str] = ..., is_named_by_certificate: bool = ..., has_authorizer: bool = ..., lost_replicas: _Optional[_Iterable[_Union[LostReplicas, _Mapping[str, object]]]] = ..., is_controller: bool = ...) -> None: ...

class LostReplicas(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "broker_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    broker_epoch: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "current_metadata_offset", "want_fence", "want_shut_down", "offline_log_dirs", "cordoned_log_dirs", "produce_p99_us")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CURRENT_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    CORDONED_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    PRODUCE_P99_US_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    cordoned_log_dirs: _metadata_pb2.Uuids
    produce_p99_us: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., current_metadata_offset: _Optional[int] = ..., want_fence: bool = ..., want_shut_down: bool = ..., offline_log_dirs: _Optional[_Iterable[bytes]] = ..., cordoned_log_dirs: _Optional[_Union[_metadata_pb2.Uuids, _Mapping[str, object]]] = ..., produce_p99_us: _Optional[int] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "is_caught_up", "is_fenced", "should_shut_down")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    IS_CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., is_caught_up: bool = ..., is_fenced: bool = ..., should_shut_down: bool = ...) -> None: ...

class AttendRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "listener_name")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    listener_name: str
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., listener_name: _Optional[str] = ...) -> None: ...

class AttendResponse(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class AlterPartitionRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "topics")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    topics: _containers.RepeatedCompositeFieldContainer[AlterPartitionTopic]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[AlterPartitionTopic, _Mapping[str, object]]]] = ...) -> None: ...

class AlterPartitionTopic(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartitionProposal]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[AlterPartitionProposal, _Mapping[str, object]]]] = ...) -> None: ...

class AlterPartitionProposal(_message.Message):
    __slots__ = ("partition_id", "leader_epoch", "partition_epoch", "new_isr", "leader_recovery_state")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: _containers.RepeatedCompositeFieldContainer[BrokerState]
    leader_recovery_state: _metadata_pb2.LeaderRecoveryState
    def __init__(self, partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., new_isr: _Optional[_Iterable[_Union[BrokerState, _Mapping[str, object]]]] = ..., leader_recovery_state: _Optional[_Union[_metadata_pb2.LeaderRecoveryState, str]] = ...) -> None: ...

class BrokerState(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AlterPartitionResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "topics")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    topics: _containers.RepeatedCompositeFieldContainer[AlterPartitionTopicResult]
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[AlterPartitionTopicResult, _Mapping[str, object]]]] = ...) -> None: ...

class AlterPartitionTopicResult(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartitionResult]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[AlterPartitionResult, _Mapping[str, object]]]] = ...) -> None: ...

class AlterPartitionResult(_message.Message):
    __slots__ = ("partition_id", "error_code", "leader_id", "leader_epoch", "isr", "leader_recovery_state", "partition_epoch")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    leader_recovery_state: _metadata_pb2.LeaderRecoveryState
    partition_epoch: int
    def __init__(self, partition_id: _Optional[int] = ..., error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., leader_recovery_state: _Optional[_Union[_metadata_pb2.LeaderRecoveryState, str]] = ..., partition_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "producer_id_start", "producer_id_count")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_START_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_COUNT_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    producer_id_start: int
    producer_id_count: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., producer_id_start: _Optional[int] = ..., producer_id_count: _Optional[int] = ...) -> None: ...

class AssignReplicasToDirsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "directories")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    directories: _containers.RepeatedCompositeFieldContainer[DirectoryAssignment]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[DirectoryAssignment, _Mapping[str, object]]]] = ...) -> None: ...

class DirectoryAssignment(_message.Message):
    __slots__ = ("directory_id", "topics")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    topics: _containers.RepeatedCompositeFieldContainer[DirectoryTopic]
    def __init__(self, directory_id: _Optional[bytes] = ..., topics: _Optional[_Iterable[_Union[DirectoryTopic, _Mapping[str, object]]]] = ...) -> None: ...

class DirectoryTopic(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class AssignReplicasToDirsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "directories")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    directories: _containers.RepeatedCompositeFieldContainer[DirectoryResult]
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., directories: _Optional[_Iterable[_Union[DirectoryResult, _Mapping[str, object]]]] = ...) -> None: ...

class DirectoryResult(_message.Message):
    __slots__ = ("directory_id", "topics")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    topics: _containers.RepeatedCompositeFieldContainer[DirectoryTopicResult]
    def __init__(self, directory_id: _Optional[bytes] = ..., topics: _Optional[_Iterable[_Union[DirectoryTopicResult, _Mapping[str, object]]]] = ...) -> None: ...

class DirectoryTopicResult(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[DirectoryPartitionResult]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[DirectoryPartitionResult, _Mapping[str, object]]]] = ...) -> None: ...

class DirectoryPartitionResult(_message.Message):
    __slots__ = ("partition_id", "error_code")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    error_code: int
    def __init__(self, partition_id: _Optional[int] = ..., error_code: _Optional[int] = ...) -> None: ...

class UnregisterRequest(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class UnregisterResponse(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class RegisterControllerRequest(_message.Message):
    __slots__ = ("controller_id", "cluster_id", "incarnation_id", "listeners", "features", "software_version")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.FeatureRange]
    software_version: str
    def __init__(self, controller_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., listeners: _Optional[_Iterable[_Union[_metadata_pb2.Endpoint, _Mapping[str, object]]]] = ..., features: _Optional[_Iterable[_Union[_metadata_pb2.FeatureRange, _Mapping[str, object]]]] = ..., software_version: _Optional[str] = ...) -> None: ...

class RegisterControllerResponse(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("api_key", "api_version", "principal", "client_id", "client_address", "body", "is_token_authenticated")
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    IS_TOKEN_AUTHENTICATED_FIELD_NUMBER: _ClassVar[int]
    api_key: int
    api_version: int
    principal: str
    client_id: str
    client_address: str
    body: bytes
    is_token_authenticated: bool
    def __init__(self, api_key: _Optional[int] = ..., api_version: _Optional[int] = ..., principal: _Optional[str] = ..., client_id: _Optional[str] = ..., client_address: _Optional[str] = ..., body: _Optional[bytes] = ..., is_token_authenticated: bool = ...) -> None: ...

class ForwardResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "body", "metadata_offset", "throttle_time_ms")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    body: bytes
    metadata_offset: int
    throttle_time_ms: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., body: _Optional[bytes] = ..., metadata_offset: _Optional[int] = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...
