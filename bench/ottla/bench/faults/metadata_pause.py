"""Measurement of the longest pause of metadata changes while the active controller is killed.

Several clients change settings of a topic one after the other, each change after the response to
the previous one.  One of them always has a request in flight when the controller dies; its broker
sends the request again to the next active controller.
"""

from itertools import pairwise

import trio

from ottla.bench.local_cluster import StartedCluster
from ottla.client.admin import Admin, open_admin
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import RefusedError

WRITERS = 4
CALM_S = 2.0
"""Duration in seconds of the load before the kill of the active controller and after it."""
AFTER_S = 6.0
SETTING = "retention.ms"
FIRST_VALUE = 1_000_000


class MetadataPause:
    """Times, in seconds, at which changes of metadata were acknowledged while the active controller
    was killed."""

    def __init__(self) -> None:
        self.acknowledged_s: list[float] = []
        self.failure_count = 0

    @property
    def longest_s(self) -> float:
        """Longest time between two acknowledged metadata changes, in seconds."""
        times = self.acknowledged_s
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


async def change(admin: Admin, topic: str, found: MetadataPause, writer: int) -> None:
    """Change a setting of a topic repeatedly, until cancelled. Adds the time of each response to
    `found`."""
    value = FIRST_VALUE * (writer + 1)
    while True:
        value += 1
        try:
            await admin.alter_topic_configs(topic, {SETTING: str(value)})
        except (RefusedError, ConnectionLostError):
            found.failure_count += 1
        else:
            found.acknowledged_s.append(trio.current_time())


def metadata_pause(cluster: StartedCluster, topic: str) -> MetadataPause:
    """Kill the active controller under a load of metadata changes, and return the times of the
    acknowledged changes."""
    active = cluster.active_controller()
    found = MetadataPause()

    async def body() -> None:
        async with open_admin(cluster.bootstrap) as admin, trio.open_nursery() as nursery:
            for writer in range(WRITERS):
                nursery.start_soon(change, admin, topic, found, writer)
            await trio.sleep(CALM_S)
            cluster.kill(f"controller {active}")
            await trio.sleep(AFTER_S)
            nursery.cancel_scope.cancel()

    trio.run(body)
    return found
