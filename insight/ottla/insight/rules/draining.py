"""Checks the condition for draining brokers: each partition keeps a leader. Pure."""

from ottla.insight.facts.survey_driver import SurveyedPartition
from ottla.model.amounts import counted
from ottla.model.errors import ErrorCode, RefusedError

NAMES_SHOWN = 3


def check_leaders_remain(leaving: set[int], partitions: list[SurveyedPartition]) -> None:
    """Raise RefusedError if a partition would have no leader once the brokers with the ids in
    `leaving` have given up all leaderships."""
    alone = [
        one.name for one in partitions if one.leader_id in leaving and leaving.issuperset(one.isr)
    ]
    if alone:
        some = ", ".join(alone[:NAMES_SHOWN]) + (", …" if len(alone) > NAMES_SHOWN else "")
        subject = ", ".join(f"broker {one}" for one in sorted(leaving))
        raise RefusedError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{counted(len(alone), 'partition')} of {subject} would be without leader, "
            f"as no other replica is in sync ({some}); wait until one is, add replicas "
            "('ottla topic reassign TOPIC --brokers 1,2,3 --replicas 2'), or add --force",
        )
