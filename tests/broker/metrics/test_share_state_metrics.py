"""Metrics of the share coordinator have the names of Kafka's MBeans."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.metrics.share_state_metrics import share_state_families
from ottla.broker.share_state.share_coordinator import ShareCoordinator
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.share_state import ShareStateConfig


def test_writes_loads_and_pruned_offsets_are_measured() -> None:
    clock = SimpleNamespace(now_ms=0, wall_ms=int)
    clock.monotonic_ms = lambda: clock.now_ms
    nothing: Any = SimpleNamespace()
    coordinator = ShareCoordinator(
        ShareStateConfig(), local_id=NodeId(1), table=nothing, purgatory=nothing, clock=clock
    )
    clock.now_ms = 2_000
    coordinator.writes.note(1_900, 1_960)
    coordinator.writes.note(1_980, 2_000)
    coordinator.pruned_ends = {7: Offset(41), 2: Offset(9)}
    found = {one.name: list(one.samples) for one in share_state_families(coordinator)}
    prefix = "kafka_server_share_coordinator_metrics"
    values = {name.removeprefix(prefix): samples for name, samples in found.items()}
    assert values == {
        "ottla_share_states": [((), 0)],
        "_write_total": [((), 2)],
        "_write_rate": [((), 1.0)],
        "_write_latency_max": [((), 60)],
        "_write_latency_avg": [((), 40.0)],
        "_partition_load_time_max": [((), 0)],
        "_partition_load_time_avg": [((), 0)],
        "_last_pruned_offset": [
            (("__share_group_state", "2"), 9),
            (("__share_group_state", "7"), 41),
        ],
    }
