"""The cost of a compaction for its neighbours is the ratio of medians over the rounds."""

from ottla.bench.kafka.compaction_beside import WITH, WITHOUT, CompactionPhase, figures_of
from ottla.bench.kafka.paced_load import ACKNOWLEDGED, READ
from ottla.bench.requests import RequestLatency


def seen(ms: float) -> list[RequestLatency]:
    """Return the latencies of one phase: 1 ms for all but two in two hundred."""
    return [RequestLatency(0.0, 0.001)] * 198 + [RequestLatency(0.0, ms / 1_000)] * 2


def test_a_ratio_is_that_of_medians_and_every_round_is_reported() -> None:
    phases = {
        WITHOUT: [CompactionPhase(0, 6)] * 3,
        WITH: [CompactionPhase(0, 3), CompactionPhase(0, 4), CompactionPhase(0, 9)],
    }
    waited = {
        WITHOUT: {ACKNOWLEDGED: [seen(10), seen(20), seen(90)], READ: [seen(5)] * 3},
        WITH: {ACKNOWLEDGED: [seen(22), seen(11), seen(500)], READ: [seen(6)] * 3},
    }

    figures = figures_of(phases, waited)

    assert figures["phase_s_without_median"] == 6
    assert figures["phase_s_with_median"] == 4
    assert len(figures["acknowledged_p99_ms_with_all"]) == 3
    assert figures["acknowledged_p99_ms_without_median"] > 19
    assert 1.09 < figures["acknowledged_p99_with_to_without"] < 1.11
    assert 1.19 < figures["read_p99_with_to_without"] < 1.21
