"""`ottla metrics subscriptions|clients|tail`: what clients report of themselves (KIP-714)."""

import argparse

from ottla.cli.common import add_cluster_arguments, add_format_argument, bootstrap_of, run_async
from ottla.cli.metrics import metrics_clients, metrics_subscriptions, metrics_tail
from ottla.client.admin import open_admin

VERBS = {
    "subscriptions": metrics_subscriptions.run,
    "clients": metrics_clients.run,
    "tail": metrics_tail.run,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla metrics'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    subscriptions = verbs.add_parser(
        "subscriptions", help="list, set and delete subscriptions to metrics of clients"
    )
    clients = verbs.add_parser(
        "clients", help="show clients that push metrics, which ones, and how often"
    )
    tail = verbs.add_parser("tail", help="print metrics as clients push them")
    leaves = [*metrics_subscriptions.configure(subscriptions), clients, tail]
    metrics_clients.configure(clients)
    metrics_tail.configure(tail)
    for leaf in leaves:
        add_cluster_arguments(leaf)
        add_format_argument(leaf)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            return await VERBS[arguments.verb](admin, arguments)

    return run_async(body)
