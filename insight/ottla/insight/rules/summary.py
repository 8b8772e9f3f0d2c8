"""The rules for the questions "health" and "slow" of `ottla explain`, which combine the other
rules. Pure."""

from collections.abc import Mapping

from ottla.insight.explanation import Cause, Explanation, command, concluded
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.survey_driver import Survey
from ottla.insight.rules.disk import disk_causes
from ottla.insight.rules.health import (
    broker_reasons,
    partition_reasons,
    quorum_reasons,
    warnings_of,
)
from ottla.insight.rules.throttle import replication_causes, usage_causes
from ottla.insight.rules.unavailable import connection_causes, partition_causes


def explain_health(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the reasons why a cluster is unhealthy, with its warnings as
    notes."""
    survey = facts.survey
    notes = [] if survey is None else warnings_of(survey)
    causes = connection_causes(facts) if survey is None else health_causes(survey)
    return concluded("health", "the cluster", causes, notes=notes, unknown=facts.unknown)


def health_causes(survey: Survey) -> list[Cause]:
    """Return a cause for each reason why the cluster is unhealthy, as `ottla status` shows it."""
    return [
        *(
            Cause(kind="quorum", summary=reason, more=command("quorum", "status"))
            for reason in quorum_reasons(survey.quorum)
        ),
        *(
            Cause(kind="broker", summary=reason, more=command("broker", "describe", broker.id))
            for broker in survey.brokers
            for reason in broker_reasons(broker)
        ),
        *(
            Cause(kind="partitions", summary=reason, more=command("explain", "unavailable"))
            for reason in partition_reasons(survey.partitions, survey.min_insync)
        ),
    ]


def explain_slow(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the reasons why requests are slow: throttles, missing replicas, full
    disks."""
    topic = values.get("topic", "")
    causes = [
        *usage_causes(facts, {}),
        *connection_causes(facts),
        *partition_causes(facts.survey, topic),
        *disk_causes(facts),
        *replication_causes(facts.survey),
    ]
    notes = [] if facts.survey is None else warnings_of(facts.survey)
    subject = f"requests for topic {topic}" if topic else "requests of all clients"
    return concluded("slow", subject, causes, notes=notes, unknown=facts.unknown)
