"""Deletes the registration of a stopped broker without replicas (KIP-500)."""

import trio

from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.insight.facts.replica_assignments import ReplicaAssignment, assignments_in
from ottla.insight.facts.survey_driver import (
    SurveyedBroker,
    brokers_of,
    not_registered,
    registered,
)
from ottla.model.amounts import counted
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse

SEEN_TIMEOUT_S = 5.0
SEEN_AGAIN_S = 0.02


def is_running(broker: SurveyedBroker) -> bool:
    """Return whether a broker is running: the controllers receive its heartbeats, or it answers
    requests."""
    return not (broker.is_fenced and broker.failure)


async def replicas_on(admin: Admin, broker_id: int) -> list[ReplicaAssignment]:
    """Return the replica assignments of the partitions that have a replica on a broker."""
    places = assignments_in(await admin.cluster.metadata())
    return [one for one in places if broker_id in one.replicas]


async def check_unregister(admin: Admin, broker_id: int) -> None:
    """Raise RefusedError if a broker is not registered, is running, or has replicas."""
    found = await brokers_of(admin, only=broker_id)
    if not found:
        raise not_registered(broker_id)
    if is_running(found[0]):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} is running; stop it first, or use "
            f"'ottla broker remove {broker_id}', which leads through all steps",
        )
    held = await replicas_on(admin, broker_id)
    if held:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} is a replica of {counted(len(held), 'partition')} "
            f"({held[0].name}); 'ottla broker remove {broker_id}' moves them first",
        )


async def unregister_broker(admin: Admin, broker_id: int) -> str:
    """Delete the registration of a broker, and wait until the broker that answers this client has
    applied the deletion.

    Returns a sentence about partitions that still list the broker as a replica, such as partitions
    created during the removal. Returns an empty text if there are no such partitions.
    """
    answer = await admin.cluster.request(
        UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse
    )
    if answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        raise not_registered(broker_id)
    raise_for(answer.error_code, f"broker {broker_id}: {answer.error_message}")
    with trio.move_on_after(SEEN_TIMEOUT_S):
        while any(one.id == broker_id for one in await registered(admin)):
            await trio.sleep(SEEN_AGAIN_S)
    held = await replicas_on(admin, broker_id)
    if not held:
        return ""
    return (
        f"broker {broker_id} is still a replica of {counted(len(held), 'partition')} "
        f"({held[0].name}); 'ottla topic reassign --evacuate {broker_id} --yes' moves them"
    )
