"""`ottla broker cordon`: prevents the placement of new replicas on a broker (KIP-1066).

A cordoned broker keeps its present replicas. New topics and the balancer place no replicas on it.
"""

import argparse

from ottla.cli.common import print_json
from ottla.cli.options import option
from ottla.cli.terminal import say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.changes.cordon_driver import cordon_broker


async def cordon(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla broker cordon`: prevent the placement of new replicas on a broker, or allow it again
    with --undo. Returns the exit code."""
    broker_id = arguments.id
    await cordon_broker(admin, broker_id, is_cordoned=not arguments.undo)
    if arguments.format == "json":
        print_json({"id": broker_id, "cordoned": not arguments.undo})
    elif arguments.undo:
        say(f"broker {broker_id} gets new replicas again")
    else:
        say(
            f"broker {broker_id} gets no new replica until 'ottla broker cordon {broker_id} "
            "--undo'; it keeps those that it has"
        )
    return 0


CORDON = admin_verb(
    "cordon",
    "give a broker no new replicas; it keeps those that it has",
    cordon,
    option("--undo", "let it get new replicas again"),
    option("id ID", "node.id of the broker", type=int),
)
