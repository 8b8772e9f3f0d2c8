"""Discovery of the cluster id by a node whose directories are not formatted yet."""

import logging
from collections.abc import Sequence

import trio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.wrappers_pb2 import StringValue

from ottla.model.errors import ConfigError, RefusedError
from ottla.rpc.controller_client import VoterAddress
from ottla.rpc.method import MethodHandler, RpcMethod
from ottla.rpc.rpc_seam import Rpc, join_address

CLUSTER_ID = RpcMethod("/ottla.node.Node/ClusterId", Empty, StringValue)

ATTEMPT_TIMEOUT_MS = 1_000
RETRY_BACKOFF_MS_FIRST = 5
"""First delay in ms before a new node asks the voters for the cluster id again. It is short,
because a broker of `ottla up` starts together with its controller and may be ready first."""
RETRY_BACKOFF_MS_MAX = 50
"""Maximum delay in ms before a new node asks the voters for the cluster id again. With a smaller
delay, a starting controller is found sooner. With a larger delay, fewer requests are sent to an
absent controller."""

PATIENCE_MS = 5_000
"""Time in ms without a response from a voter after which a new node logs a warning. It is longer
than the usual startup of a cluster."""

REPEAT_MS = 60_000
"""Interval in ms at which the warning that no voter responds is repeated."""

VOTERS_KEY = "controller.quorum.voters"

_LOGGER = logging.getLogger(__name__)


def cluster_id_handler(cluster_id: str) -> MethodHandler[Empty, StringValue]:
    """Return the controller's handler of requests for the cluster id."""

    async def answer(_request: Empty) -> StringValue:
        return StringValue(value=cluster_id)

    return MethodHandler(CLUSTER_ID, answer)


async def cluster_id_of_quorum(
    runtime: Rpc, voters: Sequence[VoterAddress], *, timeout_ms: int | None = None
) -> str:
    """Return the cluster id from the first voter that responds. Logs a warning if no voter responds
    for `PATIENCE_MS`.

    Raises ConfigError after `timeout_ms`, with each voter's address and failure.
    """
    began = trio.current_time()
    complain_at = began + PATIENCE_MS / 1000
    backoff_ms = RETRY_BACKOFF_MS_FIRST
    while True:
        refusals = []
        for voter in voters:
            address = join_address(voter.host, voter.port)
            channel = await runtime.channel(address)
            try:
                found = await channel.call(CLUSTER_ID, Empty(), deadline_ms=ATTEMPT_TIMEOUT_MS)
            except RefusedError as refusal:
                refusals.append(f"{address} ({refusal.message})")
                continue
            return found.value
        now = trio.current_time()
        sentence = f"no controller answers: {', '.join(refusals)}; correct it, or start one"
        if timeout_ms is not None and now >= began + timeout_ms / 1000:
            raise ConfigError(VOTERS_KEY, sentence)
        if now >= complain_at:
            complain_at = now + REPEAT_MS / 1000
            _LOGGER.warning("%s: %s", VOTERS_KEY, sentence)
        await trio.sleep(backoff_ms / 1000)
        backoff_ms = min(2 * backoff_ms, RETRY_BACKOFF_MS_MAX)
