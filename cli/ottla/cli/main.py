"""The `ottla` command: imports the module of a command, runs it, and exits with its exit code.

Only the modules of the requested command are imported, so that every command starts fast. Exit
codes: 0 success, 1 usage error or refused, 2 unhealthy, invalid or unconfirmed, 3 unreachable, 4
unknown.
"""

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, NoReturn

from ottla.cli.imports import importing
from ottla.cli.parser import Parser
from ottla.cli.process_title import hide_secrets
from ottla.cli.suggestions import did_you_mean
from ottla.cli.terminal import complain, note, say_block
from ottla.cli.verbs import declare
from ottla.model.unicode_text import is_encodable
from ottla.model.visible_text import visible

OK = 0
REFUSED = 1
UNHEALTHY = 2
UNCONFIRMED = 2
UNREACHABLE = 3
UNKNOWN = 4
INTERRUPTED = 130

CommandBody = Callable[[argparse.Namespace], int]


class Command(NamedTuple):
    """Module that implements a command of `ottla`, and its one-line summary."""

    module: str
    summary: str
    verbs: tuple[str, ...] = ()
    verbs_module: str = ""
    """Module imported instead of `module` if one of `verbs` follows the name of the command."""


COMMANDS = {
    "up": Command("ottla.cli.cluster.up", "start a local cluster of real processes"),
    "down": Command("ottla.cli.cluster.down", "stop the cluster of a directory"),
    "status": Command(
        "ottla.cli.cluster.status", "show whether the cluster is healthy, and why not"
    ),
    "explain": Command(
        "ottla.cli.cluster.explain",
        "show why clients are denied, throttled or behind, and partitions not served",
    ),
    "mcp": Command("ottla.cli.cluster.mcp", "give agents the answers of 'explain', by MCP"),
    "console": Command("ottla.cli.cluster.console", "serve web pages of a cluster"),
    "topic": Command("ottla.cli.topics.topic", "create, list, describe, change and delete topics"),
    "user": Command("ottla.cli.users.user", "list, add and delete users that log in by SCRAM"),
    "token": Command(
        "ottla.cli.users.token", "create, list, renew and end delegation tokens of users"
    ),
    "acl": Command("ottla.cli.security.acl", "list, create, delete and explain ACLs"),
    "certificates": Command(
        "ottla.cli.security.certificates", "create and renew certificates of nodes and users"
    ),
    "group": Command(
        "ottla.cli.groups.group", "list, describe, reset and delete groups of consumers"
    ),
    "share": Command("ottla.cli.groups.share", "list, describe, reset and delete share groups"),
    "txn": Command(
        "ottla.cli.transactions.txn", "list and describe transactions, find and abort hanging ones"
    ),
    "quota": Command(
        "ottla.cli.quotas.quota", "set limits of users and clients, and show which limit applies"
    ),
    "produce": Command("ottla.cli.records.produce", "write records from standard input"),
    "consume": Command("ottla.cli.records.consume", "print records"),
    "log": Command(
        "ottla.cli.logs.log_commands",
        "inspect, verify and recover log directories without a broker",
    ),
    "storage": Command("ottla.cli.cluster.storage", "format directories"),
    "server": Command(
        "ottla.cli.cluster.server.server",
        "run one node from a .properties file, with the roles in its process.roles",
    ),
    "controller": Command(
        "ottla.cli.cluster.controller", "run one controller from a .properties file"
    ),
    "broker": Command(
        "ottla.cli.cluster.broker",
        "run one broker from a .properties file; or list, drain, cordon and remove brokers",
        verbs=("list", "describe", "drain", "cordon", "logdirs", "unregister", "remove"),
        verbs_module="ottla.cli.cluster.brokers",
    ),
    "cluster": Command(
        "ottla.cli.cluster.cluster", "balance brokers, finalize upgrades, change features"
    ),
    "top": Command(
        "ottla.cli.cluster.traffic.top", "show the busiest brokers, topics, partitions and clients"
    ),
    "backup": Command(
        "ottla.cli.backup.backup", "copy topics and offsets of groups into files, and back"
    ),
    "tier": Command(
        "ottla.cli.tier.tier", "list, verify and restore the copies of segments in a bucket"
    ),
    "bundle": Command(
        "ottla.cli.cluster.support.bundle", "write the cluster's state into one archive for support"
    ),
    "cleaner": Command(
        "ottla.cli.cluster.cleaning.cleaner",
        "show the state of compaction, start a pass, retry failed logs",
    ),
    "quorum": Command("ottla.cli.cluster.quorum", "show and change the controllers' quorum"),
    "config": Command("ottla.cli.topics.config", "show, change and compare settings"),
    "metrics": Command(
        "ottla.cli.metrics.metrics", "show and configure metrics that clients push (KIP-714)"
    ),
    "pipeline": Command(
        "ottla.cli.pipelines.pipeline",
        "run Spark on topics: archive, telemetry, or a pipeline of your own",
    ),
    "export": Command(
        "ottla.cli.pipelines.export",
        "export a topic into Parquet files, an Iceberg or a Delta table",
    ),
    "table": Command("ottla.cli.pipelines.table", "maintain exported tables"),
    "sql": Command("ottla.cli.pipelines.sql", "query live topics in SQL, by DuckDB"),
    "world": Command("ottla.cli.lab.world", "run the deterministic simulation from seeds"),
    "jepsen": Command("ottla.cli.lab.jepsen", "test real processes under faults"),
    "bench": Command("ottla.cli.lab.bench", "measure any Kafka-compatible broker"),
    "doctor": Command(
        "ottla.cli.cluster.doctor",
        "diagnose this machine for Spark, and a cluster",
    ),
    "completion": Command("ottla.cli.completion", "print completion scripts for shells"),
    "version": Command("ottla.cli.version", "print the version"),
}


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command of `ottla` and end the process with its exit code."""
    if not hide_secrets(sys.argv[1:]):
        note("ottla: warning: 'ps' shows secrets of this command line; write them into a file")
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        code = _without_reader()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run the command of `ottla` that `arguments`, the words of a command line, specify. Returns
    the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        if len(arguments) > 1 and not arguments[1].startswith("-"):
            return run([*arguments[1:], "--help"])
        say_block(overview())
        return OK
    undecoded = next((one for one in arguments if not is_encodable(one)), None)
    if undecoded is not None:
        # Python represents undecodable bytes as lone surrogates; no request or setting can contain
        # them.
        complain(f"ottla: the argument {visible(undecoded)} is no text in this locale's encoding")
        return REFUSED
    name = {"--version": "version", "-V": "version"}.get(arguments[0], arguments[0])
    command = COMMANDS.get(name)
    if command is None:
        cure = did_you_mean(name, COMMANDS)
        complain(f"ottla: there is no command {name!r}{cure}; see 'ottla --help'")
        return REFUSED
    is_verb = arguments[1:2] != [] and arguments[1] in command.verbs
    if command.verbs and not is_verb and is_no_file(arguments[1:]):
        cure = did_you_mean(arguments[1], command.verbs) or f"; they are {', '.join(command.verbs)}"
        complain(
            f"ottla {name}: {arguments[1]!r} is no file, and no verb{cure}; see "
            f"'ottla {name} --help'"
        )
        return REFUSED
    with importing():
        module = import_module(command.verbs_module if is_verb else command.module)
    parser = Parser(prog=f"ottla {name}", description=command.summary)
    declare(parser, module)
    try:
        parsed = parser.parse_args(arguments[1:])
    except SystemExit as ending:
        return int(ending.code or OK)
    return guarded(name, parsed.handler, parsed)


def is_no_file(words: list[str]) -> bool:
    """Return whether the first word of a command line looks like a verb, and is not the name of an
    existing file."""
    return bool(words) and words[0].isalpha() and not os.path.exists(words[0])


def guarded(name: str, command: CommandBody, parsed: argparse.Namespace) -> int:
    """Run the handler of a parsed command, and return the exit code. An expected exception is
    printed as an error message and determines the exit code."""
    from ottla.cli.confirmation import UnconfirmedError
    from ottla.model.errors import (
        ConfigError,
        CorruptDataError,
        ErrorCode,
        NewerReleaseError,
        OttlaError,
        ProtocolError,
        RefusedError,
        only_error,
    )

    try:
        code = command(parsed)
        sys.stdout.flush()
        return code
    except (ConfigError, NewerReleaseError) as error:
        code = REFUSED
        message = str(error)
    except RefusedError as error:
        code = UNREACHABLE if error.code == ErrorCode.NETWORK_EXCEPTION else REFUSED
        message = str(error)
        if isinstance(error.code, ErrorCode) and error.code.name.endswith("AUTHORIZATION_FAILED"):
            message += "; for an administrator, 'ottla acl explain' shows the ACL that decides"
    except UnconfirmedError as error:
        code = UNCONFIRMED
        message = str(error)
    except CorruptDataError as error:
        code = UNHEALTHY
        message = f"corrupt data: {error}"
    except ProtocolError as error:
        code = UNKNOWN
        message = f"the peer does not speak Kafka's protocol: {error}"
    except OttlaError as error:
        code = UNREACHABLE
        message = str(error)
        if message.endswith("hung up") and name != "status":
            message += "; if it is only starting, 'ottla status' tells how far it is"
        elif getattr(parsed, "has_no_address", False):
            message += (
                "; no address is given, and no cluster was started in this directory: "
                "'ottla up --detach' starts one"
            )
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemError as error:
        # An interrupt while C code constructs an object is wrapped like this.
        if isinstance(error.__cause__, KeyboardInterrupt):
            return INTERRUPTED
        raise
    except BrokenPipeError:
        return _without_reader()
    except BaseExceptionGroup as group:
        # The reader of the output closed the pipe, and a nursery has put the error into a group.
        if isinstance(only_error(group), BrokenPipeError):
            return _without_reader()
        raise
    except OSError as error:
        code = REFUSED
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    complain(f"ottla {name}: {message}")
    return code


def _without_reader() -> int:
    """Return exit code 0 after the reader of the command's output (such as head or less) has closed
    the pipe. Further output is impossible."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
    return OK


def overview() -> str:
    """Return the text that lists all commands of `ottla`."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {row.summary}" for name, row in COMMANDS.items())
    return (
        "ottla: a Kafka-compatible, KRaft-style distributed log\n\n"
        f"{rows}\n\n"
        "Start with 'ottla up'.  'ottla COMMAND --help' tells more."
    )
