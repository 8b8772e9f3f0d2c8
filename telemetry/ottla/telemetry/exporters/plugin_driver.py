"""Exporter to the operator's own code: an entry point of `ottla.telemetry_exporter`.

The entry point is called once, when the node starts, with its settings. Settings of an exporter
have the prefix `telemetry.exporter.<name>.`, which is removed. The entry point returns an object
with one method, `export(pushes)`. The exporter calls this method in a worker thread, with one batch
at a time. If the method raises an exception, the exception is logged and counted as a refusal. The
exporter then continues.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol

import trio

from ottla.model.errors import ConfigError
from ottla.model.seams import Rng
from ottla.model.settings.telemetry.exporters import PLUGIN_PREFIX, ExporterConfig
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.exporters.batching_driver import BatchingExporter
from ottla.telemetry.exporters.export_queue import ExportOutcome, ExportVerdict

GROUP = "ottla.telemetry_exporter"

logger = logging.getLogger("ottla.telemetry")


class Plugin(Protocol):
    """Interface of the operator's plug-in: the object that an exporter's entry point returns."""

    def export(self, pushes: Sequence[LabelledPush]) -> None:
        """Export a batch of pushes of metrics. The method may block, and may raise any
        exception."""
        ...


class PluginExporter:
    """Exporter that passes batches of metrics to the operator's plug-in, with its queue."""

    def __init__(self, name: str, plugin: Plugin, config: ExporterConfig, rng: Rng) -> None:
        self.name = name
        self._plugin = plugin
        self._limiter = trio.CapacityLimiter(1)
        self._batching = BatchingExporter(name, self._deliver, config, rng)
        self.offer = self._batching.offer
        self.run = self._batching.run
        self.flush = self._batching.flush

    def counts(self) -> Mapping[str, int]:
        """Return the number of pushes to the plug-in by state; see `BatchingExporter.counts`."""
        return self._batching.counts()

    async def _deliver(self, batch: Sequence[LabelledPush]) -> ExportOutcome:
        try:
            # Abandoned when the node stops: a plug-in must not delay that.
            await trio.to_thread.run_sync(
                self._plugin.export, batch, abandon_on_cancel=True, limiter=self._limiter
            )
        except Exception as error:  # a plug-in may raise anything, and must not end the node
            logger.exception("%s failed", self.name)
            return ExportOutcome(
                verdict=ExportVerdict.REFUSED, why=f"{type(error).__name__}: {error}"
            )
        return ExportOutcome(verdict=ExportVerdict.SENT)


def load_plugin(name: str, texts: Mapping[str, str]) -> Plugin:
    """Create and return the plug-in `name` with its settings. Raises ConfigError if the plug-in
    cannot be created."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise ConfigError("telemetry.exporters", f"{name} is no entry point of {GROUP}")
    prefix = f"{PLUGIN_PREFIX}{name}."
    own = {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
    try:
        make: Callable[[Mapping[str, str]], Plugin] = next(iter(found)).load()
        return make(own)
    except Exception as error:  # a plug-in may raise anything; the error contains its name
        raise ConfigError("telemetry.exporters", f"{name} cannot start: {error}") from error
