"""Export of a controller's metrics: an endpoint for Prometheus, and pushes to collectors.

A controller that is configured without an endpoint and without collectors measures nothing.
"""

import time
from collections.abc import Sequence

import trio

from ottla.controller.controller_driver import Controller
from ottla.controller.controller_metrics import controller_registry
from ottla.model.seams import Clock, Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.process_metrics_driver import process_families, unexpected_error_families
from ottla.node.quorum.quorum_driver import QuorumMember
from ottla.node.quorum.quorum_metrics import quorum_families
from ottla.telemetry.clients.exporter import Exporter
from ottla.telemetry.exporters.exporters_driver import open_exporters
from ottla.telemetry.metrics.instruments import Registry
from ottla.telemetry.metrics.loop_pause_driver import LoopPauseMeter
from ottla.telemetry.metrics.metrics_http_driver import serve_metrics
from ottla.telemetry.metrics.own_metrics_driver import node_attributes, send_own_metrics
from ottla.telemetry.metrics.prometheus_text import render


def unready_reason(*, is_leader: bool, knows_leader: bool, is_caught_up: bool) -> str | None:
    """Return the reason why a controller is not ready, as a sentence for its readiness probe.
    Returns None if the controller has caught up, and leads the quorum or follows a known leader."""
    if is_caught_up and (is_leader or knows_leader):
        return None
    if is_leader:
        return "The controller leads the quorum and has not loaded its metadata yet."
    if not knows_leader:
        return "The controller knows no leader of the quorum."
    return "The controller has not caught up with the leader."


class ControllerTelemetry:
    """Exporter of one controller's metrics: the metrics, and the tasks that export them."""

    def __init__(
        self,
        config: ControllerConfig,
        controller: Controller,
        member: QuorumMember,
        errors: UnexpectedErrors,
        *,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._config = config
        self._controller = controller
        self._member = member
        self._errors = errors
        self._clock = clock
        self._exporters = open_exporters(config.exporters, rng=rng, texts=config.texts)
        self.pauses = LoopPauseMeter()
        self.registry = self._new_registry()

    def _new_registry(self) -> Registry:
        controller, member = self._controller, self._member
        registry = controller_registry(
            controller.counts,
            is_active=lambda: controller.epoch is not None,
            image=lambda: member.image,
            committed_offset=lambda: member.high_watermark - 1,
            wall_ms=self._clock.wall_ms,
            now_ms=self._clock.monotonic_ms,
            mutations=controller.mutations,
            free_space=member.free_space.report,
            reserved_bytes=lambda: member.reserved_bytes,
            authorizer=controller.authorizer,
            voter_state=lambda: member.voter_state,
        )
        registry.register(lambda: quorum_families(member, self._clock.monotonic_ms()))
        self.pauses.register(registry)
        registry.register(process_families)
        registry.register(lambda: unexpected_error_families(self._errors))
        return registry

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure the controller and export its metrics until cancelled. Raises ConfigError if the
        port cannot be opened."""
        settings = self._config.metrics
        is_sent = bool(self._exporters) and settings.otlp_interval_ms > 0
        if not settings.is_prometheus_served and not is_sent:
            task_status.started()
            return
        self._controller.now_ns = time.perf_counter_ns
        trio.lowlevel.add_instrument(self.pauses)
        try:
            async with trio.open_nursery() as nursery:
                if settings.is_prometheus_served:
                    await nursery.start(self._serve)
                if is_sent:
                    for exporter in self._exporters:
                        nursery.start_soon(exporter.run)
                    nursery.start_soon(self._send, self._exporters)
                task_status.started()
                await trio.sleep_forever()
        finally:
            trio.lowlevel.remove_instrument(self.pauses)

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        await serve_metrics(
            lambda: render(self.registry.collect()),
            host=self._config.metrics.prometheus_host,
            port=self._config.metrics.prometheus_port,
            access=self._config.metrics.prometheus_access,
            unready=self._unready,
            task_status=task_status,
        )

    def _unready(self) -> str | None:
        member = self._member
        return unready_reason(
            is_leader=member.is_leader,
            knows_leader=member.leader_id is not None,
            is_caught_up=member.is_caught_up,
        )

    async def _send(self, exporters: Sequence[Exporter]) -> None:
        identity = self._member.identity
        await send_own_metrics(
            self.registry,
            exporters,
            attributes=node_attributes(
                identity.node_id, role="controller", cluster_id=identity.cluster_id
            ),
            interval_ms=self._config.metrics.otlp_interval_ms,
            clock=self._clock,
        )
