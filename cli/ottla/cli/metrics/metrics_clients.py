"""`ottla metrics clients`: lists the clients that push metrics, each with its broker, metrics and
push interval."""

import argparse
from dataclasses import asdict
from typing import Any

import trio

from ottla.cli.common import print_json
from ottla.cli.options import Declared, option
from ottla.cli.tables import ByteCount, Identifier, Milliseconds, print_table
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_telemetry import ClientInstanceDescription
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NodeId
from ottla.storage.directories.meta_properties import uuid_to_text

UNREACHABLE = 3
BROKER_TIMEOUT_S = 5.0
"""Maximum seconds that `ottla metrics clients` waits for one broker. The clients of a slower broker
are not shown."""
COLUMNS = (
    "CLIENT-INSTANCE",
    "CLIENT",
    "SOFTWARE",
    "FROM",
    "BROKER",
    "INTERVAL",
    "PUSHES",
    "BYTES",
    "PUSHED-AGO",
    "STATE",
)


OPTIONS: tuple[Declared, ...] = (
    option("--client ID", "client id or client instance id (default: all)"),
    option("--broker ID", "node.id of a broker (default: all)", type=int),
)


async def run(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla metrics clients`: show every client that pushes metrics. Returns exit code 3 if a
    broker did not respond."""
    found, failures = await clients_of(admin, only=arguments.broker)
    shown = [one for one in found if is_called(one, arguments.client)]
    if arguments.format == "json":
        print_json([as_json(one) for one in shown])
    else:
        print_table(COLUMNS, [_cells(one) for one in shown])
        if not (shown or failures):
            note("no client pushes metrics; see 'ottla metrics subscriptions list'")
    for failure in failures:
        note(f"ottla metrics: {failure}")
    return UNREACHABLE if failures else 0


async def clients_of(
    admin: Admin, *, only: int | None = None
) -> tuple[list[ClientInstanceDescription], list[str]]:
    """Request the clients that push metrics from every broker concurrently, or only from the broker
    `only`. Returns the clients sorted by name, and the errors of brokers that did not respond."""
    found: list[ClientInstanceDescription] = []
    failures: list[str] = []

    async def ask(node: NodeId) -> None:
        try:
            with trio.fail_after(BROKER_TIMEOUT_S):
                found.extend(await admin.describe_client_instances(node))
        except trio.TooSlowError:
            failures.append(f"broker {node} did not answer in {BROKER_TIMEOUT_S:g} s")
        except OttlaError as error:
            failures.append(f"broker {node}: {error}")

    async with trio.open_nursery() as nursery:
        for node in await brokers_of(admin, only):
            nursery.start_soon(ask, node)
    found.sort(key=lambda one: (one.client_id or "", one.node, one.client_instance_id))
    return found, failures


async def brokers_of(admin: Admin, only: int | None) -> list[NodeId]:
    """Return the ids of the brokers from which the command requests client metrics: the broker
    `only`, or all brokers if `only` is None."""
    nodes = [broker.node for broker in (await admin.describe_cluster()).brokers]
    return nodes if only is None else [NodeId(only)]


def is_called(client: ClientInstanceDescription, name: str | None) -> bool:
    """Return whether a client that pushes metrics has the client id or client instance id `name`.
    Returns True if `name` is None."""
    return name in (None, client.client_id, uuid_to_text(client.client_instance_id))


def as_json(client: ClientInstanceDescription) -> dict[str, Any]:
    """Return all known properties of a client that pushes metrics, as the JSON object that the
    command prints."""
    return {
        **asdict(client),
        "client_instance_id": uuid_to_text(client.client_instance_id),
        "metrics": list(client.metrics),
        "last_error": client.last_error.name,
    }


def state_of(client: ClientInstanceDescription) -> str:
    """Return the state of a client that pushes metrics: "terminating", "reporting", "asked"
    (metrics were requested), "not asked", or the name of the client's last error."""
    if client.is_terminating:
        return "terminating"
    if client.last_error != ErrorCode.NONE:
        return client.last_error.name
    if not client.metrics:
        return "not asked"
    return "reporting" if client.push_count else "asked"


def _cells(client: ClientInstanceDescription) -> tuple[object, ...]:
    return (
        Identifier(uuid_to_text(client.client_instance_id)),
        client.client_id or None,
        f"{client.software_name} {client.software_version}".strip() or None,
        f"{client.source_address}:{client.source_port}",
        client.node,
        Milliseconds(client.interval_ms),
        client.push_count,
        ByteCount(client.push_bytes),
        None if client.last_push_ms_ago is None else Milliseconds(client.last_push_ms_ago),
        state_of(client),
    )
