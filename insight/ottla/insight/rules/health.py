"""Judges a survey of the cluster. Lists every reason why the cluster is unhealthy, each with its
remedy. Pure."""

from collections.abc import Iterator

from ottla.insight.facts.survey_driver import (
    DRAINS,
    LOG_DIRS_THROTTLE,
    MOVING_METRIC,
    REPLICATION_THROTTLES,
    Survey,
    SurveyedBroker,
    SurveyedPartition,
    SurveyedQuorum,
)
from ottla.model.amounts import counted, duration
from ottla.model.settings.quorum import QuorumConfig

SILENT_AFTER_MS = 2 * QuorumConfig().fetch_timeout_ms
"""Time since a voter's last fetch, in ms, after which the voter is considered stopped, paused or
disconnected. It is twice the time after which a voter without a fetch would start an election."""

CLOCKS_APART_MS_MAX = 2_000
"""Maximum normal difference between two nodes' clocks, in ms. Clocks synchronised by NTP differ by
less, and the request that measures the difference takes less time. With a larger difference,
retention and lookups by time differ between brokers."""

NAMES_SHOWN = 3


def reasons_of(survey: Survey) -> list[str]:
    """Return the reasons why the cluster is unhealthy, or why its health is unknown. The result is
    empty if the cluster is healthy."""
    return [
        *quorum_reasons(survey.quorum),
        *(reason for broker in survey.brokers for reason in broker_reasons(broker)),
        *partition_reasons(survey.partitions, survey.min_insync),
        *survey.denials,
    ]


def warnings_of(survey: Survey) -> list[str]:
    """Return warnings about conditions that put no record at risk but may surprise an operator."""
    return [
        *survey.quorum.warnings.splitlines(),
        *(
            f"broker {broker.id}: {warning}"
            for broker in survey.brokers
            for warning in broker.warnings
        ),
        *_clock_warnings(survey),
        *_throttle_warnings(survey),
    ]


def _clock_warnings(survey: Survey) -> Iterator[str]:
    clocks = {
        f"broker {broker.id}": broker.clock_ahead_ms
        for broker in survey.brokers
        if broker.clock_ahead_ms is not None
    }
    if survey.quorum.clock_ahead_ms is not None:
        clocks[f"controller {survey.quorum.leader_id}"] = survey.quorum.clock_ahead_ms
    if not clocks:
        return
    behind, ahead = min(clocks, key=clocks.__getitem__), max(clocks, key=clocks.__getitem__)
    apart_ms = clocks[ahead] - clocks[behind]
    if apart_ms > CLOCKS_APART_MS_MAX:
        yield (
            f"the clock of {ahead} is {duration(apart_ms)} ahead of that of {behind}: retention "
            "and lookups by time will differ; set both by NTP"
        )


def _throttle_warnings(survey: Survey) -> Iterator[str]:
    """Yield a warning for each kind of replication throttle that a command left behind. A throttle
    slows down a replica that has to catch up."""
    for what, names, is_in_use in (
        (
            "replication",
            REPLICATION_THROTTLES,
            lambda broker: survey.reassignment_count > 0 or bool(survey.balance.moves),
        ),
        (
            "moves between log directories",
            (LOG_DIRS_THROTTLE,),
            lambda broker: broker.metrics.get(MOVING_METRIC, 0) > 0,
        ),
    ):
        left = [one for one in survey.brokers if one.has_throttle(*names) and not is_in_use(one)]
        if left:
            ids = ", ".join(str(broker.id) for broker in left)
            rates = [one.metrics[name] for one in left for name in names if name in one.metrics]
            yield (
                f"broker {ids} still throttles {what} to {min(rates):,.0f} bytes/s and nothing "
                "moves; 'ottla topic reassign --verify' removes that"
            )


def quorum_reasons(quorum: SurveyedQuorum) -> Iterator[str]:
    """Yield the reasons why the quorum of controllers is unhealthy, one sentence each."""
    if quorum.failure:
        yield (
            f"the controller quorum does not answer ({quorum.failure.rstrip('.')}); "
            "start a majority of its controllers"
        )
        return
    for voter in quorum.voters:
        if voter.id == quorum.leader_id:
            continue
        if voter.last_fetch_ms_ago is None:
            yield f"controller {voter.id} has not been heard of since {quorum.leader_id} leads"
        elif voter.last_fetch_ms_ago > SILENT_AFTER_MS:
            yield (
                f"controller {voter.id} has not been heard of for "
                f"{duration(voter.last_fetch_ms_ago)}; start it again"
            )
    yield from quorum.problems.splitlines()


def broker_reasons(broker: SurveyedBroker) -> Iterator[str]:
    """Yield the reasons why one broker is unhealthy, one sentence each. Yields nothing if it is
    healthy."""
    if broker.state in DRAINS:
        yield (
            f"broker {broker.id} is {broker.state.lower()}; "
            f"'ottla broker drain {broker.id} --undo' brings it back"
        )
    elif broker.is_fenced and broker.failure:
        yield (
            f"broker {broker.id} is fenced: the controllers do not hear of it, and neither do we "
            f"({broker.failure}); start it again"
        )
    elif broker.is_fenced:
        yield f"broker {broker.id} is fenced: it is {broker.state} and not ready to lead"
    elif broker.failure:
        yield (
            f"broker {broker.id} lives, but clients do not reach it ({broker.failure}): it hangs, "
            "or its advertised.listeners is no address of it for them"
        )
    for problem in broker.problems:
        yield f"broker {broker.id}: {problem}"


def partition_reasons(
    partitions: list[SurveyedPartition], min_insync: dict[str, int]
) -> Iterator[str]:
    """Yield the reasons why partitions are unhealthy, the worst first, one sentence each."""
    leaderless = [one.name for one in partitions if one.leader_id < 0]
    few = [one.name for one in partitions if is_under_min_insync(one, min_insync)]
    under = [one.name for one in partitions if one.is_under_replicated]
    for names, what in (
        (leaderless, "without leader"),
        (few, "with fewer replicas in sync than min.insync.replicas"),
        (under, "under-replicated"),
    ):
        if names:
            some = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
            yield f"{counted(len(names), 'partition')} {what}: {some}"


def is_under_min_insync(partition: SurveyedPartition, min_insync: dict[str, int]) -> bool:
    """Return whether the partition refuses writes with acks=all, because too few replicas are in
    sync. If a partition has fewer replicas than min.insync.replicas, all of them must be in sync.
    """
    wanted = min(min_insync.get(partition.topic, 1), len(partition.replicas))
    return len(partition.isr) < wanted


def shown_standing(standing: str, is_cordoned: bool) -> str:
    """Return the text for a broker's state in tables: the word `standing`, and whether the broker
    is cordoned."""
    return f"{standing}, cordoned" if is_cordoned else standing


def broker_standing(broker: SurveyedBroker) -> str:
    """Return a broker's state in the cluster as one word. Cordoning is not considered."""
    if broker.state in DRAINS:
        return broker.state.lower()
    if broker.is_fenced:
        return "fenced"
    return "unreachable" if broker.failure else "active"
