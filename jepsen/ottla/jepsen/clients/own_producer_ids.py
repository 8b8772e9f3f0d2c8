"""The producer-ids workload, performed with Ottla's own client. Each thread sends its first request
to a different broker."""

from collections.abc import Awaitable, Callable, Mapping

import trio

from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import Cluster, open_cluster, raise_for
from ottla.jepsen.clients.completions import ok
from ottla.jepsen.clients.own import OwnClient
from ottla.jepsen.clients.own_sending import REQUEST_TIMEOUT_MS
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.workloads.load import Completion, LoadPlan, Note, Op
from ottla.model.limits import INT32_MAX
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse


def beginning_elsewhere(bootstrap: str, turn: int) -> list[tuple[str, int]]:
    """Rotate a list of bootstrap addresses, so that the address at index `turn` comes first."""
    addresses = list(addresses_of(bootstrap))
    first = turn % len(addresses)
    return addresses[first:] + addresses[:first]


class OwnProducerIdsClient(OwnClient):
    """Load client for one thread of the producer-ids workload, with Ottla's own client."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note, plan: LoadPlan
    ) -> None:
        super().__init__(nursery, bootstrap, thread, note)
        self._turn = thread
        self._cluster: Renewable[Cluster] = Renewable(
            nursery,
            lambda: open_cluster(
                beginning_elsewhere(bootstrap, self._turn),
                client_id="jepsen",
                request_timeout_s=REQUEST_TIMEOUT_MS / 1_000,
            ),
        )
        self.parts = [self._cluster]

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""
        return {"init": self._init}

    def on_crash(self) -> None:
        """Choose another broker for the first request, after a crash of this client."""
        self._turn += 1

    async def _init(self, op: Op) -> Completion:
        cluster = await self._cluster.get()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)
        answer = await cluster.request(request, InitProducerIdResponse)
        raise_for(answer.error_code)
        return ok([answer.producer_id, answer.producer_epoch])
