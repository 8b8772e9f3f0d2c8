"""Cost of a running compaction to a producer and a tailing consumer.

Phases alternate on one broker: without a compaction, and during the compaction of a log with many
records.  Three of ten keys of the log are still live.  The load is half of what the machine can
handle, including producer and consumer.  The cleaner runs with its usual niceness.
"""

import random
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from ottla.bench.kafka.compaction_wait import wait_until_compacted
from ottla.bench.kafka.paced_load import READ, PacedLoad
from ottla.bench.load import SILENCE_S, Load, Progress, library, make_topic
from ottla.bench.local_cluster import RunningCluster, StartedCluster, open_cluster_in
from ottla.bench.requests import RequestLatency
from ottla.model.errors import ErrorCode, RefusedError

STEADY = "ottla-bench-steady"
PROBE_RATE = 1_000_000
"""Rate in records per second that exceeds the capacity of any machine. It is used to find the rate
at which records can be read; the measured load is half of that rate."""

PROBE_S = 6.0

DIRTY_RECORDS = 2_000_000
DIRTY_VALUE = bytes(90)
SEGMENT_BYTES = 32 << 20
RECORDS_PER_KEY = 3.3
PHASE_S = 6.0
"""Length in seconds of a phase of the measurement without a compaction. A phase with a compaction
lasts as long as the compaction."""

SETTLE_S = 2.0
WITHOUT, WITH = "without", "with"


class CompactionPhase(NamedTuple):
    """Start and end of one phase of the measurement, with or without a running compaction."""

    began_at: float
    ended_at: float


def compaction(rounds: int, progress: Progress) -> dict[str, Any]:
    """Measure the p99 latency of a producer and of a tailing consumer, with and without a
    compaction. Returns the latencies in ms by name, and the number of records per second."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        path = Path(directory)
        with open_cluster_in(
            path, controllers=1, brokers=1, log_cleaner_backoff_ms="200"
        ) as cluster:
            make_topic(Load(bootstrap=cluster.bootstrap, topic=STEADY))
            cluster.wait_in_sync(STEADY)
            rate = _bearable_rate(cluster.bootstrap) // 2
            phases: dict[str, list[CompactionPhase]] = {WITHOUT: [], WITH: []}
            waited: dict[str, dict[str, list[list[RequestLatency]]]] = {}
            for number in range(rounds):
                _one_round(cluster, path, number, rate, phases, waited)
                progress(number + 1)
            return {"records_per_s": rate} | figures_of(phases, waited)


def _bearable_rate(bootstrap: str) -> int:
    """Return the number of records per second that a broker can handle: records that are both
    written and read while the producer is overloaded."""
    with PacedLoad(bootstrap, STEADY, PROBE_RATE) as load:
        time.sleep(SETTLE_S)
        began_at = time.perf_counter()
        time.sleep(PROBE_S)
        ended_at = time.perf_counter()
    read = [one for one in load.waited[READ] if began_at <= one.sent_at + one.seconds < ended_at]
    return int(len(read) * load.sample_every / PROBE_S)


def _one_round(
    cluster: StartedCluster,
    path: Path,
    number: int,
    rate: int,
    phases: dict[str, list[CompactionPhase]],
    waited: dict[str, dict[str, list[list[RequestLatency]]]],
) -> None:
    """Measure one phase with and one without a running compaction. Their order alternates between
    rounds."""
    dirty = f"ottla-bench-dirty-{number}"
    fill_dirty(cluster, dirty, DIRTY_RECORDS, SEGMENT_BYTES)
    with PacedLoad(cluster.bootstrap, STEADY, rate) as load:
        found: dict[str, CompactionPhase] = {}
        for kind in (WITHOUT, WITH) if number % 2 == 0 else (WITH, WITHOUT):
            time.sleep(SETTLE_S)
            found[kind] = _quiet() if kind == WITHOUT else _compacting(cluster, path, dirty)
    for kind, phase in found.items():
        phases[kind].append(phase)
        for what, all_waited in load.waited.items():
            seen = [one for one in all_waited if phase.began_at <= one.sent_at < phase.ended_at]
            waited.setdefault(kind, {}).setdefault(what, []).append(seen)


def figures_of(
    phases: dict[str, list[CompactionPhase]],
    waited: dict[str, dict[str, list[list[RequestLatency]]]],
) -> dict[str, Any]:
    """Return the medians of the measured values over the rounds, each round's value, and the ratios
    between phases with and without a compaction."""
    figures: dict[str, Any] = {}
    for kind, found in phases.items():
        seconds = [phase.ended_at - phase.began_at for phase in found]
        figures[f"phase_s_{kind}_median"] = round(median(seconds), 2)
        for what, each in waited[kind].items():
            p99s = [p99_ms(seen) for seen in each]
            figures[f"{what}_p99_ms_{kind}_median"] = round(median(p99s), 3)
            figures[f"{what}_p99_ms_{kind}_all"] = [round(value, 3) for value in p99s]
    for what in waited[WITH]:
        ratio = figures[f"{what}_p99_ms_with_median"] / figures[f"{what}_p99_ms_without_median"]
        figures[f"{what}_p99_with_to_without"] = round(ratio, 3)
    return figures


def p99_ms(waited: Iterable[RequestLatency]) -> float:
    """Return the 99th percentile, in ms, of latencies."""
    return 1e3 * quantiles([one.seconds for one in waited], n=100)[-1]


def _quiet() -> CompactionPhase:
    began_at = time.perf_counter()
    time.sleep(PHASE_S)
    return CompactionPhase(began_at, time.perf_counter())


def _compacting(cluster: StartedCluster, path: Path, topic: str) -> CompactionPhase:
    """Compact a topic on the broker. Returns the phase from the start of the compaction to its
    end."""
    compact(cluster.bootstrap, topic)
    began_at = time.perf_counter()
    wait_until_compacted(path, topic)
    return CompactionPhase(began_at, time.perf_counter())


def fill_dirty(cluster: RunningCluster, topic: str, count: int, segment_bytes: int) -> None:
    """Write a log of `count` records that can be compacted, except for its last segment, which
    remains active.

    Raises RefusedError if the broker does not accept the records.
    """
    confluent, admin = library("confluent_kafka"), _admin(cluster.bootstrap)
    config = {"cleanup.policy": "delete", "segment.bytes": str(segment_bytes), "retention.ms": "-1"}
    new = library("confluent_kafka.admin").NewTopic(topic, 1, config=config)
    for future in admin.create_topics([new]).values():
        future.result(timeout=SILENCE_S)
    cluster.wait_in_sync(topic)
    producer = confluent.Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "log_level": 3}
    )
    rng, key_count = random.Random(topic), int(count / RECORDS_PER_KEY)
    for _ in range(count):
        key = b"key-%09d" % rng.randrange(key_count)
        while True:
            try:
                producer.produce(topic, DIRTY_VALUE, key=key, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(SILENCE_S):
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"{topic} could not be filled")


def compact(bootstrap: str, topic: str) -> None:
    """Enable compaction of a topic, by the topic's setting `cleanup.policy`."""
    module = library("confluent_kafka.admin")
    entry = module.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=module.AlterConfigOpType.SET
    )
    resource = module.ConfigResource("topic", topic, incremental_configs=[entry])
    admin = _admin(bootstrap)  # The admin client must exist until its futures have completed.
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=SILENCE_S)


def _admin(bootstrap: str) -> Any:
    return library("confluent_kafka.admin").AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 3}
    )
