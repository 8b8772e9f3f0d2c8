"""`ottla up`: a local cluster of real processes, which live as long as this command does.

With --detach they live as long as a process in the background, until `ottla down`.
"""

import argparse
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ottla.cli.background.detached import Report, run_detached
from ottla.cli.cluster.cluster_file import (
    PORT_DEFAULT,
    PORT_END,
    ClusterPlan,
    check_replication,
    make_plan,
)
from ottla.cli.cluster.forked_nodes import StartedNode, fork_node, preload
from ottla.cli.cluster.local_cluster import LocalCluster
from ottla.cli.common import DIRECTORY_DEFAULT, table
from ottla.cli.imports import importing_for_good
from ottla.cli.own_command import own_command
from ottla.cli.terminal import note, say_block
from ottla.model.errors import ConfigError
from ottla.node.private_files_driver import keep_others_out


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of 'ottla up'."""
    for role in ("controllers", "brokers"):
        parser.add_argument(
            f"--{role}",
            type=_count,
            metavar="N",
            help="number of nodes (default: as many as --dir has, else 1)",
        )
    parser.add_argument("--host", default="localhost", help="address to listen on")
    parser.add_argument(
        "--port",
        type=_port,
        help="port of the first broker; 0 for a free one (default: the one it had, else "
        f"{PORT_DEFAULT})",
    )
    parser.add_argument(
        "--dir",
        default=DIRECTORY_DEFAULT,
        help=f"directory of the data (default: {DIRECTORY_DEFAULT})",
    )
    parser.add_argument(
        "--ephemeral", action="store_true", help="use a temporary directory, removed at the end"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Kafka setting of every node, those of logins of every broker; may be repeated",
    )
    parser.add_argument(
        "--restart", action="store_true", help="restart a node that dies, and report it"
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="certificates of its own, logins over TLS, and ACLs; the user admin may do everything",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return when the cluster is ready, and leave it running until 'ottla down'",
    )


def run(arguments: argparse.Namespace) -> int:
    """Start the cluster, say what to do next, and wait for the end."""
    keep_others_out()
    directory = Path(tempfile.mkdtemp(prefix="ottla-") if arguments.ephemeral else arguments.dir)
    is_ours = arguments.ephemeral  # and goes when this process is done with it
    try:
        plan = make_plan(
            directory,
            host=arguments.host,
            port=arguments.port,
            controllers=arguments.controllers,
            brokers=arguments.brokers,
            is_secure=arguments.secure,
        )
        plan.settings = dict(_assignment(text) for text in arguments.set)
        check_replication(plan)
        plan.write_properties()
        finish_format = _format(plan)
        preload()  # meanwhile
        code = finish_format()
        if code:
            return code
        cluster = LocalCluster(plan, restarts=arguments.restart, start=partial(_start, plan))
        if not arguments.detach:
            return _serve(cluster, plan, _say_report, "Ctrl-C stops it all.")
        code = run_detached(
            partial(_serve_detached, cluster, plan, is_ours=is_ours),
            plan.directory / "logs" / "up.log",
            name="the cluster",
        )
        is_ours = is_ours and code != 0
        return code
    finally:
        if is_ours:
            shutil.rmtree(directory, ignore_errors=True)


def _start(plan: ClusterPlan, role: str, properties: Path) -> StartedNode:
    nodes = plan.controllers if role == "controller" else plan.brokers
    return fork_node(role, properties, count=len(nodes))


def _format(plan: ClusterPlan) -> Callable[[], int]:
    """Begin to format a plan that is new; return what waits for the exit code."""
    if plan.is_formatted:
        return lambda: 0
    with importing_for_good():
        from ottla.cli.cluster.cluster_format import format_apart

    return format_apart(plan)


def _serve_detached(
    cluster: LocalCluster, plan: ClusterPlan, report: Report, *, is_ours: bool
) -> int:
    try:
        end = f"Stop it with: {own_command()} down --dir {plan.directory}"
        return _serve(cluster, plan, report, end)
    finally:
        if is_ours:
            shutil.rmtree(plan.directory, ignore_errors=True)


def _serve(cluster: LocalCluster, plan: ClusterPlan, report: Report, end: str) -> int:
    """Run the cluster until it ends or we are told to stop; return the exit code."""
    signal.signal(signal.SIGTERM, _raise_interrupt)
    began_at = time.monotonic()
    try:
        code = cluster.start()
        if code == 0:
            report(_report(plan, time.monotonic() - began_at, end))
            code = cluster.watch()
    except KeyboardInterrupt:
        note("stopping …")
        code = 0
    finally:
        began_at = time.monotonic()
        cluster.stop()
    note(f"stopped in {time.monotonic() - began_at:.1f} s")
    return code


def _say_report(text: str) -> None:
    say_block(text, is_flushed=True)


def _report(plan: ClusterPlan, seconds: float, end: str) -> str:
    rows = [("controller", n.id, n.address, n.pid, n.dir) for n in plan.controllers]
    rows += [("broker", n.id, n.address, n.pid, n.dir) for n in plan.brokers]
    # The directory names all brokers, and in fewer words.
    is_one = len(plan.brokers) == 1
    where = f"--bootstrap {plan.bootstrap}" if is_one else f"--dir {plan.directory}"
    ottla = own_command()
    return (
        f"Ottla is ready ({seconds:.1f} s).\n\n"
        + table(("NODE", "ID", "ADDRESS", "PID", "DIRECTORY"), rows)
        + "\n\nNext:\n"
        f"  {ottla} topic create greetings --partitions 3 {where}\n"
        f"  echo hello | {ottla} produce greetings {where}\n"
        f"  {ottla} consume greetings -e {where}\n"
        f"  {ottla} status {where}\n"
        f"  {ottla} quorum status {where}\n\n"
        + _access(plan)
        + f"{end}\nLogs: {plan.directory}/logs/"
    )


def _access(plan: ClusterPlan) -> str:
    """Return how clients reach the cluster."""
    if plan.secure is None:
        return f"Any Kafka client works: bootstrap.servers={plan.bootstrap}.  "
    secure = plan.secure
    return (
        f"Any Kafka client works with the settings in {secure.client_file} (librdkafka's keys:\n"
        f"confluent-kafka and many others) or {secure.java_client_file} (Java, Spark): the user\n"
        f"admin, who may do everything.  The authority to trust is in {secure.trusted}.\n"
    )


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is too few; there must be at least one")
    return count


def _port(text: str) -> int:
    port = int(text)
    if port not in range(PORT_END):
        raise argparse.ArgumentTypeError(f"{port} is no port; it must be below {PORT_END}")
    return port


def _raise_interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError("--set", f"is {text!r}; it must be KEY=VALUE")
    return key.strip(), value.strip()
