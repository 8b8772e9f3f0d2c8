"""Forks the nodes of `ottla up`. The parent process imports the modules that several nodes need, so
that each is imported once.

Modules that only one node needs are imported by that node, concurrently with the other nodes.

A node is a process with its own session, log, signals and restart. `ps -f` shows the node as if
`ottla broker FILE` had started it.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn

from ottla.cli.cluster.node_process import quiet_grpc
from ottla.cli.imports import importing_for_good
from ottla.cli.process_title import show_as
from ottla.node.local.forked_process_driver import fork_process, may_fork
from ottla.node.local.local_nodes_driver import (
    PARENT_VARIABLE,
    READY_VARIABLE,
    NodeProcess,
    start_node,
)

OF_ALL = (
    "ottla.model.settings.dynamic",
    "ottla.model.settings.kafka_keys",
    "ottla.model.settings.misspelt",
    "ottla.node.admin.admin_api",
    "ottla.node.authorization.authorization",
    "ottla.node.authorizer_metrics",
    "ottla.node.identity",
    "ottla.node.log_output_driver",
    "ottla.node.network.server.server_opening_driver",
    "ottla.node.process_driver",
    "ottla.node.properties",
    "ottla.node.quotas.request_quotas",
    "ottla.node.quorum.quorum_metrics",
    "ottla.node.seams_driver",
    "ottla.rpc.cluster_id",
    "ottla.telemetry.exporters.exporters_driver",
    "ottla.telemetry.metrics.metrics_http_driver",
)
"""Modules that nodes of every role need. Their import loads nearly all modules of a node. About 40
small modules are imported later by each node."""
OF_ROLE = {
    "controller": ("ottla.cli.cluster.controller", "ottla.controller.main_driver"),
    "broker": ("ottla.cli.cluster.broker", "ottla.broker.opening_driver"),
}


class StartedNode(NamedTuple):
    """The process of a started node, and the pipe on which the node reports that it serves
    requests."""

    process: NodeProcess
    ready_reader: int


def spawn_node(role: str, properties: Path, *, options: Sequence[str] = ()) -> StartedNode:
    """Start a node as a new process, which imports all its modules itself, and return it."""
    started = start_node(role, properties, options=options)
    return StartedNode(started.process, started.ready_reader)


def preload(role: str | None = None) -> None:
    """Import the modules that every node needs into this process. If `role` is not None, also
    import the modules that nodes with this role need."""
    quiet_grpc()
    with importing_for_good():
        for module in (*OF_ALL, *(OF_ROLE[role] if role else ())):
            import_module(module)


def fork_node(
    role: str, properties: Path, *, count: int = 1, options: Sequence[str] = ()
) -> StartedNode:
    """Fork a node from this process and return it. If this process has threads, start a new process
    instead.

    `count` is the number of nodes with this role. If it is above 1, the modules of the role are
    imported once for all nodes. `options` follow the settings file on the command line.
    """
    if not may_fork():
        return spawn_node(role, properties, options=options)
    if count > 1:
        preload(role)
    reader, writer = os.pipe()
    try:
        process = fork_process(
            partial(_run, role, properties, options),
            name=properties.stem,
            environment={READY_VARIABLE: str(writer), PARENT_VARIABLE: str(os.getpid())},
            kept=(writer,),
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return StartedNode(process, reader)


def _run(role: str, properties: Path, options: Sequence[str]) -> NoReturn:
    from ottla.cli.main import main

    sys.argv[1:] = [role, str(properties), *options]
    # A short command line of `ottla up` has no room for the path of the file.
    show_as(["ottla", *sys.argv[1:]], ["ottla", role, properties.name])
    main(sys.argv[1:])
