"""Sends the ISR changes that `IsrKeeper` decides, one request at a time, and calls the keeper at
its deadlines."""

from collections.abc import Iterator
from typing import Protocol

import trio

from ottla.broker.replicas.isr_keeper import IsrKeeper
from ottla.model.background_driver import keep_running
from ottla.model.errors import RefusedError
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.part_registry import PartRegistry
from ottla.proto import controller_pb2 as pb
from ottla.telemetry.metrics.instruments import Family
from ottla.telemetry.metrics.kafka_families import counter

REQUEST_TIMEOUT_MS = 2_000
"""Milliseconds before an unanswered request for ISR changes is sent again. With a shorter time, a
slow controller receives the request twice. A longer time delays the retry when a controller has
just died."""

BEAN = "kafka.server:type=ReplicaManager,name="


class IsrController(Protocol):
    """Part of the controller client that sends a leader's ISR changes to the controller."""

    async def alter_partition(
        self, request: pb.AlterPartitionRequest, *, deadline_ms: int
    ) -> pb.AlterPartitionResponse:
        """Send ISR changes to the active controller, and return its response. Raises RefusedError
        if the controller does not respond within `deadline_ms` milliseconds."""
        ...


class IsrDriver:
    """Background task that sends the ISR changes of one `IsrKeeper` to the controller."""

    def __init__(
        self,
        keeper: IsrKeeper,
        controller: IsrController,
        clock: Clock,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        self._keeper = keeper
        self._controller = controller
        self._clock = clock
        self._errors = errors or UnexpectedErrors()
        self._is_due = trio.Event()
        keeper.on_due = self._on_due

    def _on_due(self) -> None:
        self._is_due.set()

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that sends ISR changes, and its metrics."""
        parts.task("in-sync replicas", self.run)
        parts.families(self.families)

    def families(self) -> Iterator[Family]:
        """Yield the metric families of ISR changes."""
        keeper = self._keeper
        yield counter(
            f"{BEAN}IsrShrinksPerSec", "Replicas removed from an ISR.", keeper.shrinks.value
        )
        yield counter(f"{BEAN}IsrExpandsPerSec", "Replicas added to an ISR.", keeper.expands.value)
        yield counter(
            f"{BEAN}FailedIsrUpdatesPerSec",
            "ISR changes that the controller did not make.",
            keeper.failures.value,
        )

    async def run(self) -> None:
        """Send ISR changes to the controller until cancelled, and call the keeper at its
        deadlines."""
        async with trio.open_nursery() as nursery:
            for name, work in (
                ("lag of replicas", self._tick),
                ("changes of in-sync replicas", self._send_changes),
            ):
                nursery.start_soon(keep_running, name, work, self._errors)

    async def _tick(self) -> None:
        keeper = self._keeper
        keeper.start(self._clock.monotonic_ms())
        while True:
            await trio.sleep(keeper.tick_ms / 1000)
            keeper.on_time(self._clock.monotonic_ms())

    async def _send_changes(self) -> None:
        keeper, clock = self._keeper, self._clock
        while True:
            await trio.sleep(keeper.pause_ms(clock.monotonic_ms()) / 1000)
            self._is_due = trio.Event()
            changes = keeper.changes(clock.monotonic_ms())
            if not changes:
                await self._is_due.wait()
                continue
            try:
                response = await self._controller.alter_partition(
                    keeper.request(changes), deadline_ms=REQUEST_TIMEOUT_MS
                )
            except RefusedError as error:
                keeper.on_silence(str(error), clock.monotonic_ms())
            else:
                keeper.on_answer(changes, response, clock.monotonic_ms())
