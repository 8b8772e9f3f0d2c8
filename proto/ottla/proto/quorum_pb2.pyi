from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Endpoint(_message.Message):
    __slots__ = ("name", "host", "port")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class OffsetAndEpoch(_message.Message):
    __slots__ = ("offset", "epoch")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    epoch: int
    def __init__(self, offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("cluster_id", "voter_id", "voter_directory_id", "replica_id", "replica_directory_id", "replica_epoch", "last_offset_epoch", "last_offset", "pre_vote")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter_id: int
    voter_directory_id: bytes
    replica_id: int
    replica_directory_id: bytes
    replica_epoch: int
    last_offset_epoch: int
    last_offset: int
    pre_vote: bool
    def __init__(self, cluster_id: _Optional[str] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., replica_epoch: _Optional[int] = ..., last_offset_epoch: _Optional[int] = ..., last_offset: _Optional[int] = ..., pre_vote: bool = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("error_code", "leader_id", "leader_epoch", "leader_endpoints", "vote_granted")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    VOTE_GRANTED_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    leader_id: int
    leader_epoch: int
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    vote_granted: bool
    def __init__(self, error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., vote_granted: bool = ...) -> None: ...

class BeginQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "voter_id", "voter_directory_id", "leader_id", "leader_epoch", "leader_endpoints")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter_id: int
    voter_directory_id: bytes
    leader_id: int
    leader_epoch: int
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    def __init__(self, cluster_id: _Optional[str] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ...) -> None: ...

class BeginQuorumEpochResponse(_message.Message):
    __slots__ = ("error_code", "leader_id", "leader_epoch", "leader_endpoints")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    leader_id: int
    leader_epoch: int
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    def __init__(self, error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ...) -> None: ...

class EndQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "leader_id", "leader_epoch", "preferred_candidates", "leader_endpoints")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader_id: int
    leader_epoch: int
    preferred_candidates: _containers.RepeatedCompositeFieldContainer[ReplicaKey]
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    def __init__(self, cluster_id: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., preferred_candidates: _Optional[_Iterable[_Union[ReplicaKey, _Mapping[str, object]]]] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ...) -> None: ...

class ReplicaKey(_message.Message):
    __slots__ = ("id", "directory_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    directory_id: bytes
    def __init__(self, id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class EndQuorumEpochResponse(_message.Message):
    __slots__ = ("error_code", "leader_id", "leader_epoch", "leader_endpoints")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    leader_id: int
    leader_epoch: int
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    def __init__(self, error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("cluster_id", "replica_id", "replica_directory_id", "current_leader_epoch", "fetch_offset", "last_fetched_epoch", "high_watermark", "bytes_max", "wait_ms_max", "standing")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica_id: int
    replica_directory_id: bytes
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    bytes_max: int
    wait_ms_max: int
    standing: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., current_leader_epoch: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_ms_max: _Optional[int] = ..., standing: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("error_code", "leader_id", "leader_epoch", "leader_endpoints", "high_watermark", "log_start_offset", "diverging_epoch", "snapshot_id", "records")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    leader_id: int
    leader_epoch: int
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    high_watermark: int
    log_start_offset: int
    diverging_epoch: OffsetAndEpoch
    snapshot_id: OffsetAndEpoch
    records: bytes
    def __init__(self, error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., diverging_epoch: _Optional[_Union[OffsetAndEpoch, _Mapping[str, object]]] = ..., snapshot_id: _Optional[_Union[OffsetAndEpoch, _Mapping[str, object]]] = ..., records: _Optional[bytes] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("cluster_id", "replica_id", "replica_directory_id", "current_leader_epoch", "snapshot_id", "position", "bytes_max")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica_id: int
    replica_directory_id: bytes
    current_leader_epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., current_leader_epoch: _Optional[int] = ..., snapshot_id: _Optional[_Union[OffsetAndEpoch, _Mapping[str, object]]] = ..., position: _Optional[int] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("error_code", "leader_id", "leader_epoch", "leader_endpoints", "snapshot_id", "size_bytes", "position", "unaligned_records")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    UNALIGNED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    leader_id: int
    leader_epoch: int
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    snapshot_id: OffsetAndEpoch
    size_bytes: int
    position: int
    unaligned_records: bytes
    def __init__(self, error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., snapshot_id: _Optional[_Union[OffsetAndEpoch, _Mapping[str, object]]] = ..., size_bytes: _Optional[int] = ..., position: _Optional[int] = ..., unaligned_records: _Optional[bytes] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "replica_id", "replica_directory_id", "endpoints", "kraft_version_min", "kraft_version_max", "ack_when_committed")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    ACK_WHEN_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica_id: int
    replica_directory_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    kraft_version_min: int
    kraft_version_max: int
    ack_when_committed: bool
    def __init__(self, cluster_id: _Optional[str] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., kraft_version_min: _Optional[int] = ..., kraft_version_max: _Optional[int] = ..., ack_when_committed: bool = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "replica_id", "replica_directory_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica_id: int
    replica_directory_id: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ...) -> None: ...

class UpdateVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "leader_epoch", "replica_id", "replica_directory_id", "endpoints", "kraft_version_min", "kraft_version_max")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader_epoch: int
    replica_id: int
    replica_directory_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    kraft_version_min: int
    kraft_version_max: int
    def __init__(self, cluster_id: _Optional[str] = ..., leader_epoch: _Optional[int] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., kraft_version_min: _Optional[int] = ..., kraft_version_max: _Optional[int] = ...) -> None: ...

class VoterChangeResponse(_message.Message):
    __slots__ = ("error_code", "leader_id", "leader_epoch", "leader_endpoints", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    leader_id: int
    leader_epoch: int
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., error_message: _Optional[str] = ...) -> None: ...

class DescribeReplicaRequest(_message.Message):
    __slots__ = ("cluster_id", "leader_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader_id: int
    def __init__(self, cluster_id: _Optional[str] = ..., leader_id: _Optional[int] = ...) -> None: ...

class DescribeReplicaResponse(_message.Message):
    __slots__ = ("error_code", "leader_id", "leader_epoch", "leader_endpoints", "replica_id", "replica_directory_id", "kraft_version_min", "kraft_version_max")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    leader_id: int
    leader_epoch: int
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    replica_id: int
    replica_directory_id: bytes
    kraft_version_min: int
    kraft_version_max: int
    def __init__(self, error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping[str, object]]]] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., kraft_version_min: _Optional[int] = ..., kraft_version_max: _Optional[int] = ...) -> None: ...
