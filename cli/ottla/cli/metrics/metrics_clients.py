"""`ottla metrics clients`: which clients report, to which broker, what and how often."""

import argparse
from dataclasses import asdict
from typing import Any

import trio

from ottla.cli.common import print_json, print_table
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_telemetry import ClientInstanceDescription
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NodeId
from ottla.storage.meta_properties import uuid_to_text

UNREACHABLE = 3
BROKER_TIMEOUT_S = 5.0
"""A broker that needs longer costs its own answer and nobody else's."""
COLUMNS = (
    "CLIENT INSTANCE",
    "CLIENT",
    "SOFTWARE",
    "FROM",
    "BROKER",
    "INTERVAL MS",
    "PUSHES",
    "BYTES",
    "PUSHED MS AGO",
    "STATE",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--client", metavar="ID", help="client id or client instance id (default: all)"
    )
    parser.add_argument(
        "--broker", type=int, metavar="ID", help="node.id of a broker (default: all)"
    )


async def run(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show every client that reports; exit code 3 when a broker did not say."""
    found, failures = await clients_of(admin, only=arguments.broker)
    shown = [one for one in found if is_called(one, arguments.client)]
    if arguments.format == "json":
        print_json([as_json(one) for one in shown])
    else:
        print_table(COLUMNS, [_cells(one) for one in shown])
        if not (shown or failures):
            note("no client reports; 'ottla metrics subscriptions list' tells what is asked for")
    for failure in failures:
        note(f"ottla metrics: {failure}")
    return UNREACHABLE if failures else 0


async def clients_of(
    admin: Admin, *, only: int | None = None
) -> tuple[list[ClientInstanceDescription], list[str]]:
    """Ask every broker (or `only` one) at once; return clients by name, and who did not answer."""
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
    """Return the brokers to ask."""
    nodes = [broker.node for broker in (await admin.describe_cluster()).brokers]
    return nodes if only is None else [NodeId(only)]


def is_called(client: ClientInstanceDescription, name: str | None) -> bool:
    """Return whether a client is the one that is asked for."""
    return name in (None, client.client_id, uuid_to_text(client.client_instance_id))


def as_json(client: ClientInstanceDescription) -> dict[str, Any]:
    """Return all that is known of a client."""
    return {
        **asdict(client),
        "client_instance_id": uuid_to_text(client.client_instance_id),
        "metrics": list(client.metrics),
        "last_error": client.last_error.name,
    }


def state_of(client: ClientInstanceDescription) -> str:
    """Say in a word how a client stands."""
    if client.is_terminating:
        return "terminating"
    if client.last_error != ErrorCode.NONE:
        return client.last_error.name
    if not client.metrics:
        return "not asked"
    return "reporting" if client.push_count else "asked"


def _cells(client: ClientInstanceDescription) -> tuple[object, ...]:
    return (
        uuid_to_text(client.client_instance_id),
        client.client_id or None,
        f"{client.software_name} {client.software_version}".strip() or None,
        f"{client.source_address}:{client.source_port}",
        client.node,
        client.interval_ms,
        client.push_count,
        client.push_bytes,
        client.last_push_ms_ago,
        state_of(client),
    )
