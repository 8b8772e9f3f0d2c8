"""Writes the objects in the store that belong to the cluster and not to a segment. This module
writes the heartbeat, and `groups/offsets` writes the committed offsets of groups.

`ottla tier restore` reads these objects. A failed write is logged and repeated, and delays nothing
else.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Collection

import trio

from ottla.broker.tier.tier_figures import TierFigures
from ottla.metadata.image import MetadataImage
from ottla.model.errors import OttlaError
from ottla.model.ids import NodeId
from ottla.model.seams import Clock
from ottla.node.part_registry import PartRegistry
from ottla.storage.tier.object_names import heartbeat_key
from ottla.storage.tier.store_seam import ObjectStore

logger = logging.getLogger("ottla.broker.tier")

HEARTBEAT_S = 60.0
"""Seconds between two heartbeats of a cluster. With a larger value, a restore needs longer to see
that the cluster has stopped. With a smaller value, the requests cost more."""
LOOK_S = 5.0
"""Seconds until a broker checks again whether it must write the heartbeat."""
WRITE_TIMEOUT_S = 60.0
"""Timeout in seconds of the upload of one object. It is repeated one interval after a failure."""


class ClusterObjects:
    """The objects of the cluster in its store, and the background task that writes its
    heartbeat."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        cluster_id: str,
        node_id: NodeId,
        require_usable: Callable[[], Awaitable[None]],
        image: Callable[[], MetadataImage],
        clock: Clock,
        figures: TierFigures,
    ) -> None:
        """Create the writer of the cluster's objects. `require_usable` raises StoreError while the
        store fails."""
        self.store = store
        self.cluster_id = cluster_id
        self._node_id = node_id
        self._require_usable = require_usable
        self._image = image
        self._clock = clock
        self._figures = figures

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that writes the cluster's heartbeat."""
        parts.task("heartbeat in the object store", self.run_heartbeat)

    async def run_heartbeat(self) -> None:
        """Write the cluster's heartbeat at an interval, until cancelled. The broker with the lowest
        id writes it."""
        while True:
            is_first = self._is_first()
            if is_first:
                await self.guarded("heartbeats", self._node_id, self.write_heartbeat)
            else:
                self.end_failures_except("heartbeats", ())
            await trio.sleep(HEARTBEAT_S if is_first else LOOK_S)

    def _is_first(self) -> bool:
        image = self._image()
        serving = [node for node in image.brokers if image.is_active(node)]
        return bool(serving) and min(serving) == self._node_id

    async def write_heartbeat(self) -> None:
        """Write the cluster's heartbeat to the object store. Readers compute the heartbeat's age by
        the store's clock."""
        values = {"format": 1, "broker_id": self._node_id, "written_ms": self._clock.wall_ms()}
        await self.store.put(heartbeat_key(self.cluster_id), json.dumps(values).encode())

    async def guarded(self, work: str, subject: int, write: Callable[[], Awaitable[None]]) -> bool:
        """Call `write` within WRITE_TIMEOUT_S seconds, and record its success or failure in the
        alarms. Errors of the store and timeouts are not raised. Returns whether it succeeded."""
        alarms = self._figures.alarms
        try:
            await self._require_usable()
            with trio.fail_after(WRITE_TIMEOUT_S):
                await write()
        except (OttlaError, OSError, trio.TooSlowError) as error:
            reason = str(error) or f"it took more than {WRITE_TIMEOUT_S:.0f} s"
            logger.info("%s in the object store fail: %s", work, reason)
            alarms.on_failure(work, subject, reason, now_ms=self._clock.monotonic_ms())
            return False
        alarms.on_success(work, subject)
        return True

    def end_failures_except(self, work: str, subjects: Collection[int]) -> None:
        """End the alarms of a kind of work for all subjects except `subjects`. Another broker now
        does the work for the others."""
        self._figures.alarms.keep_only(work, subjects)
