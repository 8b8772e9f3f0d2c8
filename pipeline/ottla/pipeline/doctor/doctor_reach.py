"""Connects to every broker of a cluster from a Spark worker, for `ottla doctor`.

Not pure: it opens connections. A worker may be unable to reach an address that the driver reaches.
Clients may also be unable to reach the addresses that brokers advertise. Only a connection from a
worker tests both.
"""

import trio

from ottla.client.network.cluster import open_cluster
from ottla.model.errors import OttlaError, only_error
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.apis import METADATA

REACH_SECONDS_MAX = 20.0


def brokers_reached(bootstrap: str) -> tuple[int, list[str]]:
    """Return the number of brokers in the cluster, and an error message for each broker that does
    not respond.

    Returns 0 and one error message if no bootstrap address responds.
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
