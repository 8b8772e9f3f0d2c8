"""What a member of the quorum knows of it, under Kafka's names (`raft-metrics`).  Pure."""

from collections.abc import Iterator

from ottla.model.ids import NO_NODE
from ottla.node.quorum_driver import QuorumMember
from ottla.node.quorum_meter import QuorumMeter
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterCheckpoint, VoterVerdict
from ottla.telemetry.instruments import Family, MetricKind
from ottla.telemetry.kafka_names import prometheus_name


def quorum_families(member: QuorumMember, now_ms: int) -> Iterator[Family]:
    """Yield who leads in which epoch, what part this node has, how far its log is, how fast."""
    leader_id = member.leader_id
    voted_id = member.voted_id
    yield _gauge("current-leader", "The quorum's leader; -1 when it is not known.", leader_id)
    yield _gauge("current-vote", "Whom this node voted for; -1 for nobody.", voted_id)
    yield _gauge("current-epoch", "The quorum's epoch.", member.epoch)
    yield _gauge(
        "high-watermark", "The end of what is known to be committed.", member.high_watermark
    )
    yield _gauge("log-end-offset", "The end of the metadata log.", member.end_offset)
    yield _gauge("number-of-voters", "Controllers with a vote.", len(member.identity.voters))
    yield Family(
        prometheus_name("kafka.server:type=raft-metrics,attribute=current-state") + "_info",
        MetricKind.GAUGE,
        "1 for the role that this node has in the quorum.",
        ("state",),
        (((member.role_name,), 1),),
    )
    yield from _work_families(member.meter, now_ms)


def _work_families(meter: QuorumMeter, now_ms: int) -> Iterator[Family]:
    """Yield how fast the quorum works, of the last minute at most."""
    commits, elections = meter.commits_ms, meter.elections_ms
    for attribute, text, value in (
        (
            "commit-latency-avg",
            "Milliseconds from a leader's append to its commit, lately.",
            commits.average(now_ms),
        ),
        ("commit-latency-max", "The longest of these.", commits.maximum(now_ms)),
        (
            "election-latency-avg",
            "Milliseconds from standing for election until a leader was known, lately.",
            elections.average(now_ms),
        ),
        ("election-latency-max", "The longest of these.", elections.maximum(now_ms)),
        (
            "append-records-rate",
            "Records a second that this node appended as the leader, lately.",
            meter.appended_records.per_second(now_ms),
        ),
        (
            "fetch-records-rate",
            "Records a second that this node fetched from the leader, lately.",
            meter.fetched_records.per_second(now_ms),
        ),
    ):
        yield _gauge(attribute, text, value)


def voter_families(standing: Standing, found: VoterVerdict | None) -> Iterator[Family]:
    """Yield whether this controller may vote, and what its files proved at its start."""
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
            "Promises that this controller could not keep by its files when it started.",
            0 if found is None else len(found.damages),
        ),
        (
            "start_repairs",
            "Damaged files that its other files made good when it started.",
            0 if found is None else len(found.repairs),
        ),
        (
            "start_lost_entries",
            "Entries of the metadata log that it had acknowledged and lacked when it started.",
            lost_count,
        ),
    ):
        yield Family(f"ottla_controller_{name}", MetricKind.GAUGE, text, (), (((), value),))


def metadata_families(member: QuorumMember) -> Iterator[Family]:
    """Yield how far this broker has the metadata in force."""
    provenance = member.image.provenance
    bean = "kafka.server:type=broker-metadata-metrics,attribute="
    for attribute, text, value in (
        (
            "last-applied-record-offset",
            "The last record of the metadata log that is in force here.",
            member.applied_end_offset - 1,
        ),
        (
            "last-applied-record-timestamp",
            "When it was written, in milliseconds since 1970.",
            provenance.timestamp_ms,
        ),
    ):
        yield Family(prometheus_name(bean + attribute), MetricKind.GAUGE, text, (), (((), value),))


def _gauge(attribute: str, text: str, value: float | None) -> Family:
    name = prometheus_name(f"kafka.server:type=raft-metrics,attribute={attribute}")
    return Family(name, MetricKind.GAUGE, text, (), (((), NO_NODE if value is None else value),))
