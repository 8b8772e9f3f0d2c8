"""Collects the files of a support archive from the cluster. Each file is collected separately, so
that only one file is missing if a request fails."""

import platform
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.cli.cluster.status import status_of
from ottla.cli.cluster.support.plain_values import plain, settings_of
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.insight.facts.log_dirs_driver import ask_bytes
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.insight.facts.survey_driver import brokers_of, registered
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.resources import ConfigKind
from ottla.model.version import VERSION

Section = Callable[[Admin], Awaitable[Any]]

TOPICS_AT_ONCE = 500
"""Number of topics whose settings `ottla bundle` reads by one request."""


async def _brokers(admin: Admin) -> Any:
    return plain(await brokers_of(admin))


async def _topics(admin: Admin) -> Any:
    """Return the replicas, the leader and the in-sync replicas of each partition, for the support
    archive."""
    return {
        topic.name or "": {
            row.partition_index: {
                "leader": row.leader_id,
                "leader_epoch": row.leader_epoch,
                "replicas": list(row.replica_nodes),
                "isr": list(row.isr_nodes),
                "offline": list(row.offline_replicas),
            }
            for row in topic.partitions
        }
        for topic in (await admin.cluster.metadata()).topics
    }


async def _topic_settings(admin: Admin) -> Any:
    names = sorted(await admin.list_topics())
    found: dict[str, Any] = {}
    for at in range(0, len(names), TOPICS_AT_ONCE):
        asked = [ConfigResource(ConfigKind.TOPIC, name) for name in names[at:][:TOPICS_AT_ONCE]]
        for resource, entries in (await admin.try_describe_configs(asked)).items():
            if isinstance(entries, RefusedError):
                found[resource.name] = str(entries)
            else:
                found[resource.name] = settings_of(entries)
    return found


async def _broker_settings(admin: Admin) -> Any:
    found: dict[str, Any] = {
        "cluster": settings_of(await admin.describe_configs(ConfigResource(ConfigKind.BROKER, "")))
    }
    for broker in await registered(admin):
        if not broker.is_fenced:
            found[str(broker.id)] = settings_of(await admin.broker_configs(NodeId(broker.id)))
    return found


async def _features(admin: Admin) -> Any:
    return plain(await admin.describe_features())


async def _groups(admin: Admin) -> Any:
    return plain(await admin.list_groups())


async def _transactions(admin: Admin) -> Any:
    return plain(await admin.list_transactions())


async def _moves(admin: Admin) -> Any:
    plan = await read_stored_plan(admin)
    return {"balance": plain(plan), "reassignments": plain(await admin.list_reassignments())}


async def _log_directories(admin: Admin) -> Any:
    return plain(await ask_bytes(admin))


async def _machine(admin: Admin) -> Any:
    """Return the versions of Ottla, Python and the platform on which this command runs, for the
    support archive."""
    return {"ottla": VERSION, "python": sys.version, "platform": platform.platform()}


SECTIONS: dict[str, Section] = {
    "status": status_of,
    "brokers": _brokers,
    "broker-settings": _broker_settings,
    "topics": _topics,
    "topic-settings": _topic_settings,
    "log-directories": _log_directories,
    "features": _features,
    "groups": _groups,
    "transactions": _transactions,
    "moves": _moves,
    "command": _machine,
}
"""Functions that collect the files of the support archive, by file name without extension. No file
contains users, ACLs, tokens or records."""
