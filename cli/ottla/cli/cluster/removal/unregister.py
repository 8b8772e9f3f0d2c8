"""`ottla broker unregister`: removes the registration of a stopped broker without replicas
(KIP-500)."""

import argparse

from ottla.cli.common import print_json
from ottla.cli.confirmation import YES, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.changes.broker_registrations_driver import check_unregister, unregister_broker


async def unregister(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla broker unregister`: unregister a broker if the user confirms. Returns the exit code.

    Without --force, raises RefusedError if the broker is alive or has replicas.
    """
    broker_id = arguments.id
    if not arguments.force:
        await check_unregister(admin, broker_id)
    if not await confirm_in_loop(arguments, f"delete the registration of broker {broker_id}?"):
        return 0
    left = await unregister_broker(admin, broker_id)
    if left:
        note(left)
    if arguments.format == "json":
        print_json({"id": broker_id, "unregistered": True})
    else:
        say(f"broker {broker_id} is unregistered")
    return 0


UNREGISTER = admin_verb(
    "unregister",
    "remove a stopped broker that holds no replica from the cluster's metadata",
    unregister,
    option("id ID", "node.id of the broker", type=int),
    option(
        "--force", "unregister it although it runs or has replicas; one that runs must be restarted"
    ),
    YES,
    description="The request itself has no condition, as in Kafka, whose tool "
    "'kafka-cluster unregister' forgets a running broker at once; this command checks first. "
    "Partitions that still name the broker afterwards are listed.",
)
