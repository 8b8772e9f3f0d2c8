from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GAUGE: _ClassVar[Kind]
    SUM: _ClassVar[Kind]
    HISTOGRAM: _ClassVar[Kind]
GAUGE: Kind
SUM: Kind
HISTOGRAM: Kind

class ClientMetricsRecord(_message.Message):
    __slots__ = ("client", "received_ms", "points")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    client: Client
    received_ms: int
    points: _containers.RepeatedCompositeFieldContainer[Point]
    def __init__(self, client: _Optional[_Union[Client, _Mapping[str, object]]] = ..., received_ms: _Optional[int] = ..., points: _Optional[_Iterable[_Union[Point, _Mapping[str, object]]]] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("client_instance_id", "client_id", "principal", "software_name", "software_version", "source_address", "broker_id")
    CLIENT_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_NAME_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    client_instance_id: bytes
    client_id: str
    principal: str
    software_name: str
    software_version: str
    source_address: str
    broker_id: int
    def __init__(self, client_instance_id: _Optional[bytes] = ..., client_id: _Optional[str] = ..., principal: _Optional[str] = ..., software_name: _Optional[str] = ..., software_version: _Optional[str] = ..., source_address: _Optional[str] = ..., broker_id: _Optional[int] = ...) -> None: ...

class Point(_message.Message):
    __slots__ = ("name", "unit", "kind", "is_delta", "is_monotonic", "attributes", "start_ns", "end_ns", "int_value", "double_value", "histogram_value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    IS_DELTA_FIELD_NUMBER: _ClassVar[int]
    IS_MONOTONIC_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    unit: str
    kind: Kind
    is_delta: bool
    is_monotonic: bool
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    start_ns: int
    end_ns: int
    int_value: int
    double_value: float
    histogram_value: Histogram
    def __init__(self, name: _Optional[str] = ..., unit: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., is_delta: bool = ..., is_monotonic: bool = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping[str, object]]]] = ..., start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., int_value: _Optional[int] = ..., double_value: _Optional[float] = ..., histogram_value: _Optional[_Union[Histogram, _Mapping[str, object]]] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("count", "sum", "bounds", "counts")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    count: int
    sum: float
    bounds: _containers.RepeatedScalarFieldContainer[float]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, count: _Optional[int] = ..., sum: _Optional[float] = ..., bounds: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...
