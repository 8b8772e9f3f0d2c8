"""`ottla broker list|describe|drain`: shows the registered brokers and drains them (moves their
leaderships away). Also declares the verbs that `removal` implements."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ottla.cli.cluster.log_dirs import LOG_DIRS
from ottla.cli.cluster.removal.cordon import CORDON
from ottla.cli.cluster.removal.remove import REMOVE
from ottla.cli.cluster.removal.unregister import UNREGISTER
from ottla.cli.common import print_json
from ottla.cli.confirmation import YES, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.tables import ByteCount, header_of, print_table
from ottla.cli.terminal import say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.changes.drain_driver import check_drain, drain_brokers
from ottla.insight.facts.log_dirs_driver import LIST_TIMEOUT_S, ask, ask_bytes
from ottla.insight.facts.survey_driver import (
    SurveyedBroker,
    SurveyedPartition,
    brokers_of,
    counts_of,
    partitions_of,
)
from ottla.insight.rules.health import broker_reasons, broker_standing, shown_standing
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import NodeId

COLUMNS = (
    "id",
    "address",
    "rack",
    "state",
    "epoch",
    "leaders",
    "replicas",
    "under_replicated",
    "out_of_sync",
    "bytes",
    "free_bytes",
)
SIZES = ("bytes", "free_bytes")
DRAINED_MAX = 100
"""Maximum number of brokers in one range of ids for `ottla broker drain`. A host with several
brokers has a range of 100 broker ids."""


async def list_brokers(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla broker list`: list every registered broker. Returns the exit code."""
    partitions = partitions_of(await admin.cluster.metadata())
    held = {one.broker: one.size_bytes for one in await ask_bytes(admin)}
    brokers = await brokers_of(admin)
    rows = [_row(broker, partitions, held.get(NodeId(broker.id))) for broker in brokers]
    if arguments.format == "json":
        print_json(rows)
    else:
        print_table(list(map(header_of, COLUMNS)), [_cells(row) for row in rows])
    return 0


async def describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla broker describe`: show the state, the problems and the metrics of one broker. Returns
    the exit code."""
    partitions = partitions_of(await admin.cluster.metadata())
    broker = await _find(admin, arguments.id)
    (held,) = await ask(admin, [NodeId(broker.id)], timeout_s=LIST_TIMEOUT_S)
    row = _row(broker, partitions, held.size_bytes)
    reasons = list(broker_reasons(broker))
    if arguments.format == "json":
        print_json({**row, "reasons": reasons, "node": asdict(broker)})
        return 0
    facts: list[tuple[str, object]] = list(zip(COLUMNS, _cells(row), strict=True))
    facts += [("reason", reason) for reason in reasons]
    facts += [("warning", warning) for warning in broker.warnings]
    print_table(("FACT", "VALUE"), [(name.replace("_", " "), value) for name, value in facts])
    say()
    numbers = sorted(broker.metrics.items())
    whole = [(name, int(value) if value.is_integer() else value) for name, value in numbers]
    print_table(("METRIC", "VALUE"), whole)
    return 0


async def drain(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla broker drain`: transfer the partition leaderships of brokers to other brokers, if the
    user confirms. With --undo, allow the brokers to lead partitions again. Returns 0 when all
    brokers have finished.

    Without --force, raises RefusedError if a partition would have no leader.
    """
    brokers = await _chosen(admin, arguments)
    if not (arguments.undo or arguments.force):
        await check_drain(admin, brokers)
    names = ", ".join(str(broker.id) for broker in brokers)
    question = f"move all leaderships of broker {names} to others?"
    if not arguments.undo and not await confirm_in_loop(arguments, question):
        return 0
    await drain_brokers(admin, brokers, undo=arguments.undo)
    if arguments.format == "json":
        found = [{"id": broker.id, "drained": not arguments.undo} for broker in brokers]
        print_json(found[0] if len(found) == 1 else found)
        return 0
    for broker in brokers:
        if arguments.undo:
            say(f"broker {broker.id} takes part again")
        else:
            say(
                f"broker {broker.id} is drained: it leads nothing until it starts again, or "
                f"'ottla broker drain {broker.id} --undo'"
            )
    return 0


async def _chosen(admin: Admin, arguments: argparse.Namespace) -> list[SurveyedBroker]:
    """Return the brokers that the command line selects, by broker ids or by host. Raises
    RefusedError if a broker or the host does not exist."""
    if bool(arguments.ids) == bool(arguments.host):
        raise ConfigError("ID", "or --host must be given, and not both")
    if arguments.ids:
        return [await _find(admin, broker_id) for broker_id in arguments.ids]
    found = brokers_at(await brokers_of(admin), arguments.host)
    if not found:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"no broker is at host {arguments.host!r}; see the addresses in 'ottla broker list'",
        )
    return found


def brokers_at(brokers: Sequence[SurveyedBroker], host: str) -> list[SurveyedBroker]:
    """Return the brokers on a host. `host` is the brokers' advertised address or their failure
    domain. Brokers that share the failure domain under another address are included."""
    named = [one for one in brokers if host in (one.host, one.machine)]
    machines = {one.machine for one in named if one.machine}
    return [one for one in brokers if one in named or one.machine in machines]


def _broker_ids(text: str) -> list[int]:
    """Return the broker ids in a text such as `100-107` or `1,2`, without duplicates."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise argparse.ArgumentTypeError(
                f"is {text!r}; it must be ids such as 1, 1,2 or 100-107"
            )
        ids = range(int(first), int(last or first) + 1)
        if not 0 < len(ids) <= DRAINED_MAX:
            raise argparse.ArgumentTypeError(f"{part.strip()} is not 1 to {DRAINED_MAX} brokers")
        found.update(dict.fromkeys(ids))
    return list(found)


async def _find(admin: Admin, broker_id: int) -> SurveyedBroker:
    for broker in await brokers_of(admin, only=broker_id):
        return broker
    raise RefusedError(
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        f"there is no broker {broker_id} in this cluster; see 'ottla broker list'",
    )


def _row(
    broker: SurveyedBroker, partitions: list[SurveyedPartition], size_bytes: int | None
) -> dict[str, Any]:
    return {
        "id": broker.id,
        "address": broker.address,
        "rack": broker.rack,
        "machine": broker.machine,
        "state": broker_standing(broker),
        "cordoned": broker.is_cordoned,
        "epoch": broker.epoch,
        **counts_of(broker, partitions),
        "bytes": size_bytes,
        "free_bytes": broker.usable_bytes,
    }


def _cells(row: dict[str, Any]) -> list[object]:
    shown = {**row, "state": shown_standing(row["state"], row["cordoned"])}
    return [
        ByteCount(shown[column]) if column in SIZES and shown[column] is not None else shown[column]
        for column in COLUMNS
    ]


VERBS = (
    admin_verb(
        "list",
        "list all registered brokers, with the bytes of their logs and on their disks",
        list_brokers,
    ),
    admin_verb(
        "describe", "show one broker", describe, option("id ID", "node.id of the broker", type=int)
    ),
    admin_verb(
        "drain",
        "move the leaderships of brokers to others; they keep their replicas",
        drain,
        option("--undo", "allow them to lead again"),
        option("--force", "drain them although partitions are left without a leader"),
        YES,
        option("--host HOST", "all brokers of a host, by its name in their addresses"),
        option(
            "ids ID",
            "node.id of the broker; several as 1,2 or 100-107",
            type=_broker_ids,
            nargs="?",
        ),
    ),
    CORDON,
    LOG_DIRS,
    UNREGISTER,
    REMOVE,
)
