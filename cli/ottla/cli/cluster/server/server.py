"""`ottla server FILE`: run one node in the foreground, with the roles of its `process.roles`."""

import argparse
from collections.abc import Sequence

from ottla.cli.cluster.node_process import (
    NODE_OPTIONS,
    NodeSettings,
    config_from,
    read_settings,
    run_node,
)
from ottla.cli.cluster.server.cores import machine_cores
from ottla.cli.cluster.server.host_brokers import host_brokers, wanted_brokers
from ottla.cli.common import counted
from ottla.cli.imports import importing_for_good
from ottla.cli.options import Declared, option
from ottla.cli.terminal import note
from ottla.model.settings.roles import BOTH, BROKER, CONTROLLER, roles_of

OPTIONS: tuple[Declared, ...] = (
    *NODE_OPTIONS,
    option(
        "--brokers-per-host N",
        "run N brokers, or auto: one per processor core (default: ottla.brokers.per.host of the "
        "file, else a single one)",
    ),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla server FILE`: run the node, or the brokers of a host, until SIGTERM or SIGINT. Returns
    the exit code."""
    settings = read_settings(arguments)
    count = wanted_brokers(settings.texts, arguments.brokers_per_host, machine_cores())
    if count is not None:
        return _run_host(settings, count, arguments.set)
    roles = roles_of(settings.texts)
    if roles == BOTH:
        return _run_combined(settings)
    return _run_broker(settings) if BROKER in roles else _run_controller(settings)


def _run_host(settings: NodeSettings, count: int, given: Sequence[str]) -> int:
    from ottla.cli.cluster.server.host import HostSupervisor
    from ottla.model.settings.broker import load_broker_config

    brokers = host_brokers(settings.texts, count)
    for broker in brokers[1:]:
        load_broker_config({**settings.texts, **broker.overrides})
    first = NodeSettings(settings.path, {**settings.texts, **brokers[0].overrides})
    config_from(first, load_broker_config)  # Warns, once for all brokers.
    for broker in brokers:
        if broker.is_surplus:
            note(
                f"{broker.name} is one more than {count} and has"
                f" {counted(broker.replica_count, 'replica')}: it runs on and accepts no new ones;"
                f" move them away with 'ottla broker remove {broker.id}'"
            )
    return HostSupervisor(settings.path, brokers, given).run()


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
