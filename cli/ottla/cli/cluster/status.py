"""`ottla status`: shows the health of the cluster, and the reasons if the cluster is unhealthy."""

import argparse
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from math import ceil
from typing import Any, NamedTuple, NoReturn, TypeVar

import trio

from ottla.cli.common import CONNECTION, FORMAT, bootstrap_of, counted, print_json, run_async
from ottla.cli.options import Declared, one_of, option
from ottla.cli.tables import print_table, table
from ottla.cli.terminal import Colour, clear_screen, say_block
from ottla.client.admin import Admin, open_admin
from ottla.client.network.connection import ConnectionLostError
from ottla.insight.facts.survey_driver import (
    Survey,
    SurveyedBroker,
    SurveyedQuorum,
    partitions_of,
    survey,
)
from ottla.insight.rules.disk import TIER_BYTES, TIER_LAG_BYTES
from ottla.insight.rules.health import (
    broker_standing,
    is_under_min_insync,
    reasons_of,
    shown_standing,
    warnings_of,
)
from ottla.model.amounts import amount
from ottla.model.errors import ConfigError, RefusedError, code_of
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import DescribeNodeResponse, RecoveringLogDir

T = TypeVar("T")

LAGGARD_COLUMNS = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "MISSING")
HEALTHY = 0
UNHEALTHY = 2
TIMEOUT_S = 10.0
WATCH_S = 2.0
"""Interval, in seconds, between two surveys of the cluster by `ottla status --watch`."""
COLOURS = {
    "healthy": Colour.GREEN,
    "NOT HEALTHY": Colour.RED,
    "unreachable": Colour.RED,
    "  warning": Colour.YELLOW,
    "BROKER": Colour.BOLD,
    "CONTROLLER": Colour.BOLD,
}
RATE_INTERVAL_S = 1.0
"""Seconds between the two samples from which the rate of a log recovery is computed. With a shorter
interval, the rate is inexact. With a longer interval, the user waits longer."""


OPTIONS: tuple[Declared, ...] = (
    *CONNECTION,
    FORMAT,
    one_of(
        option("--watch", f"refresh every {WATCH_S:g} s until Ctrl-C"),
        option(
            "--under-replicated",
            "show only the partitions with replicas that are not in sync; exit code 2 if there are "
            "any",
        ),
    ),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla status`: print the state of the cluster. Returns exit code 0 if it is healthy, 2 if
    not."""

    if arguments.watch and arguments.format == "json":
        raise ConfigError("--watch", "shows a table only; leave out --format json")

    async def body() -> int:
        if arguments.under_replicated:
            missing = await _asked(arguments, under_replicated)
            if arguments.format == "json":
                print_json([one._asdict() for one in missing])
            else:
                print_table(LAGGARD_COLUMNS, missing)
            return UNHEALTHY if missing else HEALTHY
        if arguments.watch:
            await _watch(lambda: _found(arguments))
        found = await _found(arguments)
        if arguments.format == "json":
            print_json(found)
        else:
            say_block(shown(found), colours=COLOURS)
        return HEALTHY if found["healthy"] else UNHEALTHY

    return run_async(body)


async def _watch(look: Callable[[], Awaitable[dict[str, Any]]]) -> NoReturn:
    """Show the state of the cluster repeatedly, until interrupted. A cluster that does not respond
    is shown as unreachable."""
    while True:
        try:
            text = shown(await look())
        except (RefusedError, ConnectionLostError) as error:
            text = f"unreachable: {error}"
        clear_screen()
        say_block(text, is_flushed=True, colours=COLOURS)
        await trio.sleep(WATCH_S)


async def _found(arguments: argparse.Namespace) -> dict[str, Any]:
    return await _asked(arguments, status_of)


async def _asked(arguments: argparse.Namespace, question: Callable[[Admin], Awaitable[T]]) -> T:
    try:
        with trio.fail_after(TIMEOUT_S):
            async with open_admin(bootstrap_of(arguments)) as admin:
                return await question(admin)
    except trio.TooSlowError:
        raise ConnectionLostError(f"the cluster did not answer in {TIMEOUT_S:g} s") from None


class UnderReplicated(NamedTuple):
    """A partition with replicas that are not in sync. `missing` contains the broker ids of these
    replicas."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    missing: list[int]


async def under_replicated(admin: Admin) -> list[UnderReplicated]:
    """Return the partitions with replicas that are not in sync, in order of topics."""
    return [
        UnderReplicated(
            topic=one.topic,
            partition=int(one.name.rpartition("-")[2]),
            leader=one.leader_id if one.leader_id >= 0 else None,
            replicas=one.replicas,
            isr=one.isr,
            missing=[node for node in one.replicas if node not in one.isr],
        )
        for one in partitions_of(await admin.cluster.metadata())
        if one.is_under_replicated
    ]


async def status_of(admin: Admin) -> dict[str, Any]:
    """Survey the cluster. Returns its state as the JSON object that `ottla status` prints."""
    try:
        return judged(await survey(admin))
    except (RefusedError, ConnectionLostError):
        return await _starting(admin)


def judged(found: Survey) -> dict[str, Any]:
    """Return the survey of a cluster as the JSON object that `ottla status` prints, together with
    the reasons and warnings about its health."""
    reasons = reasons_of(found)
    return {
        "healthy": not reasons,
        "reasons": reasons,
        "warnings": warnings_of(found),
        "cluster_id": found.cluster_id,
        "quorum": quorum_json(found.quorum),
        "brokers": [_broker_json(broker) for broker in found.brokers],
        "partitions": {
            "total": len(found.partitions),
            "leaderless": sum(one.leader_id < 0 for one in found.partitions),
            "under_min_isr": sum(
                is_under_min_insync(one, found.min_insync) for one in found.partitions
            ),
            "under_replicated": sum(one.is_under_replicated for one in found.partitions),
        },
        "tier": tier_totals(found.brokers),
        "balance": {
            "moves_left": len(found.balance.moves),
            "throttle_bytes_per_s": found.balance.rate,
        }
        if found.balance.moves
        else None,
    }


def tier_totals(brokers: Iterable[SurveyedBroker]) -> dict[str, int] | None:
    """Return the tiered storage's totals over all brokers, by name: copied segments and their
    bytes, segments that wait to be copied and their bytes, failures. Returns None if no broker has
    tiered storage."""
    tiered = [broker.metrics for broker in brokers if TIER_BYTES in broker.metrics]
    if not tiered:
        return None
    return {
        name: int(sum(metrics.get(metric, 0) for metrics in tiered))
        for name, metric in (
            ("copied_bytes", TIER_BYTES),
            ("copied_segments", "tier.remote.segments"),
            ("waiting_bytes", TIER_LAG_BYTES),
            ("waiting_segments", "tier.lag.segments"),
            ("failures", "tier.failures"),
        )
    }


def quorum_json(quorum: SurveyedQuorum) -> dict[str, Any]:
    """Return the state of the controller quorum as a part of the JSON object that `ottla status`
    prints."""
    return {
        "leader_id": quorum.leader_id,
        "epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [asdict(voter) for voter in quorum.voters],
        "observers": [asdict(observer) for observer in quorum.observers],
    }


def _broker_json(broker: SurveyedBroker) -> dict[str, Any]:
    return {
        "id": broker.id,
        "address": broker.address,
        "rack": broker.rack,
        "standing": broker_standing(broker),
        "cordoned": broker.is_cordoned,
        "state": broker.state,
        "version": broker.version or None,
        "epoch": broker.epoch,
        "directories": [asdict(directory) for directory in broker.directories],
        "metrics": broker.metrics,
    }


def recovery_text(row: RecoveringLogDir, done_before: int) -> str:
    """Return a text with the progress of a log directory's recovery, and the estimated time left.

    `row` describes the recovery. `done_before` is the number of bytes that had been recovered
    `RATE_INTERVAL_S` seconds earlier.
    """
    text = f"recovered {min(100, 100 * row.bytes_done // row.bytes_total)} %"
    if row.remaining_segments:
        text += f", {row.remaining_segments} segments left"
    rate = (row.bytes_done - done_before) / RATE_INTERVAL_S
    left_bytes = row.bytes_total - row.bytes_done
    if rate > 0 and left_bytes > 0:
        text += f", some {ceil(left_bytes / rate)} s"
    return text


async def _starting(admin: Admin) -> dict[str, Any]:
    """Return the state of a broker that is still starting, for `ottla status`. Such a broker
    reports only its own state."""
    node = await admin.cluster.request(DescribeNodeRequest(), DescribeNodeResponse)
    if node.error_code:
        raise RefusedError(code_of(node.error_code), node.error_message)
    reason = f"broker {node.node_id} is not serving yet: {node.state}"
    if any(row.bytes_done < row.bytes_total for row in node.recovery):
        await trio.sleep(RATE_INTERVAL_S)
        later = await admin.cluster.request(DescribeNodeRequest(), DescribeNodeResponse)
        done_before = {row.log_dir: row.bytes_done for row in node.recovery}
        for row in later.recovery:
            if row.bytes_total:
                reason += f", {row.log_dir} {recovery_text(row, done_before.get(row.log_dir, 0))}"
    problems = [f"broker {node.node_id}: {problem}" for problem in node.problems]
    return {
        "healthy": False,
        "reasons": [reason, *problems],
        "warnings": [],
        "cluster_id": None,
        "quorum": quorum_json(SurveyedQuorum()),
        "brokers": [{"id": node.node_id, "state": node.state}],
        "partitions": {"total": 0, "leaderless": 0, "under_min_isr": 0, "under_replicated": 0},
    }


def shown(found: dict[str, Any]) -> str:
    """Return the state of the cluster as text for people. `found` is the JSON object that
    `status_of` returns."""
    quorum, partitions = found["quorum"], found["partitions"]
    rows = [
        (
            broker["id"],
            broker.get("address"),
            shown_standing(broker.get("standing", ""), broker.get("cordoned", False)) or None,
            broker["state"],
            broker.get("version"),
            _free_space(broker.get("directories", [])),
        )
        for broker in found["brokers"]
    ]
    lines = ["healthy" if found["healthy"] else "NOT HEALTHY"]
    lines += [f"  {reason}" for reason in found["reasons"]]
    lines += [f"  warning: {warning}" for warning in found["warnings"]]
    lines += [
        "",
        f"quorum      leader {quorum['leader_id']}, epoch {quorum['epoch']}, "
        f"high watermark {quorum['high_watermark']}, "
        f"voters {', '.join(str(v['id']) for v in quorum['voters']) or '-'}",
        f"partitions  {partitions['total']}, {partitions['leaderless']} without leader, "
        f"{partitions['under_replicated']} under-replicated",
        *_tier_lines(found.get("tier")),
        *_balance_lines(found.get("balance")),
        "",
        table(("BROKER", "ADDRESS", "STANDING", "STATE", "VERSION", "FREE"), rows),
        *_controller_lines(quorum),
    ]
    return "\n".join(lines)


def _controller_lines(quorum: dict[str, Any]) -> list[str]:
    """Return the lines of a table of the quorum's voters with their software versions. Empty if the
    quorum did not respond."""
    rows = [
        (
            one["id"],
            one["address"] or None,
            "leader" if one["id"] == quorum["leader_id"] else "voter",
            one["lag"],
            one["version"],
        )
        for one in quorum["voters"]
    ]
    return ["", table(("CONTROLLER", "ADDRESS", "ROLE", "LAG", "VERSION"), rows)] if rows else []


def _tier_lines(tier: dict[str, int] | None) -> list[str]:
    """Return a line about the copied segments in the object store. Empty if the cluster has no
    tiered storage."""
    if tier is None:
        return []
    line = (
        f"tier        {amount(tier['copied_bytes'])} in "
        f"{counted(tier['copied_segments'], 'segment')} copied"
    )
    if tier["waiting_segments"]:
        line += (
            f", {amount(tier['waiting_bytes'])} in "
            f"{counted(tier['waiting_segments'], 'segment')} wait"
        )
    if tier["failures"]:
        line += f", {counted(tier['failures'], 'failure')} of the object store"
    return [f"{line}; see 'ottla tier status'"]


def _balance_lines(balance: dict[str, int] | None) -> list[str]:
    """Return a line about the balance plan that the cluster carries out, or an empty list if there
    is no plan."""
    if balance is None:
        return []
    left, rate = counted(balance["moves_left"], "move"), amount(balance["throttle_bytes_per_s"])
    return [f"balance     {left} left, at most {rate}/s; see 'ottla cluster balance --status'"]


def _free_space(directories: list[dict[str, Any]]) -> str | None:
    """Return a text with the least free space of any broker, in bytes and percent. Returns None if
    no broker reported its free space."""
    measured = [one for one in directories if one["total_bytes"] > 0]
    if not measured:
        return None
    least = min(measured, key=lambda one: one["usable_bytes"] / one["total_bytes"])
    percent = 100 * least["usable_bytes"] / least["total_bytes"]
    return f"{amount(least['usable_bytes'])}, {percent:.0f} %"
