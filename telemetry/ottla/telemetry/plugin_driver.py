"""What clients push, to code of the operator's own: an entry point of `ottla.telemetry_exporter`.

The entry point is called once at the start with its settings (those under
`telemetry.exporter.<name>.`, without that prefix) and returns an object with one method,
`export(pushes)`, which is called in a worker thread with one batch at a time.  What it raises is
told, counts as refused, and ends nothing.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol

import trio

from ottla.model.errors import ConfigError
from ottla.model.seams import Rng
from ottla.model.settings.exporters import PLUGIN_PREFIX, ExporterConfig
from ottla.telemetry.batching_driver import BatchingExporter
from ottla.telemetry.export_queue import ExportOutcome, ExportVerdict
from ottla.telemetry.exporter import LabelledPush

GROUP = "ottla.telemetry_exporter"

logger = logging.getLogger("ottla.telemetry")


class Plugin(Protocol):
    """What an entry point returns."""

    def export(self, pushes: Sequence[LabelledPush]) -> None:
        """Take a batch; may block, and may raise anything."""
        ...


class PluginExporter:
    """A plug-in as a way out; owns what waits for it."""

    def __init__(self, name: str, plugin: Plugin, config: ExporterConfig, rng: Rng) -> None:
        self.name = name
        self._plugin = plugin
        self._limiter = trio.CapacityLimiter(1)
        self._batching = BatchingExporter(name, self._deliver, config, rng)
        self.offer = self._batching.offer
        self.run = self._batching.run
        self.flush = self._batching.flush

    def counts(self) -> Mapping[str, int]:
        """Return what `BatchingExporter.counts` does."""
        return self._batching.counts()

    async def _deliver(self, batch: Sequence[LabelledPush]) -> ExportOutcome:
        try:
            # Abandoned when the node stops: it is not ours to wait for.
            await trio.to_thread.run_sync(
                self._plugin.export, batch, abandon_on_cancel=True, limiter=self._limiter
            )
        except Exception as error:  # the code is not ours: nothing it does may end the node
            logger.exception("%s failed", self.name)
            return ExportOutcome(
                verdict=ExportVerdict.REFUSED, why=f"{type(error).__name__}: {error}"
            )
        return ExportOutcome(verdict=ExportVerdict.SENT)


def load_plugin(name: str, texts: Mapping[str, str]) -> Plugin:
    """Return the plug-in of that name, made with its settings; ConfigError when it cannot be."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise ConfigError("telemetry.exporters", f"{name} is no entry point of {GROUP}")
    prefix = f"{PLUGIN_PREFIX}{name}."
    own = {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
    try:
        make: Callable[[Mapping[str, str]], Plugin] = next(iter(found)).load()
        return make(own)
    except Exception as error:  # the code is not ours; the sentence names it
        raise ConfigError("telemetry.exporters", f"{name} cannot start: {error}") from error
