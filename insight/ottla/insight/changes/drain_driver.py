"""Drains brokers (moves their partition leaderships to other brokers), and ends drains."""

from collections.abc import Sequence

import trio

from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.client.network.connection import ConnectionLostError
from ottla.insight.facts.survey_driver import SurveyedBroker, partitions_of, registered
from ottla.insight.rules.draining import check_leaders_remain
from ottla.model.errors import OttlaError
from ottla.wire.messages.drain_broker_request import DrainBrokerRequest
from ottla.wire.messages.drain_broker_response import DrainBrokerResponse

DRAIN_TIMEOUT_S = 40.0
"""Maximum wait, in seconds, for the response to a DrainBroker request. With a shorter wait, the
change would fail before the broker can report that the controller is slow."""
CONNECT_TIMEOUT_S = 10.0
SEEN_TIMEOUT_S = 5.0
SEEN_AGAIN_S = 0.02


async def check_drain(admin: Admin, brokers: Sequence[SurveyedBroker]) -> None:
    """Raise RefusedError if a partition would be left without a leader once all the given brokers
    are drained."""
    partitions = partitions_of(await admin.cluster.metadata())
    check_leaders_remain({one.id for one in brokers}, partitions)


async def drain_brokers(admin: Admin, brokers: Sequence[SurveyedBroker], *, undo: bool) -> None:
    """Drain brokers concurrently, so that no drained broker gets partition leaderships from another
    one. With `undo`, end the drains instead. Raises the first error after all brokers have
    responded."""
    errors: list[OttlaError] = []

    async def one(broker: SurveyedBroker) -> None:
        try:
            await _drain_one(admin, broker, undo=undo)
        except OttlaError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(one, broker)
    if errors:
        raise errors[0]


async def _drain_one(admin: Admin, broker: SurveyedBroker, *, undo: bool) -> None:
    try:
        with trio.fail_after(DRAIN_TIMEOUT_S):
            # A connection of its own: other requests to the broker do not wait for the drain.
            connection = await admin.cluster.connect(
                (broker.host, broker.port), client_id="ottla", timeout_s=CONNECT_TIMEOUT_S
            )
            try:
                answer = await connection.request(
                    DrainBrokerRequest(undo=undo), DrainBrokerResponse
                )
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                    await connection.aclose()
    except trio.TooSlowError:
        raise ConnectionLostError(
            f"broker {broker.id} did not answer in {DRAIN_TIMEOUT_S:g} s; "
            f"see 'ottla broker describe {broker.id}'"
        ) from None
    raise_for(answer.error_code, f"broker {broker.id}: {answer.error_message}")
    await _wait_seen(admin, broker.id, is_fenced=not undo)


async def _wait_seen(admin: Admin, broker_id: int, *, is_fenced: bool) -> None:
    """Wait until the broker that responds to this client's requests knows that `broker_id` is
    fenced or unfenced, but no longer than SEEN_TIMEOUT_S. The next request then finds the new
    state."""
    with trio.move_on_after(SEEN_TIMEOUT_S):
        while any(
            broker.id == broker_id and broker.is_fenced != is_fenced
            for broker in await registered(admin)
        ):
            await trio.sleep(SEEN_AGAIN_S)
