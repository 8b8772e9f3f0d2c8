"""Every way out that a node's settings name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.model.seams import Rng
from ottla.model.settings.exporters import ExporterConfig
from ottla.telemetry.exporter import Exporter

if TYPE_CHECKING:
    from ottla.telemetry.topic_exporter_driver import Send


def open_exporters(
    config: ExporterConfig, *, rng: Rng, texts: Mapping[str, str], send: "Send | None" = None
) -> list[Exporter]:
    """Return the ways out, not yet running; ConfigError when a plug-in cannot be had.

    `texts` are the node's settings as its file gave them, `send` writes to the topic: without it
    (on a controller) there is no such way out.  What is not asked for is not imported.
    """
    exporters: list[Exporter] = []
    if config.otlp_endpoints:
        from ottla.telemetry.otlp_exporter_driver import OtlpExporter

        exporters += [OtlpExporter(endpoint, config, rng) for endpoint in config.otlp_endpoints]
    if config.topic_enable and send is not None:
        from ottla.telemetry.topic_exporter_driver import TopicExporter

        exporters.append(TopicExporter(send, config, rng))
    if config.plugins:
        from ottla.telemetry.plugin_driver import PluginExporter, load_plugin

        exporters += [
            PluginExporter(name, load_plugin(name, texts), config, rng) for name in config.plugins
        ]
    return exporters
