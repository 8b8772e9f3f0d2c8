"""Hypothesis strategies for clusters and fault schedules.

They shrink to fewer faults, to kinds of faults that are easier to understand, and to earlier
moments. A failing test therefore reports a schedule without irrelevant faults.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ottla.testing.world.failure_files import drawn_run_to_replay
from ottla.testing.world.plans import (
    At,
    Fault,
    FaultSchedule,
    FillDisk,
    KillBroker,
    KillFault,
    LoseAnswer,
    MarkMoment,
    Moment,
    PartitionFault,
    PauseFault,
    Request,
    SlowInstance,
    Stop,
    WorldPlan,
)

SEED_VARIABLE = "OTTLA_WORLD_SEED"
"""Name of the environment variable with the only seed that `cluster` draws. `pytest --world-seed`
sets it."""

SEED_MAX = 9_999
"""Largest seed that is drawn. With larger seeds, shrinking a failing run takes longer."""

COUNT_MAX = 5
INSTANCE_INDEX_MAX = 2
BROKER_INDEX_MAX = 2

_WRITES = (
    *("Produce",) * 4,
    *("OffsetCommit",) * 4,
    *("EndTxn",) * 2,
    "TxnOffsetCommit",
    "AddPartitionsToTxn",
    "InitProducerId",
)
"""Requests whose responses are lost. A request that is listed several times is drawn more often."""

_STEPS = (
    *("OffsetCommit",) * 5,
    *("Produce",) * 5,
    *("Fetch",) * 3,
    *("EndTxn",) * 2,
    "TxnOffsetCommit",
    "AddPartitionsToTxn",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "ConsumerGroupHeartbeat",
)
"""Requests at which other faults begin. Programs usually fail around commits and writes."""

RESTARTS_S = (1.0, 0.1, 10.0, 60.0)
"""Seconds until a restart. The last one is longer than Kafka's default session timeout of 45 s."""

PAUSES_S = (60.0, 10.0, 1.0, 400.0)
"""Lengths of pauses in seconds: beyond the session timeout, within it, and beyond the default
`max.poll.interval.ms` of 300 s."""


def settings(**options: Any) -> hypothesis.settings:
    """Return settings of Hypothesis that suit runs in simulated worlds. `options` override them.

    Runs have no deadline in real time. The phase `explain` is left out, because it repeats a
    failing run hundreds of times, to name values that shrinking has simplified already.
    """
    defaults: dict[str, Any] = {
        "deadline": None,
        "phases": [phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain],
        "suppress_health_check": [
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.function_scoped_fixture,
        ],
    }
    return hypothesis.settings(**defaults | options)


def cluster(
    brokers: int = 1, controllers: int = 1, settings: Mapping[str, str] | None = None
) -> SearchStrategy[WorldPlan]:
    """Return a strategy for plans of clusters of this size, which draws their seeds."""
    replayed = drawn_run_to_replay()
    if replayed is not None:
        return st.just(replayed.plan)
    fixed = os.environ.get(SEED_VARIABLE)
    seeds = st.integers(0, SEED_MAX) if fixed is None else st.just(int(fixed))
    return st.builds(
        WorldPlan,
        brokers=st.just(brokers),
        controllers=st.just(controllers),
        seed=seeds,
        settings=st.just(dict(settings or {})),
    )


def faults(
    *,
    kills: bool = False,
    rebalances: bool = False,
    slow: bool = False,
    lost_answers: bool = False,
    disk_full: bool = False,
    brokers: bool = False,
    marks: Sequence[str] = (),
    count_max: int = COUNT_MAX,
) -> SearchStrategy[FaultSchedule]:
    """Return a strategy for schedules of at most `count_max` faults of the chosen kinds. If no kind
    is chosen, all kinds are drawn.

    `kills`: an instance is killed. `rebalances`: an instance is stopped cleanly, or paused beyond
    its session timeout. `slow`: an instance is paused briefly, or its network is slow.
    `lost_answers`: a connection is cut before a response arrives. `disk_full`: a broker's disk is
    full. `brokers`: a broker is killed or cannot be reached. `marks`: names of marks of the program
    at which faults may begin, such as `store.commit`.
    """
    replayed = drawn_run_to_replay()
    if replayed is not None:
        return st.just(replayed.faults)
    if not (kills or rebalances or slow or lost_answers or disk_full or brokers):
        kills = rebalances = slow = lost_answers = disk_full = brokers = True
    moments, writes = _moments(_STEPS, tuple(marks)), _moments(_WRITES, ())
    instances = st.integers(0, INSTANCE_INDEX_MAX)
    nodes = st.integers(0, BROKER_INDEX_MAX)
    restarts = st.sampled_from(RESTARTS_S)
    # A kind that is listed more often is drawn more often. Kinds shrink to earlier ones.
    kinds: list[SearchStrategy[Fault]] = []
    if kills:
        kinds += [st.builds(KillFault, instances, moments, restarts)] * 4
    if rebalances:
        kinds += [
            *[st.builds(Stop, instances, moments, restarts)] * 2,
            *[st.builds(PauseFault, instances, moments, st.sampled_from(PAUSES_S))] * 2,
        ]
    if lost_answers:
        kinds += [st.builds(LoseAnswer, instances, writes)] * 2
    if slow:
        kinds += [
            st.builds(PauseFault, instances, moments, st.sampled_from((1.0, 5.0, 20.0))),
            st.builds(SlowInstance, instances, moments, delay_s=st.sampled_from((1.0, 5.0, 0.1))),
        ]
    if brokers:
        kinds += [
            st.builds(KillBroker, nodes, moments, st.sampled_from((5.0, 1.0, 30.0))),
            st.builds(PartitionFault, instances, nodes, moments, st.sampled_from((10.0, 60.0))),
        ]
    if disk_full:
        kinds += [st.builds(FillDisk, nodes, moments)]
    # The longer list makes large schedules as frequent as small ones.
    return st.lists(st.one_of(kinds), max_size=2 * count_max).map(
        lambda found: FaultSchedule(tuple(found[:count_max]))
    )


def _moments(apis: Sequence[str], marks: Sequence[str]) -> SearchStrategy[Moment]:
    # Most work of a short scenario is done within a second; the coarse times are for long ones.
    times = st.one_of(
        st.integers(0, 60).map(lambda n: At(n / 100)), st.integers(0, 40).map(lambda n: At(n / 2))
    )
    numbers = st.one_of(st.integers(1, 4), st.integers(1, 12), st.integers(1, 40))
    requests: SearchStrategy[Moment] = st.builds(
        Request, st.sampled_from(apis), numbers, st.sampled_from(("sent", "answered"))
    )
    kinds = [requests, requests, requests, times]
    if marks:
        kinds += [st.builds(MarkMoment, st.sampled_from(marks), numbers)] * 3
    return st.one_of(kinds)
