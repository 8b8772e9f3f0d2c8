"""Cordoning of brokers: new topics and balances place no replicas on a cordoned broker
(KIP-1066)."""

import trio

from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.insight.facts.survey_driver import not_registered, registered, registrations_of
from ottla.model.settings.resources import AlterOperation, ConfigKind
from ottla.model.settings.storage.cordoned import ALL_DIRECTORIES, CORDONED_LOG_DIRS
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

SEEN_TIMEOUT_S = 5.0
SEEN_AGAIN_S = 0.05


async def cordon_broker(admin: Admin, broker_id: int, *, is_cordoned: bool) -> None:
    """Cordon a registered broker, or end its cordon. Raises RefusedError if no such broker is
    registered.

    Returns when the broker has reported its new state, so that the next request sees that state,
    but after SEEN_TIMEOUT_S at the latest. A stopped broker reports no state.
    """
    found = next((one for one in await registered(admin) if one.id == broker_id), None)
    if found is None:
        raise not_registered(broker_id)
    await set_cordon(admin, broker_id, is_cordoned=is_cordoned)
    with trio.move_on_after(0 if found.is_fenced else SEEN_TIMEOUT_S):
        while await _is_reported(admin, broker_id) is not is_cordoned:
            await trio.sleep(SEEN_AGAIN_S)


async def _is_reported(admin: Admin, broker_id: int) -> bool | None:
    """Return whether a broker has reported itself as cordoned, or None if its report is unknown."""
    found = (await registrations_of(admin)).brokers.get(broker_id)
    return None if found is None else found.is_cordoned


async def set_cordon(admin: Admin, broker_id: int, *, is_cordoned: bool) -> None:
    """Cordon all log directories of a broker (place no new replicas there), or end their cordon.

    The request is sent to any broker, since the cordoned broker may have stopped.
    """
    config = AlterableConfig(
        name=CORDONED_LOG_DIRS,
        config_operation=AlterOperation.SET if is_cordoned else AlterOperation.DELETE,
        value=ALL_DIRECTORIES if is_cordoned else None,
    )
    resource = AlterConfigsResource(
        resource_type=ConfigKind.BROKER, resource_name=str(broker_id), configs=[config]
    )
    answer = await admin.cluster.request(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
    )
    for row in answer.responses:
        raise_for(row.error_code, f"broker {broker_id}: {row.error_message}")
