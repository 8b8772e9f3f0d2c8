"""Finds the reasons why partitions cannot be read or written, and the brokers that clients do not
reach. Pure."""

from collections import defaultdict
from collections.abc import Mapping

from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    NameArgument,
    command,
    concluded,
)
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.survey_driver import Survey, SurveyedBroker, SurveyedPartition
from ottla.insight.rules.disk import FULL, disk_causes
from ottla.insight.rules.health import is_under_min_insync
from ottla.model.amounts import counted

CERTIFICATE = "certificate"
"""Word in the error text of a failed TLS handshake which shows that a certificate is the cause."""
NAMES_SHOWN = 3
CAUSES_MAX = 20


def explain_unavailable(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the reasons why partitions of a topic, or of all topics, cannot be
    read or written."""
    topic = values.get("topic", "")
    subject = f"topic {topic}" if topic else "all partitions"
    notes = []
    survey = facts.survey
    if survey is not None and topic and all(one.topic != topic for one in survey.partitions):
        notes.append(f"there is no topic {topic}, or the user may not describe it")
    causes = [
        *connection_causes(facts),
        *partition_causes(survey, topic),
        *(one for one in disk_causes(facts) if one.kind == f"disk-{FULL}"),
    ][:CAUSES_MAX]
    return concluded("unavailable", subject, causes, notes=notes, unknown=facts.unknown)


def connection_causes(facts: ClusterFacts) -> list[Cause]:
    """Return a cause for each broker, or for the whole cluster, that refuses this client's
    connections or does not answer them."""
    survey = facts.survey
    if survey is None:
        reasons = [reason for _, reason in facts.missing if CERTIFICATE in reason.lower()]
        return [_certificate(one, "HOST:PORT") for one in reasons[:1]]
    causes = [
        _certificate(one.failure, one.address, one.id)
        for one in survey.brokers
        if CERTIFICATE in one.failure.lower()
    ]
    if survey.quorum.failure:
        causes.append(
            Cause(
                kind="no-quorum",
                summary="the quorum of controllers does not answer: no leader can be elected",
                evidence=(Evidence("failure", survey.quorum.failure),),
                remedy="start a majority of its controllers",
                more=command("quorum", "status", "--bootstrap-controller", "HOST:PORT"),
            )
        )
    return causes


def _certificate(reason: str, address: str, node: int | None = None) -> Cause:
    place = "the cluster" if node is None else f"broker {node}"
    return Cause(
        kind="certificate",
        summary=f"clients refuse the connection to {place}: {reason.rstrip('.')}",
        evidence=(Evidence("failure", reason), Evidence("broker", node)),
        remedy="renew the certificate; the broker loads the changed file by itself",
        fix=command("certificates", "renew", "KEYSTORE.pem", "--ca", "CA"),
        more=command("doctor", "listeners", address),
    )


def partition_causes(survey: Survey | None, topic: str = "") -> list[Cause]:
    """Return a cause for each set of absent brokers whose absence leaves partitions without a
    leader or below min.insync.replicas."""
    if survey is None:
        return []
    brokers = {one.id: one for one in survey.brokers}
    leaderless: defaultdict[tuple[int, ...], list[SurveyedPartition]] = defaultdict(list)
    under: defaultdict[tuple[int, ...], list[SurveyedPartition]] = defaultdict(list)
    for one in survey.partitions:
        if topic not in ("", one.topic):
            continue
        if one.leader_id < 0:
            leaderless[tuple(sorted(one.isr or one.replicas))].append(one)
        elif is_under_min_insync(one, survey.min_insync):
            under[tuple(sorted(set(one.replicas) - set(one.isr)))].append(one)
    return [
        *(_leaderless(found, nodes, brokers) for nodes, found in sorted(leaderless.items())),
        *(_under(found, nodes, brokers, survey) for nodes, found in sorted(under.items())),
    ][:CAUSES_MAX]


def _leaderless(
    found: list[SurveyedPartition], nodes: tuple[int, ...], brokers: Mapping[int, SurveyedBroker]
) -> Cause:
    first = found[0]
    number = first.name.rpartition("-")[2]
    return Cause(
        kind="no-leader",
        summary=f"{_names(found)} without leader: only {_ids(nodes)} may lead, and "
        f"{_states(nodes, brokers)}",
        evidence=(
            Evidence("partitions", len(found)),
            Evidence("replicas that may lead", ", ".join(map(str, nodes))),
            Evidence("replicas", ", ".join(map(str, first.replicas))),
        ),
        remedy=f"start {_ids(nodes)} again; only if its disk is lost, 'ottla topic elect "
        "--unclean' elects another replica, which may lack records",
        fix=command("server", f"broker-{nodes[0]}.properties") if nodes else "",
        more=command(
            "topic", "elect", NameArgument(first.topic), "-p", number, "--unclean", "--dry-run"
        ),
    )


def _under(
    found: list[SurveyedPartition],
    nodes: tuple[int, ...],
    brokers: Mapping[int, SurveyedBroker],
    survey: Survey,
) -> Cause:
    first = found[0]
    needed = min(survey.min_insync.get(first.topic, 1), len(first.replicas))
    down = [one for one in nodes if (known := brokers.get(one)) is None or _is_away(known)]
    fix = command("server", f"broker-{down[0]}.properties") if down else ""
    return Cause(
        kind="below-min-isr",
        summary=f"{_names(found)} below min.insync.replicas, which refuses records with acks=all: "
        f"{_states(nodes, brokers)}",
        evidence=(
            Evidence("partitions", len(found)),
            Evidence("replicas in sync", len(first.isr)),
            Evidence("min.insync.replicas", needed),
            Evidence("replicas out of sync", ", ".join(map(str, nodes))),
        ),
        remedy=f"start {_ids(down)} again" if down else "wait until the replicas have caught up",
        fix=fix or command("explain", "throttle"),
        more=command("topic", "describe", NameArgument(first.topic)),
    )


def _is_away(broker: SurveyedBroker) -> bool:
    return broker.is_fenced or bool(broker.failure)


def _states(nodes: tuple[int, ...], brokers: Mapping[int, SurveyedBroker]) -> str:
    """Return a text with the state of each broker, such as "broker 2 is fenced"."""
    texts = []
    for node in nodes:
        known = brokers.get(node)
        if known is None:
            texts.append(f"broker {node} is not registered")
        elif known.is_fenced:
            texts.append(f"broker {node} is fenced (stopped, or cut off from the controllers)")
        elif known.failure:
            texts.append(f"broker {node} does not answer")
        else:
            texts.append(f"broker {node} is {known.state}")
    return ", ".join(texts) or "no broker is known"


def _ids(nodes: tuple[int, ...] | list[int]) -> str:
    return " and ".join(f"broker {node}" for node in nodes) or "no broker"


def _names(found: list[SurveyedPartition]) -> str:
    shown = ", ".join(one.name for one in found[:NAMES_SHOWN])
    verb = "is" if len(found) == 1 else "are"
    rest = ", …" if len(found) > NAMES_SHOWN else ""
    return f"{counted(len(found), 'partition')} ({shown}{rest}) {verb}"
