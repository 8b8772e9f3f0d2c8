"""Collects the data for one question of `ottla explain` by concurrent admin requests. Each request
has a timeout, so that a node without a response affects only its own data."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import GroupType
from ottla.client.admin_parts.admin_quotas import QuotaUsage
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.insight.facts.acl_facts import read_acl_facts
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.cluster_load_driver import cluster_load
from ottla.insight.facts.group_view import (
    committed_offsets,
    described_of_any_kind,
)
from ottla.insight.facts.hanging import open_transactions
from ottla.insight.facts.lags_driver import group_lag
from ottla.insight.facts.offsets import offsets_at
from ottla.insight.facts.removal_driver import removal_of
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.insight.facts.survey_driver import survey
from ottla.insight.facts.traffic_driver import sample
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NodeId, ProducerId, TopicPartition
from ottla.model.settings.balance import DEFAULT_RATE_MAX
from ottla.wire.offset_timestamps import LATEST

FACT_TIMEOUT_S = 15.0
"""Timeout in seconds for reading one kind of data from the cluster."""
OBSERVED_S = 6.0
"""Maximum time in seconds to wait for a commit by a group's member. A member that commits within
this time counts as reading. Clients commit every 5 s by default (auto.commit.interval.ms)."""
POLL_S = 0.5
TRAFFIC_S = 2.0
"""Interval between the two samples of traffic counters, in seconds."""
CLIENTS_MAX = 100
"""Maximum number of clients whose quota usage is read from each broker."""
PARTITIONS_MAX = 1_000
"""Maximum number of partitions whose open transactions are requested for one explanation."""
PRODUCERS_MAX = 50
"""Maximum number of producers whose transactions are looked up for one explanation."""

Facts = dict[str, Any]
Reader = Callable[[Admin, Mapping[str, str]], Awaitable[Facts]]


async def gather(admin: Admin, name: str, values: Mapping[str, str]) -> ClusterFacts:
    """Return the data about the cluster that answer the question `name` of `ottla explain`, such as
    "lag". The result also lists data that could not be read, with the reason."""
    found: Facts = {}
    missing: dict[str, str] = {}

    async def read(noun: str, reader: Reader) -> None:
        try:
            with trio.fail_after(FACT_TIMEOUT_S):
                found.update(await reader(admin, values))
        except trio.TooSlowError:
            missing[noun] = f"no answer in {FACT_TIMEOUT_S:g} s"
        except OttlaError as error:
            missing[noun] = str(error)

    async with trio.open_nursery() as nursery:
        for noun in READERS_OF[name]:
            nursery.start_soon(read, noun, READERS[noun])
    return ClusterFacts(
        now_ms=time.time_ns() // 1_000_000, missing=tuple(sorted(missing.items())), **found
    )


async def _survey(admin: Admin, values: Mapping[str, str]) -> Facts:
    return {"survey": await survey(admin)}


async def _acls(admin: Admin, values: Mapping[str, str]) -> Facts:
    return {"acls": await read_acl_facts(admin)}


async def _quotas(admin: Admin, values: Mapping[str, str]) -> Facts:
    return {"quotas": await admin.describe_quotas()}


async def _usage(admin: Admin, values: Mapping[str, str]) -> Facts:
    found: list[QuotaUsage] = []
    for broker in (await admin.describe_cluster()).brokers:
        found += await admin.describe_quota_usage(broker.node, count_max=CLIENTS_MAX)
    return {"usage": tuple(found)}


async def _group(admin: Admin, values: Mapping[str, str]) -> Facts:
    return {"group": await described_of_any_kind(admin, values["group"])}


async def _lags(admin: Admin, values: Mapping[str, str]) -> Facts:
    group = values["group"]
    description = await described_of_any_kind(admin, group)
    if description.type is GroupType.SHARE:
        return {}  # It has no committed offsets; the answer "delivery" explains it.
    began = trio.current_time()
    earlier = await committed_offsets(admin, group)
    found = await group_lag(admin, group, isolation_level="read_uncommitted")
    has_members = bool(description.members)
    stuck = {one.at for one in found.partitions if one.lag and has_members}
    while stuck and trio.current_time() < began + OBSERVED_S:
        await trio.sleep(POLL_S)
        later = await committed_offsets(admin, group)
        stuck = {at for at in stuck if later.get(at) == earlier.get(at)}
    if has_members and any(one.lag for one in found.partitions):
        found = await group_lag(admin, group, isolation_level="read_uncommitted")
    observed_ms = int(1_000 * (trio.current_time() - began))
    behind = [one.at for one in found.partitions if one.lag]
    ends = await offsets_at(admin.cluster, behind, LATEST, isolation_level="read_committed")
    held = [at for at in behind if ends[at] < (_end_of(found.partitions, at) or 0)]
    return {
        "lags": tuple(found.partitions),
        "earlier_commits": earlier,
        "observed_ms": observed_ms,
        "stable_ends": ends,
        **await _transactions_in(admin, held),
    }


def _end_of(partitions: list[Any], at: TopicPartition) -> int | None:
    return next((one.end for one in partitions if one.at == at), None)


async def _transactions(admin: Admin, values: Mapping[str, str]) -> Facts:
    topic = await admin.describe_topic(values["topic"])
    places = [
        TopicPartition(topic.name, one.partition)
        for one in topic.partitions
        if one.leader is not None
    ]
    return await _transactions_in(admin, places)


async def _transactions_in(admin: Admin, places: list[TopicPartition]) -> Facts:
    """Return the open transactions in partitions, and the corresponding transactions that
    coordinators know."""
    producers = await admin.describe_producers(places[:PARTITIONS_MAX])
    found = list(open_transactions(producers))
    ids = sorted({one.producer.producer_id for one in found})[:PRODUCERS_MAX]
    owners: dict[ProducerId, tuple[TransactionDescription, ...]] = {}
    for listed in await admin.list_transactions(producer_ids=ids) if ids else ():
        try:
            owner = await admin.describe_transaction(listed.transactional_id)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue  # The transactional id has expired since it was listed.
        owners[owner.producer_id] = (*owners.get(owner.producer_id, ()), owner)
    return {
        "open_transactions": tuple(one for one in found if one.producer.producer_id in ids),
        "transaction_owners": owners,
    }


async def _share_group(admin: Admin, values: Mapping[str, str]) -> Facts:
    group = values["group"]
    return {
        "share_group": await admin.describe_share_group(group),
        "share_offsets": await admin.share_group_offsets(group),
    }


async def _deliveries(admin: Admin, values: Mapping[str, str]) -> Facts:
    if not await admin.cluster.serves_own_requests():
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, "only brokers of Ottla report why records wait"
        )
    group = values["group"]
    offsets = await admin.share_group_offsets(group)
    return {"share_deliveries": await admin.share_group_deliveries(group, list(offsets))}


async def _log_dirs(admin: Admin, values: Mapping[str, str]) -> Facts:
    """Return facts about the log directories of the brokers that respond. Brokers that do not
    respond are reported by the survey of the cluster."""
    found: dict[int, tuple[Any, ...]] = {}

    async def ask(node: NodeId) -> None:
        try:
            with trio.fail_after(FACT_TIMEOUT_S / 3):
                found[int(node)] = tuple(await admin.describe_log_dirs(node))
        except (OttlaError, trio.TooSlowError):
            return

    async with trio.open_nursery() as nursery:
        for broker in (await admin.describe_cluster()).brokers:
            nursery.start_soon(ask, broker.node)
    return {"log_dirs": found}


async def _traffic(admin: Admin, values: Mapping[str, str]) -> Facts:
    before = await sample(admin)
    await trio.sleep(TRAFFIC_S)
    return {"traffic": (before, await sample(admin))}


async def _change(admin: Admin, values: Mapping[str, str]) -> Facts:
    """Return the data that a plan of a change of the cluster needs, such as loads. All of them are
    optional, because some changes depend only on the state of the cluster."""
    if not await admin.cluster.serves_own_requests():
        return {}
    if values["change"] == "balance":
        stored = await read_stored_plan(admin)
        if stored.moves:
            return {"stored_move_count": len(stored.moves)}
        return {"load": await cluster_load(admin)}
    broker = values.get("broker", "")
    if values["change"] == "remove-broker" and broker.isdecimal():
        try:
            return {"removal": await removal_of(admin, int(broker), DEFAULT_RATE_MAX)}
        except RefusedError as refusal:
            return {"refusal": refusal.message}
    return {}


READERS: dict[str, Reader] = {
    "state of the cluster": _survey,
    "ACLs": _acls,
    "quotas": _quotas,
    "usage of quotas": _usage,
    "members of the group": _group,
    "lag of the group": _lags,
    "open transactions": _transactions,
    "share group": _share_group,
    "deliveries of the share group": _deliveries,
    "log directories": _log_dirs,
    "traffic": _traffic,
    "planned change": _change,
}
"""Functions that read data about the cluster, by the noun phrase for the data."""
READERS_OF: dict[str, tuple[str, ...]] = {
    "health": ("state of the cluster",),
    "denial": ("ACLs",),
    "throttle": ("quotas", "usage of quotas", "state of the cluster"),
    "lag": (
        "members of the group",
        "lag of the group",
        "state of the cluster",
        "quotas",
        "usage of quotas",
    ),
    "unavailable": ("state of the cluster",),
    "rebalance": ("members of the group",),
    "slow": ("state of the cluster", "quotas", "usage of quotas", "log directories"),
    "disk": ("state of the cluster", "log directories"),
    "transaction": ("open transactions",),
    "delivery": ("share group", "deliveries of the share group"),
    "top": ("traffic",),
    "plan": ("planned change", "state of the cluster"),
}
"""Kinds of data, as noun phrases, that each question of `ottla explain` needs, by the question's
name."""
