"""The producer-ids workload, performed with confluent-kafka: every operation opens a new idempotent
producer.

librdkafka requests an id as soon as a broker is connected, and exposes it in its statistics only.
"""

import json
from collections.abc import Callable, Mapping
from time import monotonic

from ottla.jepsen.clients.completions import DEADLINE_S, ok, unknown
from ottla.jepsen.clients.confluent import ConfluentClient, producer_settings
from ottla.jepsen.workloads.load import Completion, Op

LOOK_MS = 20
"""Interval of librdkafka's statistics in ms. With a shorter interval, the statistics would cost
more CPU time than the producer."""


class ConfluentProducerIdsClient(ConfluentClient):
    """Load client for one thread of the producer-ids workload, with confluent-kafka."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name."""
        return {"init": self._init}

    def _init(self, op: Op) -> Completion:
        found: list[tuple[int, int]] = []

        def on_statistics(text: str) -> None:
            state = json.loads(text).get("eos", {})
            if state.get("producer_id", -1) >= 0:
                found.append((state["producer_id"], state["producer_epoch"]))

        config = producer_settings(self.bootstrap, idempotent=True)
        config |= {"statistics.interval.ms": LOOK_MS, "stats_cb": on_statistics}
        producer = self.kafka.Producer(config)
        end = monotonic() + DEADLINE_S
        while not found and monotonic() < end:
            producer.poll(LOOK_MS / 1_000)
        return ok(list(found[0])) if found else unknown(op, f"no id in {DEADLINE_S:g} s")
