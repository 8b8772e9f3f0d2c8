"""Nodes forked from `ottla up`, which imports once what several of them need.

What a single node needs it imports itself, while the others do the same or start already.

A node is its own process with its own session, log, signals and restart, and `ps -f` shows it as
one that is started by `ottla broker FILE`.
"""

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn

from ottla.cli.cluster.node_process import quiet_grpc
from ottla.cli.imports import importing_for_good
from ottla.cli.process_title import show_as
from ottla.node.forked_process_driver import fork_process, may_fork
from ottla.node.local_nodes_driver import (
    PARENT_VARIABLE,
    READY_VARIABLE,
    NodeProcess,
    start_node,
)

OF_ALL = (
    "ottla.model.settings.dynamic",
    "ottla.model.settings.kafka_keys",
    "ottla.model.settings.misspelt",
    "ottla.node.authorizer_metrics",
    "ottla.node.identity",
    "ottla.node.log_output_driver",
    "ottla.node.process_driver",
    "ottla.node.properties",
    "ottla.node.quorum_metrics",
    "ottla.node.seams_driver",
    "ottla.rpc.cluster_id",
    "ottla.telemetry.exporters_driver",
    "ottla.telemetry.metrics_http_driver",
    "ottla.wire.api_permissions",
)
"""What every node imports, by the modules that import the rest of it; some 40 small ones that
nothing else imports are left to the nodes."""
OF_ROLE = {
    "controller": ("ottla.cli.cluster.controller", "ottla.controller.main_driver"),
    "broker": ("ottla.cli.cluster.broker", "ottla.broker.opening_driver"),
}


class StartedNode(NamedTuple):
    """A node's process, and the pipe on which it says that it serves."""

    process: NodeProcess
    ready_reader: int


def spawn_node(role: str, properties: Path) -> StartedNode:
    """Start a node that imports all by itself."""
    started = start_node(role, properties)
    return StartedNode(started.process, started.ready_reader)


def preload(role: str | None = None) -> None:
    """Import what every node needs, and with a role what its nodes need."""
    quiet_grpc()
    with importing_for_good():
        for module in (*OF_ALL, *(OF_ROLE[role] if role else ())):
            import_module(module)


def fork_node(role: str, properties: Path, *, count: int = 1) -> StartedNode:
    """Fork a node from this process; start one by itself where this process has threads.

    With a `count` of nodes above 1, what nodes of the role need is imported once for all of them.
    """
    if not may_fork():
        return spawn_node(role, properties)
    if count > 1:
        preload(role)
    reader, writer = os.pipe()
    try:
        process = fork_process(
            partial(_run, role, properties),
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


def _run(role: str, properties: Path) -> NoReturn:
    from ottla.cli.main import main

    sys.argv[1:] = [role, str(properties)]
    show_as(["ottla", *sys.argv[1:]])
    main(sys.argv[1:])
