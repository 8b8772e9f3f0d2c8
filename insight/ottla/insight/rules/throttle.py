"""Finds the limits that slow down clients and replicas: five quotas of clients, and the throttles
of replication and of moves between log directories. Pure."""

from collections.abc import Iterator, Mapping

from ottla.client.admin_parts.admin_quotas import QuotaOwner, QuotaUsage
from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    NameArgument,
    command,
    concluded,
)
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.survey_driver import LOG_DIRS_THROTTLE, MOVING_METRIC, Survey
from ottla.model.amounts import amount, duration
from ottla.model.quotas.quota_limits import QuotaEntity, limits_of
from ottla.model.settings.quotas import CONNECTION_CREATION_RATE, CONTROLLER_MUTATION_RATE

CLIENTS_MAX = 20
"""Maximum number of throttled clients in an explanation."""
DEFAULT = "<default>"
"""Name of a quota's default entity in Kafka's tools. Its quota applies to all users or client ids
without quotas of their own."""
REPLICATION = {"throttle.leader": "sent", "throttle.follower": "received"}
"""Names of the broker metrics with replication throttles, and the direction of the throttled
bytes."""


def explain_throttle(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the limits that slow down a client, or all clients and replicas."""
    named = [
        f"{noun} {values[key]}"
        for key, noun in (("user", "user"), ("client_id", "client id"), ("ip", "address"))
        if values.get(key)
    ]
    causes = [
        *usage_causes(facts, values),
        *(_unmeasured_causes(facts, values) if named else ()),
        *(replication_causes(facts.survey) if not named else ()),
    ]
    notes = [] if named else list(_unmeasured_notes(facts))
    subject = ", ".join(named) or "all clients and replicas"
    return concluded("throttle", subject, causes, notes=notes, unknown=facts.unknown)


def usage_causes(facts: ClusterFacts, values: Mapping[str, str]) -> list[Cause]:
    """Return a cause for each client that a broker throttles, the longest throttle first."""
    wanted_user, wanted_client = values.get("user"), values.get("client_id")
    found = [
        one
        for one in facts.usage or ()
        if (one.throttle_ms > 0 or one.rate >= one.limit)
        and (not wanted_user or one.user in ("", wanted_user))
        and (not wanted_client or one.client_id in ("", wanted_client))
    ]
    found.sort(key=lambda one: (-one.throttle_ms, one.node, one.key, one.user, one.client_id))
    return [_usage_cause(facts, one) for one in found[:CLIENTS_MAX]]


def _usage_cause(facts: ClusterFacts, one: QuotaUsage) -> Cause:
    parts = []
    if one.user:
        parts.append(f"user {one.user}")
    if one.client_id:
        parts.append(f"client id {one.client_id}")
    state = "is at" if one.throttle_ms <= 0 else "is above"
    delay = f", which delays it by {duration(one.throttle_ms)}" if one.throttle_ms > 0 else ""
    match = limits_of(facts.quotas or {}, one.key).find(one.user, one.client_id)
    owner = match.level.entity(one.user, one.client_id) if match else ()
    explain = ["quota", "explain", *_named("--user", one.user)]
    explain += _named("--client-id", one.client_id)
    return Cause(
        kind=f"quota-{one.key.replace('_', '-')}",
        summary=f"{' with '.join(parts) or 'a client'} {state} its {one.key} at broker {one.node}"
        f"{delay}",
        evidence=(
            Evidence("rate per second", round(one.rate, 3)),
            Evidence("limit per second", one.limit),
            Evidence("throttle time in ms", one.throttle_ms),
            Evidence("broker", int(one.node)),
        ),
        fix=_raised(owner, one.key, one.limit) if owner else "",
        more=command(*explain),
    )


def _named(option: str, value: str) -> tuple[str, ...]:
    return (option, NameArgument(value)) if value else ()


def _owner_words(owner: QuotaOwner) -> list[str]:
    return [
        word
        for part in owner
        for word in (f"--{part.type}", DEFAULT if part.is_default else NameArgument(part.name))
    ]


def _raised(owner: QuotaOwner, key: str, limit: float) -> str:
    """Return a command that doubles a quota."""
    return command("quota", "set", f"{key}={2 * limit:.10g}", *_owner_words(owner))


def _unmeasured_causes(facts: ClusterFacts, values: Mapping[str, str]) -> Iterator[Cause]:
    """Yield a cause for each quota of the named client whose usage brokers do not report."""
    quotas = facts.quotas or {}
    user, client_id, ip = (values.get(key, "") for key in ("user", "client_id", "ip"))
    if user or client_id:
        match = limits_of(quotas, CONTROLLER_MUTATION_RATE).find(user, client_id)
        if match is not None:
            owner = match.level.entity(user, client_id)
            yield _limit_cause(owner, CONTROLLER_MUTATION_RATE, match.limit)
    if ip:
        for part in (QuotaEntity("ip", False, ip), QuotaEntity("ip", True, "")):
            limit = quotas.get((part,), {}).get(CONNECTION_CREATION_RATE)
            if limit is not None:
                yield _limit_cause((part,), CONNECTION_CREATION_RATE, limit)
                return


def _limit_cause(owner: QuotaOwner, key: str, limit: float) -> Cause:
    effects = {
        CONTROLLER_MUTATION_RATE: "partitions created and deleted",
        CONNECTION_CREATION_RATE: "new connections",
    }
    return Cause(
        kind=f"quota-{key.replace('_', '-')}",
        summary=f"{effects[key]} are limited to {limit:g} per second; above it they are delayed "
        "or refused",
        evidence=(Evidence("limit per second", limit),),
        fix=_raised(owner, key, limit),
        more=command("quota", "list"),
    )


def _unmeasured_notes(facts: ClusterFacts) -> Iterator[str]:
    for owner, limits in sorted((facts.quotas or {}).items()):
        for key in (CONTROLLER_MUTATION_RATE, CONNECTION_CREATION_RATE):
            if key in limits:
                name = " and ".join(
                    f"{part.type} {DEFAULT if part.is_default else part.name}" for part in owner
                )
                yield f"{name} has {key} {limits[key]:g}; its usage is not reported"


def replication_causes(survey: Survey | None) -> list[Cause]:
    """Return a cause for each replication throttle that is set on a broker."""
    causes = []
    for broker in survey.brokers if survey is not None else ():
        for metric, direction in REPLICATION.items():
            rate = broker.metrics.get(metric)
            if rate is not None:
                causes.append(
                    Cause(
                        kind="replication-throttle",
                        summary=f"broker {broker.id} limits the bytes {direction} by throttled "
                        f"replicas to {amount(int(rate))}/s",
                        evidence=(
                            Evidence("throttle in bytes per second", int(rate)),
                            Evidence("broker", broker.id),
                        ),
                        remedy="the command removes throttles once nothing moves; while replicas "
                        "move, repeat the move with a higher --throttle",
                        fix=command("topic", "reassign", "--verify"),
                        more=command("topic", "reassign"),
                    )
                )
        rate = broker.metrics.get(LOG_DIRS_THROTTLE)
        if rate is not None:
            causes.append(
                Cause(
                    kind="log-dirs-throttle",
                    summary=f"broker {broker.id} limits moves between its log directories to "
                    f"{amount(int(rate))}/s",
                    evidence=(
                        Evidence("throttle in bytes per second", int(rate)),
                        Evidence("logs being moved", int(broker.metrics.get(MOVING_METRIC, 0))),
                        Evidence("broker", broker.id),
                    ),
                    fix=command("topic", "reassign", "--verify"),
                    more=command("broker", "logdirs", broker.id, "--replicas"),
                )
            )
    return causes
