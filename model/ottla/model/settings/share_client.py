"""Settings of a share consumer: a member of a share group (KIP-932)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.model.settings.declare import check_fields, setting
from ottla.model.settings.field_names import suggests_fields
from ottla.model.settings.kafka_clients import config_from_kafka
from ottla.model.settings.metadata_recovery import RecoveringClient
from ottla.model.settings.security.client_security import LIBRDKAFKA_KEYS
from ottla.model.values import frozen

_OF_GROUP = "the broker decides; set {} of the group (kafka-configs, ottla config)"
NOT_FOR_SHARE_GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "auto.offset.reset": _OF_GROUP.format("share.auto.offset.reset"),
        "isolation.level": _OF_GROUP.format("share.isolation.level"),
        "session.timeout.ms": _OF_GROUP.format("share.session.timeout.ms"),
        "heartbeat.interval.ms": _OF_GROUP.format("share.heartbeat.interval.ms"),
        "enable.auto.commit": "records are accepted, released or rejected; there are no offsets "
        "to commit",
        "auto.commit.interval.ms": "records are accepted, released or rejected; there are no "
        "offsets to commit",
        "group.instance.id": "a share group has no static members",
        "group.protocol": "a share consumer has one protocol",
        "group.remote.assignor": "the broker decides; set group.share.assignors of the brokers",
        "partition.assignment.strategy": "the broker assigns; a share group needs no strategy",
        "max.poll.interval.ms": "a member of a share group may process for any time; the record "
        "lock bounds it (share.record.lock.duration.ms of the group)",
        "max.partition.fetch.bytes": "the broker divides fetch.max.bytes among partitions",
        "interceptor.classes": "wrap the handler instead",
    }
)
"""Keys of Kafka's consumer settings that a share consumer refuses, each with the reason."""


@suggests_fields
@frozen(kw_only=True)
class ShareConsumerConfig(RecoveringClient):
    """Settings of a share consumer: group, fetches, acknowledgements, timeouts."""

    group_id: str = setting(
        "",
        key="group.id",
        doc="Id of the share group. Required: its members share the records of the topics.",
    )
    client_rack: str = setting(
        "",
        key="client.rack",
        doc="Rack of this consumer, which the coordinator receives.",
    )
    share_acknowledgement_mode: str = setting(
        "explicit",
        key="share.acknowledgement.mode",
        one_of=("explicit", "implicit"),
        doc="Meaning of the next poll, or step of the iterator, for records that the application "
        "has not settled: an error (explicit), or they are accepted (implicit, Kafka's default). "
        "It has no effect on work().",
    )
    share_acquire_mode: str = setting(
        "record_limit",
        key="share.acquire.mode",
        one_of=("record_limit", "batch_optimized"),
        doc="Records that the broker locks for a fetch: no more than requested (record_limit), or "
        "whole batches of the producer (batch_optimized, Kafka's default), which costs the broker "
        "less and keeps many records from other consumers.",
    )
    poll_records_max: int = setting(
        500,
        key="max.poll.records",
        at_least=1,
        doc="Maximum number of records that one poll returns, and that a fetch requests.",
    )
    check_crcs: bool = setting(
        True, key="check.crcs", doc="Whether the checksum of every batch is verified."
    )
    fetch_bytes_min: int = setting(
        1,
        key="fetch.min.bytes",
        at_least=0,
        doc="Minimum number of bytes for which a broker responds to a fetch before "
        "fetch.max.wait.ms.",
    )
    fetch_wait_ms_max: int = setting(
        500,
        key="fetch.max.wait.ms",
        at_least=0,
        doc="Maximum time that a broker delays the response to a fetch. Acknowledgements that are "
        "made meanwhile wait for it.",
    )
    fetch_bytes_max: int = setting(
        50 * MIB,
        key="fetch.max.bytes",
        at_least=1,
        doc="Size of the largest fetch response of one broker.",
    )
    request_timeout_ms: int = setting(
        30_000,
        key="request.timeout.ms",
        at_least=1,
        doc="Time without a response after which the connection of a request counts as lost.",
    )
    retry_backoff_ms: int = setting(
        100, key="retry.backoff.ms", at_least=0, doc="Delay before a failed request is retried."
    )
    metadata_age_ms_max: int = setting(
        300_000,
        key="metadata.max.age.ms",
        at_least=1,
        doc="Age at which topic metadata is refreshed even if there was no error.",
    )
    client_id: str = setting(
        "ottla", key="client.id", doc="Name of this client in requests to brokers."
    )

    enable_metrics_push: bool = setting(
        True,
        key="enable.metrics.push",
        doc="Whether the client's own metrics are pushed to the cluster, if it requests them "
        "(KIP-714).",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.group_id:
            raise ConfigError("group.id", "is missing; give the id of the share group")

    @classmethod
    def from_kafka(cls, settings: Mapping[str, object]) -> Self:
        """Return the configuration for a dict with the keys of Kafka's Java clients or librdkafka.

        Follows the rules of `ClientSecurity.from_kafka`. Consumer settings that share groups do not
        have raise ConfigError with the reason.
        """
        refused = [
            f"{key} is not for share groups: {NOT_FOR_SHARE_GROUPS[key]}"
            for key in settings
            if key in NOT_FOR_SHARE_GROUPS
        ]
        if refused:
            raise ConfigError("settings", "; ".join(refused))
        return config_from_kafka(cls, settings, LIBRDKAFKA_KEYS)
