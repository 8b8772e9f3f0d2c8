"""`ottla server FILE`: run one node in the foreground, with the roles of its `process.roles`."""

import argparse

from ottla.cli.cluster.node_process import (
    NODE_OPTIONS,
    NodeSettings,
    config_from,
    read_settings,
    run_node,
)
from ottla.cli.imports import importing_for_good
from ottla.model.settings.roles import BOTH, BROKER, CONTROLLER, roles_of

OPTIONS = NODE_OPTIONS


def run(arguments: argparse.Namespace) -> int:
    """Run the node until SIGTERM or SIGINT. Returns the exit code."""
    settings = read_settings(arguments)
    roles = roles_of(settings.texts)
    if roles == BOTH:
        return _run_combined(settings)
    return _run_broker(settings) if BROKER in roles else _run_controller(settings)


def _run_combined(settings: NodeSettings) -> int:
    from ottla.cli.cluster.server.combined_config import load_combined_config

    config = config_from(settings, load_combined_config)
    with importing_for_good():
        from ottla.cli.cluster.server.combined_driver import run_combined

    return run_node(run_combined, config, role="server", roles=(BROKER, CONTROLLER))


def _run_broker(settings: NodeSettings) -> int:
    from ottla.model.settings.broker import load_broker_config

    config = config_from(settings, load_broker_config)
    with importing_for_good():
        from ottla.broker.opening_driver import run_broker

    return run_node(run_broker, config, role=BROKER)


def _run_controller(settings: NodeSettings) -> int:
    from ottla.model.settings.controller import load_controller_config

    config = config_from(settings, load_controller_config)
    with importing_for_good():
        from ottla.controller.main_driver import run_controller

    return run_node(run_controller, config, role=CONTROLLER)
