"""A `MiniBroker` whose groups are coordinated as in a process: over the log of their partition.

What a turn decides is written at its end, and answered then.
"""

from ottla.broker.groups.coordinator_driver import GroupCoordinator
from ottla.broker.groups.group_apis import register_group_apis
from ottla.broker.logs.transactional_appends import NoCoordinators
from ottla.jepsen.fuzz.mini_broker import CONFIG, FRAME_BYTES_MAX, LOCAL, NOW_MS, MiniBroker
from ottla.jepsen.world.rng import SeededRng
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.run_now import run_now


class CoordinatingBroker(MiniBroker):
    """All of it, and turns that end."""

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max=frame_bytes_max)
        dispatcher = self.dispatcher
        self.coordinator = GroupCoordinator(
            CONFIG.groups,
            local_id=LOCAL,
            table=self.table,
            purgatory=self.purgatory,
            clock=self._clock,
            rng=SeededRng(2),
            errors=dispatcher.errors,
            turn_end=dispatcher.turn_end,
        )
        register_group_apis(
            dispatcher,
            config=CONFIG.groups,
            coordinator=self.coordinator,
            metadata=self.core.metadata,
            transactions=NoCoordinators(),
            timeout_ms=CONFIG.request_timeout_ms,
        )
        self.publish(self.core.metadata.image)

    def publish(self, image: MetadataImage) -> None:
        """Have the groups follow the metadata of a cluster."""
        delta = MetadataDelta.between(self.coordinator.image, image)
        run_now(self.coordinator.publish(delta, image))

    def exchange(self, data: bytes) -> int:
        """Bring frames in one turn, and return the size of what was answered by its end."""
        turn_end, connection = self.dispatcher.turn_end, self._channel.connection
        turn_end.begin()
        size = super().exchange(data)
        turn_end.end(self._errors)
        self._ready.clear()
        if count := connection.output.byte_count:
            connection.on_sent(count, NOW_MS)
        return size + count

    def _go_on(self) -> None:
        """Take turns until one has nothing to be done at its end."""
        turn_end = self.dispatcher.turn_end
        has_work = True
        while has_work:
            turn_end.begin()
            super()._go_on()
            has_work = bool(turn_end.works)
            turn_end.end(self._errors)
