"""`ottla up`: runs a local cluster of real processes, which stop when this command ends.

With --detach, a background process runs the nodes until `ottla down`.
"""

import argparse
import shutil
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
from ottla.cli.cluster.console_process import (
    LocalConsole,
    is_off,
    local_console,
    missing_extra,
)
from ottla.cli.cluster.forked_nodes import StartedNode, fork_node, preload
from ottla.cli.cluster.local_cluster import LocalCluster
from ottla.cli.cluster.local_tier import use_tier
from ottla.cli.cluster.served_cluster import ServedCluster
from ottla.cli.cluster.server.cores import AUTO, machine_cores
from ottla.cli.common import DIRECTORY_DEFAULT
from ottla.cli.imports import importing_for_good
from ottla.cli.options import Declared, option
from ottla.cli.own_command import own_command
from ottla.cli.tables import table
from ottla.cli.terminal import Colour, say_block
from ottla.model.compiled import installed_form
from ottla.model.errors import ConfigError
from ottla.node.local.private_files_driver import restrict_umask


def run(arguments: argparse.Namespace) -> int:
    """`ottla up`: start the local cluster, print the next steps, and wait until the cluster ends.
    Returns the exit code."""
    restrict_umask()
    if arguments.ephemeral and arguments.dir is not None:
        raise ConfigError("--dir", "excludes --ephemeral, which removes its directory; give one")
    directory = Path(
        tempfile.mkdtemp(prefix="ottla-")
        if arguments.ephemeral
        else arguments.dir or DIRECTORY_DEFAULT
    )
    wants_console = not arguments.no_console
    is_ours = arguments.ephemeral  # and is removed when this process ends
    advice = ""
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
        if arguments.tier is not None:
            use_tier(plan, arguments.tier)
        check_replication(plan)
        plan.write_properties()
        if not arguments.ephemeral:
            advice = advice_on_form(installed_form(), is_first_start=not plan.is_formatted)
        finish_format = _format(plan)
        preload()  # imports run while the controllers are formatted
        code = finish_format()
        if code:
            return code
        log = plan.directory / "logs" / "up.log"
        served = ServedCluster(
            cluster=LocalCluster(plan, restarts=arguments.restart, start=partial(_start, plan)),
            directory=plan.directory,
            restarts=arguments.restart,
            is_removed=is_ours,
            log=log if arguments.detach else None,
        )
        serve = partial(_serve, served, plan, wants_console=wants_console)
        if not arguments.detach:
            return serve(_say_report, end=f"{advice}Ctrl-C stops it all.")
        end = f"{advice}Stop it with: {own_command()} down --dir {plan.directory}"
        code = run_detached(partial(serve, end=end), log, name="the cluster")
        is_ours = is_ours and code != 0
        return code
    finally:
        if is_ours:
            shutil.rmtree(directory, ignore_errors=True)


def _start(plan: ClusterPlan, role: str, properties: Path) -> StartedNode:
    nodes = plan.controllers if role == "controller" else plan.brokers
    return fork_node(role, properties, count=len(nodes))


def _format(plan: ClusterPlan) -> Callable[[], int]:
    """Start formatting the controllers of a new local cluster. Returns a function that waits for
    the end of formatting and returns the exit code."""
    if plan.is_formatted:
        return lambda: 0
    with importing_for_good():
        from ottla.cli.cluster.cluster_format import format_in_child

    return format_in_child(plan)


def _serve(
    served: ServedCluster, plan: ClusterPlan, report: Report, *, end: str, wants_console: bool
) -> int:
    """Run the local cluster until it ends or is asked to stop. When the cluster is ready, call
    `report` with instructions for the user. Returns the exit code."""

    def begin() -> int:
        began_at = time.monotonic()
        code = served.cluster.start()
        if code == 0:
            took_s = time.monotonic() - began_at
            console = local_console(plan, is_wanted=wants_console)
            pages = _pages(console) if wants_console else ""
            report(_report(plan, took_s, pages + end))
            if console is not None:
                served.console = console.start()
        return code

    return served.run(begin)


def _say_report(text: str) -> None:
    say_block(text, is_flushed=True, colours={"NODE": Colour.BOLD})


def _report(plan: ClusterPlan, seconds: float, end: str) -> str:
    rows = [("controller", n.id, n.address, n.pid, n.dir) for n in plan.controllers]
    rows += [("broker", n.id, n.address, n.pid, n.dir) for n in plan.brokers]
    # The directory stands for all brokers, and is shorter.
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


def _pages(console: LocalConsole | None) -> str:
    """Return a line of text with the address of the console (web pages), or with the command that
    installs it."""
    if console is not None:
        return f"Web pages: {console.address}\n"
    hint = missing_extra()
    return f"Web pages need an extra: {hint}\n" if hint and not is_off() else ""


def advice_on_form(form: str, *, is_first_start: bool) -> str:
    """Return advice for the first start of a cluster with interpreted modules: the benefit of a
    compiled wheel, and its installation. Returns "" if the modules are compiled. `form` is a result
    of `installed_form`."""
    if form == "compiled" or not is_first_start:
        return ""
    return (
        "Ottla runs interpreted. Compiled, a small request takes half the CPU or less: with a C\n"
        "compiler, type OTTLA_COMPILE=1 pip install . in Ottla's sources (docs/compiled.md).\n"
    )


def _access(plan: ClusterPlan) -> str:
    """Return a text that explains to the user how clients connect to the cluster."""
    if plan.secure is None:
        return f"Any Kafka client works: bootstrap.servers={plan.bootstrap}.\n"
    secure = plan.secure
    return (
        f"Any Kafka client works with the settings in {secure.client_file} (librdkafka's keys:\n"
        f"confluent-kafka and many others) or {secure.java_client_file} (Java, Spark): the user\n"
        f"admin, who may do everything.  The authority to trust is in {secure.trusted}.\n"
    )


def _count(text: str) -> int:
    count = machine_cores() if text == AUTO else int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is too few; there must be at least one")
    return count


def _port(text: str) -> int:
    port = int(text)
    if port not in range(PORT_END):
        raise argparse.ArgumentTypeError(f"{port} is no port; it must be below {PORT_END}")
    return port


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError("--set", f"is {text!r}; it must be KEY=VALUE")
    return key.strip(), value.strip()


OPTIONS: tuple[Declared, ...] = (
    *(
        option(
            f"--{role} N",
            "number of nodes, or auto: one per processor core (default: as many as --dir has, "
            "else 1)",
            type=_count,
        )
        for role in ("controllers", "brokers")
    ),
    option("--host HOST", "address to listen on", default="localhost"),
    option(
        "--port PORT",
        "port of the first broker; 0 for a free one (default: the one it had, else "
        f"{PORT_DEFAULT})",
        type=_port,
    ),
    option("--dir DIR", f"directory of the data (default: {DIRECTORY_DEFAULT})"),
    option("--ephemeral", "use a temporary directory, removed at the end"),
    option(
        "--set KEY=VALUE ...",
        "Kafka setting of every node, those of logins of every broker; may be repeated",
    ),
    option(
        "--tier URI",
        "object store for copies of segments of tiered topics, such as file:///srv/tier, whose "
        "directory is made (default: that of --dir, else none)",
    ),
    option("--no-console", "start no console (web pages)"),
    option("--restart", "restart a node that dies, and report it"),
    option(
        "--secure",
        "create certificates; require TLS, logins and ACLs; the user admin may do everything",
    ),
    option("--detach", "return when the cluster is ready, and leave it running until 'ottla down'"),
)
