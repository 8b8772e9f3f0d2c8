"""`ottla broker cordon`: prevents new replicas on a broker, which keeps its present replicas
(KIP-1066).

Neither new topics nor a balance place replicas on a cordoned broker.
"""

import argparse

from ottla.cli.common import print_json
from ottla.cli.options import option
from ottla.cli.terminal import say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.insight.facts.survey_driver import not_registered, registered
from ottla.model.settings.resources import AlterOperation, ConfigKind
from ottla.model.settings.storage.cordoned import ALL_DIRECTORIES, CORDONED_LOG_DIRS
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse


async def cordon(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla broker cordon`: cordon a broker (place no new replicas on it) or, with --undo, end
    that. Returns the exit code."""
    broker_id = arguments.id
    if all(one.id != broker_id for one in await registered(admin)):
        raise not_registered(broker_id)
    await set_cordon(admin, broker_id, is_cordoned=not arguments.undo)
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


CORDON = admin_verb(
    "cordon",
    "give a broker no new replicas; it keeps those that it has",
    cordon,
    option("--undo", "let it get new replicas again"),
    option("id ID", "node.id of the broker", type=int),
)
