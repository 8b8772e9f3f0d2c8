"""Creation of all exporters of metrics that a node's settings require."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.model.seams import Rng
from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.telemetry.clients.exporter import Exporter

if TYPE_CHECKING:
    from ottla.telemetry.exporters.topic_exporter_driver import Send


def open_exporters(
    config: ExporterConfig, *, rng: Rng, texts: Mapping[str, str], send: "Send | None" = None
) -> list[Exporter]:
    """Return the exporters that the settings require, which are not running yet. Raises
    ConfigError if a plug-in cannot be loaded.

    `texts` are the node's settings as written in its file. `send` writes to the topic
    `__client_metrics`; a controller passes None, and then has no topic exporter. Modules of
    exporters that are not configured are not imported.
    """
    exporters: list[Exporter] = []
    if config.otlp_endpoints:
        from ottla.telemetry.exporters.otlp_exporter_driver import OtlpExporter

        exporters += [OtlpExporter(endpoint, config, rng) for endpoint in config.otlp_endpoints]
    if config.topic_enable and send is not None:
        from ottla.telemetry.exporters.topic_exporter_driver import TopicExporter

        exporters.append(TopicExporter(send, config, rng))
    if config.plugins:
        from ottla.telemetry.exporters.plugin_driver import PluginExporter, load_plugin

        exporters += [
            PluginExporter(name, load_plugin(name, texts), config, rng) for name in config.plugins
        ]
    return exporters
