"""Metrics of the quorum from the view of one member, with Kafka's names (`raft-metrics`).  Pure."""

from collections.abc import Iterator

from ottla.metadata.features import METADATA_VERSION, OFFERED
from ottla.model.ids import NO_NODE
from ottla.node.quorum.quorum_driver import QuorumMember
from ottla.node.quorum.quorum_meter import QuorumMeter
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterCheckpoint, VoterVerdict
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import gauge, gauges
from ottla.telemetry.metrics.kafka_names import prometheus_name


def quorum_families(member: QuorumMember, now_ms: int) -> Iterator[Family]:
    """Yield metrics of the quorum: its leader and epoch, this node's role, the offsets of its log,
    and its rates."""
    leader_id = member.leader_id
    voted_id = member.voted_id
    yield _gauge("current-leader", "Id of the quorum's leader; -1 if it is unknown.", leader_id)
    yield _gauge("current-vote", "Id of the voter that this node voted for; -1 for none.", voted_id)
    yield _gauge("current-epoch", "The quorum's epoch.", member.epoch)
    yield _gauge("high-watermark", "End offset of the committed records.", member.high_watermark)
    yield _gauge("log-end-offset", "End offset of the metadata log.", member.end_offset)
    yield _gauge(
        "number-of-voters", "Number of controllers with a vote.", len(member.identity.voters)
    )
    yield Family(
        prometheus_name("kafka.server:type=raft-metrics,attribute=current-state") + "_info",
        MetricKind.GAUGE,
        "1 for the role that this node has in the quorum.",
        ("state",),
        (((member.role_name,), 1),),
    )
    yield from _work_families(member.meter, now_ms)
    yield from _feature_families(member)


def _feature_families(member: QuorumMember) -> Iterator[Family]:
    """Yield metrics of the finalized feature levels, the levels that this node supports, and the
    active controller."""
    levels = member.image.features
    loader = "kafka.server:type=MetadataLoader,name="
    yield gauge(
        f"{loader}CurrentMetadataVersion",
        "Finalized level of metadata.version.",
        levels.get(METADATA_VERSION, 0),
    )
    leader_id = member.leader_id
    yield gauge(
        f"{loader}CurrentControllerId",
        "Id of the active controller; -1 if it is unknown.",
        NO_NODE if leader_id is None else leader_id,
    )
    yield gauges(
        f"{loader}FinalizedLevel",
        "Finalized level of a feature.",
        ("featureName",),
        [((_camel_case(name),), level) for name, level in levels.items()],
    )
    for index, attribute in enumerate(("minimum-supported-level", "maximum-supported-level")):
        yield gauges(
            f"kafka.server:type=node-metrics,attribute={attribute}",
            f"{attribute.partition('-')[0].capitalize()} level of a feature that this node "
            "supports.",
            ("feature_name",),
            [((name.replace(".", "-"),), found[index]) for name, found in OFFERED.items()],
        )


def _camel_case(feature: str) -> str:
    """Return the name of a feature in the form that Kafka's metrics use, such as metadataVersion
    for metadata.version."""
    first, *others = feature.split(".")
    return first + "".join(map(str.capitalize, others))


def _work_families(meter: QuorumMeter, now_ms: int) -> Iterator[Family]:
    """Yield metrics of the rates and latencies of the quorum in the last minute."""
    commits, elections = meter.commits_ms, meter.elections_ms
    for attribute, text, value in (
        (
            "commit-latency-avg",
            "Average of the milliseconds from a leader's append to its commit, lately.",
            commits.average(now_ms),
        ),
        ("commit-latency-max", "Maximum of these.", commits.maximum(now_ms)),
        (
            "election-latency-avg",
            "Average of the milliseconds from a candidacy until a leader was known, lately.",
            elections.average(now_ms),
        ),
        ("election-latency-max", "Maximum of these.", elections.maximum(now_ms)),
        (
            "append-records-rate",
            "Records per second that this node appended as the leader, lately.",
            meter.appended_records.per_second(now_ms),
        ),
        (
            "fetch-records-rate",
            "Records per second that this node fetched from the leader, lately.",
            meter.fetched_records.per_second(now_ms),
        ),
    ):
        yield _gauge(attribute, text, value)


def voter_families(standing: Standing, found: VoterVerdict | None) -> Iterator[Family]:
    """Yield metrics that show whether this controller may vote, and whether its files were complete
    at its start."""
    checkpoint = VoterCheckpoint() if found is None else found.checkpoint
    lost_count = max(0, checkpoint.promised_end - checkpoint.flushed.offset)
    for name, text, value in (
        (
            "standing",
            "0 for a controller that votes; 1 for one that lost metadata which it had acknowledged,"
            " and follows until it has caught up; 2 for one that lost its vote, too.",
            standing.value,
        ),
        (
            "start_damages",
            "Losses that this controller found in its files when it started.",
            0 if found is None else len(found.damages),
        ),
        (
            "start_repairs",
            "Damaged files that were repaired from its other files when it started.",
            0 if found is None else len(found.repairs),
        ),
        (
            "start_lost_entries",
            "Acknowledged records of the metadata log that were missing when it started.",
            lost_count,
        ),
    ):
        yield Family(f"ottla_controller_{name}", MetricKind.GAUGE, text, (), (((), value),))


def metadata_families(member: QuorumMember, wall_ms: int) -> Iterator[Family]:
    """Yield metrics of the offset, timestamp and age of the last metadata record that this broker
    has applied."""
    provenance = member.image.provenance
    bean = "kafka.server:type=broker-metadata-metrics,attribute="
    for attribute, text, value in (
        (
            "last-applied-record-offset",
            "Offset of the last metadata record that this broker has applied.",
            member.applied_end_offset - 1,
        ),
        (
            "last-applied-record-timestamp",
            "Timestamp of that record, in milliseconds since 1970.",
            provenance.timestamp_ms,
        ),
        (
            "last-applied-record-lag-ms",
            "Age of that record, in milliseconds.",
            max(0, wall_ms - provenance.timestamp_ms) if provenance.timestamp_ms >= 0 else 0,
        ),
    ):
        yield Family(prometheus_name(bean + attribute), MetricKind.GAUGE, text, (), (((), value),))


def _gauge(attribute: str, text: str, value: float | None) -> Family:
    name = prometheus_name(f"kafka.server:type=raft-metrics,attribute={attribute}")
    return Family(name, MetricKind.GAUGE, text, (), (((), NO_NODE if value is None else value),))
