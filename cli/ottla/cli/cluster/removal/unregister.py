"""`ottla broker unregister`: removes the registration of a stopped broker without replicas
(KIP-500)."""

import argparse

import trio

from ottla.cli.cluster.moves.reassignment_requests import places_of
from ottla.cli.common import counted, print_json
from ottla.cli.confirmation import YES, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.insight.facts.survey_driver import (
    SurveyedBroker,
    brokers_of,
    not_registered,
    registered,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse

SEEN_TIMEOUT_S = 5.0
SEEN_AGAIN_S = 0.02


async def unregister(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla broker unregister`: unregister a broker if the user confirms. Returns the exit code.

    Raises RefusedError if the broker is alive or has replicas, unless --force is given.
    """
    broker_id = arguments.id
    if not arguments.force:
        await _check_idle(admin, broker_id)
    if not await confirm_in_loop(arguments, f"delete the registration of broker {broker_id}?"):
        return 0
    await request_unregister(admin, broker_id)
    await note_left(admin, broker_id)
    if arguments.format == "json":
        print_json({"id": broker_id, "unregistered": True})
    else:
        say(f"broker {broker_id} is unregistered")
    return 0


async def request_unregister(admin: Admin, broker_id: int) -> None:
    """Ask the controller to unregister a broker. Returns when the broker that answers this
    command's requests knows that it is unregistered."""
    answer = await admin.cluster.request(
        UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse
    )
    if answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        raise not_registered(broker_id)
    raise_for(answer.error_code, f"broker {broker_id}: {answer.error_message}")
    with trio.move_on_after(SEEN_TIMEOUT_S):
        while any(one.id == broker_id for one in await registered(admin)):
            await trio.sleep(SEEN_AGAIN_S)


async def note_left(admin: Admin, broker_id: int) -> None:
    """Print the partitions that still list an unregistered broker as a replica, such as partitions
    created while it was removed."""
    held = [one for one in await places_of(admin, None) if broker_id in one.replicas]
    if held:
        note(
            f"broker {broker_id} is still a replica of {counted(len(held), 'partition')} "
            f"({held[0].name}); 'ottla topic reassign --evacuate {broker_id} --yes' moves them"
        )


def is_running(broker: SurveyedBroker) -> bool:
    """Return whether a broker is running: either the controllers receive its heartbeats, or it
    answers requests."""
    return not (broker.is_fenced and broker.failure)


async def _check_idle(admin: Admin, broker_id: int) -> None:
    found = await brokers_of(admin, only=broker_id)
    if not found:
        raise not_registered(broker_id)
    if is_running(found[0]):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} is running; stop it first, or use "
            f"'ottla broker remove {broker_id}', which leads through all steps",
        )
    held = [one for one in await places_of(admin, None) if broker_id in one.replicas]
    if held:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} is a replica of {counted(len(held), 'partition')} "
            f"({held[0].name}); 'ottla broker remove {broker_id}' moves them first",
        )


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
