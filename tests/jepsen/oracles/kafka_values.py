"""Values of request fields, chosen by field name: existing names, invented ones, extremes."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from ottla.model.ids import ZERO_UUID
from ottla.model.seams import Rng
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.codec import encode
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.schema import Field, StructSchema

RECORD_MS = 1_700_000_000_000
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UINT16_MAX = (1 << 16) - 1
TEXT_LENGTH_MAX = 32_000
"""Versions that are not flexible carry text up to 32 KiB."""

SUBSCRIPTION_VERSION = b"\0\0"
SUBSCRIBED_TOPICS_MAX = 200
METRICS = b"\n\x0b\x12\x09\x12\x07\n\x05a.sum"
"""An OTLP MetricsData with one metric, a.sum, that has no points."""

HOSTILE_TEXTS = (
    "",
    "a",
    ".",
    "..",
    "9" * 5_000,
    "x" * 249,
    "x" * 300,
    "y" * TEXT_LENGTH_MAX,
    "\u00fc\u20ac\U0001f600" * 100,
    "\x1b[31m\r\n\0",
    "a{99999999999999999999}",
    "(a*)*" * 100 + "b",
    "(.*a){20}",
    "(?=(a+)+)b",
    "__consumer_offsets",
    "__transaction_state",
    "-1",
)
CONFIG_KEYS = (
    "retention.ms",
    "cleanup.policy",
    "segment.bytes",
    "max.message.bytes",
    "min.insync.replicas",
    "interval.ms",
    "metrics",
    "match",
    "consumer.session.timeout.ms",
)
RESOURCE_TYPES = {2: "topics", 4: "brokers", 8: "brokers", 16: "subscriptions", 32: "groups"}
"""Kafka's numbers of the resource types with settings, and the names used for each."""

_TOPIC_TEXTS = frozenset(("topic", "topic_name", "topic_names", "subscribed_topic_names"))
_GROUP_TEXTS = frozenset(
    ("group_id", "groups", "group_ids", "groups_names", "key", "coordinator_keys")
)
_PARTITIONS = frozenset(
    ("partition", "partition_index", "partition_indexes", "partitions", "index", "partition_id")
)
_NODES = frozenset(("broker_ids", "replicas", "broker_id", "node_id", "preferred_successors"))
_TEXTS = {
    "protocol_type": "consumer",
    "protocol_name": "range",
    "subscribed_topic_regex": "topic-.*(1|2|3)",
    "server_assignor": "uniform",
    "client_software_name": "oracle",
    "client_software_version": "1",
    "rack_id": "",
    "mechanism": "PLAIN",
    "feature": "metadata.version",
    "value": "1",
}
_NUMBERS = {
    "acks": (-1, 0, 1),
    "timeout_ms": (5,),
    "max_wait_ms": (5,),
    "min_bytes": (1,),
    "max_bytes": (1 << 20,),
    "partition_max_bytes": (1 << 20,),
    "session_id": (0,),
    "session_epoch": (0, -1),
    "fetch_offset": (0, 1),
    "timestamp": (-1, -2, 0, -3),
    "offset": (0, -1),
    "committed_offset": (0, 1_000),
    "num_partitions": (1, 10),
    "count": (2, 10_000),
    "replication_factor": (1,),
    "session_timeout_ms": (10_000,),
    "rebalance_timeout_ms": (10_000,),
    "rebalance_timeout": (10_000,),
    "generation_id": (-1, 1),
    "generation_id_or_member_epoch": (-1,),
    "member_epoch": (0, 1, -1),
    "replica_id": (-1,),
    "replica_epoch": (-1,),
    "current_leader_epoch": (-1,),
    "leader_epoch": (0,),
    "last_fetched_epoch": (-1,),
    "log_start_offset": (-1,),
    "key_type": (0,),
    "election_type": (0, 1),
    "response_partition_limit": (2_000,),
    "resource_types": (2, 4, 8, 16, 32),
    "limit": (500,),
    "cursor": (-1,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingTopic:
    """One topic that exists in the cluster."""

    name: str
    id: UUID
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNames:
    """Existing objects of the cluster that gets the requests."""

    topics: Sequence[ExistingTopic]
    groups: Sequence[str]
    members: Sequence[str] = ("member-1",)
    brokers: Sequence[int] = (1,)
    log_dirs: Sequence[str] = ("/data",)
    subscriptions: Sequence[str] = ("all",)
    """Names of the subscriptions to clients' metrics."""

    def of_resource(self, resource_type: int) -> Sequence[str]:
        """Return the names of the resources of one type."""
        match RESOURCE_TYPES.get(resource_type):
            case "groups":
                return self.groups
            case "brokers":
                return [str(broker) for broker in self.brokers]
            case "subscriptions":
                return self.subscriptions
        return [topic.name for topic in self.topics]


class Values:
    """Chooses the values of scalar fields: usual ones, of the `serial`-th existing object.

    A serial above the existing count names an invented object; so does every serial if
    `is_invented`.
    """

    def __init__(
        self, names: ClusterNames, rng: Rng, *, is_invented: bool, resource_type: int
    ) -> None:
        self._names = names
        self._topic_names = [topic.name for topic in names.topics]
        self._rng = rng
        self._is_invented = is_invented
        self._resource_type = resource_type
        self._batch = build_batch([RecordToBuild(RECORD_MS, b"key", b"value")])
        self._subscription = SUBSCRIPTION_VERSION + encode(
            ConsumerProtocolSubscription(
                topics=[topic.name for topic in names.topics[:SUBSCRIBED_TOPICS_MAX]]
            ),
            0,
        )

    def of(self, field: Field, struct: StructSchema, serial: int) -> object:
        """Return a value of one field of one struct."""
        if field.type == "bool":
            return field.name in ("validate_only", "include_synonyms") or serial % 2 == 0
        if field.type == "float64":
            return 0.5
        if field.type == "uuid":
            return self._uuid(field, serial)
        if field.type.startswith("string"):
            return self._text(field, struct, serial)
        if field.type in ("bytes", "records"):
            return self._bytes(field)
        return self._number(field, serial)

    def _uuid(self, field: Field, serial: int) -> UUID:
        topics = self._names.topics
        if field.name != "topic_id":
            return UUID(int=(1 << 120) + serial)
        if self._is_invented or serial >= len(topics):
            return UUID(int=(1 << 121) + serial)
        return topics[serial].id

    def _text(self, field: Field, struct: StructSchema, serial: int) -> str:
        name = field.name
        is_config = "Config" in struct.name and name in ("name", "configuration_keys")
        if is_config:
            return _named(CONFIG_KEYS, "no.such.key-", serial, is_invented=self._is_invented)
        if name == "resource_name":
            known = self._names.of_resource(self._resource_type)
        elif name in _TOPIC_TEXTS or (name in ("name", "topics") and "rotocol" not in struct.name):
            known = [] if self._is_invented else self._topic_names
        elif name in _GROUP_TEXTS:
            known = self._names.groups
        elif name in ("member_id", "group_instance_id"):
            known = self._names.members if name == "member_id" else ()
        elif name == "path":
            known = self._names.log_dirs
        else:
            return _TEXTS.get(name, f"{name}-{serial}")
        return _named(known, f"no-{name}-", serial, is_invented=self._is_invented)

    def _bytes(self, field: Field) -> bytes:
        if field.type == "records":
            return self._batch
        return {"metadata": self._subscription, "metrics": METRICS}.get(field.name, b"bytes")

    def _number(self, field: Field, serial: int) -> int:
        name = field.name
        if name == "resource_type":
            return self._resource_type
        if name in _PARTITIONS:
            return serial if self._is_invented else serial % 10
        if name in _NODES:
            brokers = self._names.brokers
            return brokers[serial] if serial < len(brokers) else 1_000 + serial
        usual = _NUMBERS.get(name, (0, 1))
        return usual[self._rng.below(len(usual))] if serial == 0 else usual[serial % len(usual)]


def extreme(field: Field, rng: Rng) -> object:
    """Return a value of one field that no honest client would send."""
    if field.type == "bool":
        return rng.below(2) == 1
    if field.type == "float64":
        return (float("inf"), float("nan"), -0.0, 1e300)[rng.below(4)]
    if field.type == "uuid":
        return ZERO_UUID if rng.below(2) else rng.uuid()
    if field.type.startswith("string"):
        return HOSTILE_TEXTS[rng.below(len(HOSTILE_TEXTS))]
    if field.type in ("bytes", "records"):
        return bytes(rng.below(256) for _ in range((0, 1, 61, 400)[rng.below(4)]))
    if field.type == "uint16":
        return (0, UINT16_MAX)[rng.below(2)]
    half = 1 << (BITS[field.type] - 1)
    return (-half, -2, -1, 0, 1, half - 2, half - 1)[rng.below(7)]


def longest(field: Field) -> object | None:
    """Return the longest value of a text or of bytes, None for other fields."""
    if field.type.startswith("string"):
        return "z" * TEXT_LENGTH_MAX
    return b"\xff" * TEXT_LENGTH_MAX if field.type in ("bytes", "records") else None


def _named(known: Sequence[str], prefix: str, serial: int, *, is_invented: bool) -> str:
    if is_invented or serial >= len(known):
        return f"{prefix}{serial}"
    return known[serial]
