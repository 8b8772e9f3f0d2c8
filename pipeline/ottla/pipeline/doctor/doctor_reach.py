"""Asks every broker of a cluster whether it answers from here: run in a Spark worker by the doctor.

An edge.  What a driver reaches a worker may not, and what bootstrap addresses lead to is what
brokers advertise: both are met only by connecting from where the work is done.
"""

import trio

from ottla.client.network.cluster import open_cluster
from ottla.model.errors import OttlaError, only_error
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.apis import METADATA

REACH_SECONDS_MAX = 20.0


def brokers_reached(bootstrap: str) -> tuple[int, list[str]]:
    """Return how many brokers there are, and what is wrong with those that do not answer.

    No brokers and one sentence where nobody answers at the bootstrap addresses.
    """
    try:
        return trio.run(_ask_all, bootstrap)
    except Exception as error:
        found = only_error(error)
        if not isinstance(found, OttlaError | trio.TooSlowError | ValueError):
            raise
        return 0, [str(found) or f"no answer in {REACH_SECONDS_MAX:.0f} s"]


async def _ask_all(bootstrap: str) -> tuple[int, list[str]]:
    problems: list[str] = []
    with trio.fail_after(REACH_SECONDS_MAX):
        async with open_cluster(parse_bootstrap(bootstrap), client_id="doctor") as cluster:
            answer = await cluster.metadata([])
            for broker in sorted(answer.brokers, key=lambda one: one.node_id):
                try:
                    await cluster.version_of(METADATA, NodeId(broker.node_id))
                except OttlaError as error:
                    problems.append(f"broker {broker.node_id}: {error}")
            return len(answer.brokers), problems
