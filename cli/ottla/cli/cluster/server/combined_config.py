"""Parses the settings of a process with both roles, broker and controller. Reads no file."""

from collections.abc import Mapping
from dataclasses import replace
from posixpath import normpath

from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.controller import ControllerConfig, load_controller_config
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.logs import LogOutputConfig
from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.model.settings.telemetry.metrics import MetricsConfig
from ottla.model.values import frozen


@frozen(kw_only=True)
class CombinedConfig:
    """Settings of a process that is both broker and controller. Both roles have the same node id
    and metadata directory."""

    broker: BrokerConfig
    controller: ControllerConfig
    """Settings of the process's controller role. They export no metrics, because the broker exports
    the metrics of both roles."""

    @property
    def of_roles(self) -> tuple[BrokerConfig, ControllerConfig]:
        """Settings of the broker role and of the controller role, as a pair."""
        return self.broker, self.controller

    @property
    def node_id(self) -> NodeId:
        """Node id of this process, which is the same for the broker and the controller."""
        return self.broker.node_id

    @property
    def listeners(self) -> tuple[ListenAddress, ...]:
        """Listen addresses of both roles, broker and controller."""
        return (*self.broker.listeners, *self.controller.listeners)

    @property
    def advertised_listeners(self) -> tuple[ListenAddress, ...]:
        """Advertised listener addresses of both roles, broker and controller."""
        return (*self.broker.advertised_listeners, *self.controller.advertised_listeners)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Log directories of the broker's partitions."""
        return self.broker.log_dirs

    @property
    def log_output(self) -> LogOutputConfig:
        """Outputs of the process's log lines, such as a file."""
        return self.broker.log_output

    @property
    def shares_directory(self) -> bool:
        """True if the controller's metadata log is in one of the broker's log directories, which is
        the default. The log manager then locks that directory."""
        metadata = normpath(self.controller.metadata_log_dir)
        return metadata in map(normpath, self.broker.log_dirs)


def load_combined_config(texts: Mapping[str, str]) -> tuple[CombinedConfig, set[str]]:
    """Parse the keys of one settings file for both roles, broker and controller. Returns the
    settings of both roles, and the keys that neither role knows.

    Raises ConfigError for the first invalid or missing setting.
    """
    broker, unknown_to_broker = load_broker_config(texts)
    controller, unknown_to_controller = load_controller_config(texts)
    controller = replace(
        controller,
        metadata_log_dir=broker.metadata_directory,
        metrics=MetricsConfig(),
        exporters=ExporterConfig(),
    )
    config = CombinedConfig(broker=broker, controller=controller)
    return config, unknown_to_broker & unknown_to_controller
