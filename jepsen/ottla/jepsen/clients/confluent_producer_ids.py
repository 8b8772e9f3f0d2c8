"""The producer-ids workload by confluent-kafka: every operation is a new idempotent producer.

librdkafka takes an id as soon as a broker is there, and tells it in its statistics alone.
"""

import json
from collections.abc import Callable, Mapping
from time import monotonic

from ottla.jepsen.clients.completions import DEADLINE_S, ok, unknown
from ottla.jepsen.clients.confluent import ConfluentClient, producer_settings
from ottla.jepsen.workloads.load import Completion, Op

LOOK_MS = 20
"""How often the statistics come: more often costs more than the producer."""


class ConfluentProducerIdsClient(ConfluentClient):
    """One thread of the producer-ids workload."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Return how each operation is done, by `f`."""
        return {"init": self._init}

    def _init(self, op: Op) -> Completion:
        found: list[tuple[int, int]] = []

        def on_statistics(text: str) -> None:
            told = json.loads(text).get("eos", {})
            if told.get("producer_id", -1) >= 0:
                found.append((told["producer_id"], told["producer_epoch"]))

        config = producer_settings(self.bootstrap, idempotent=True)
        config |= {"statistics.interval.ms": LOOK_MS, "stats_cb": on_statistics}
        producer = self.kafka.Producer(config)
        end = monotonic() + DEADLINE_S
        while not found and monotonic() < end:
            producer.poll(LOOK_MS / 1_000)
        return ok(list(found[0])) if found else unknown(op, f"no id in {DEADLINE_S:g} s")
