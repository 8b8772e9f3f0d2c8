"""Hypothesis strategies for clusters and fault schedules.

They shrink to fewer faults, to kinds of faults that are easier to understand, and to earlier
moments. A failing test therefore reports a schedule without irrelevant faults.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import hypothesis
from hypothesis import strategies as st
from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.internal.conjecture.utils import calc_label_from_name
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
    When,
    WorldPlan,
)

T = TypeVar("T")

SEED_VARIABLE = "OTTLA_WORLD_SEED"
"""Name of the environment variable that fixes the seed of the strategy `cluster`. `pytest
--world-seed` sets it."""

SEED_MAX = 9_999
"""Largest seed that the strategy draws. Larger seeds make the shrinking of a failing run take
longer."""

COUNT_MAX = 5
INSTANCE_INDEX_MAX = 5
"""Largest index of an instance that is drawn. Indexes are taken modulo the number of instances, and
six of them hit one, two or three instances equally often."""

BROKER_INDEX_MAX = 2

_WRITES = {
    "Produce": 4,
    "OffsetCommit": 4,
    "EndTxn": 2,
    "TxnOffsetCommit": 1,
    "AddPartitionsToTxn": 1,
    "InitProducerId": 1,
}
"""Requests whose responses are lost, with their weights. Shrinking prefers the first request."""

_STEPS = {
    "OffsetCommit": 6,
    "Produce": 5,
    "Fetch": 4,
    "Heartbeat": 2,
    "EndTxn": 1,
    "TxnOffsetCommit": 1,
    "AddPartitionsToTxn": 1,
    "ConsumerGroupHeartbeat": 1,
}
"""Repeated requests of programs at which other faults begin, with their weights. Programs usually
fail around commits and writes."""

_ORDINALS = dict.fromkeys(range(1, 5), 13) | dict.fromkeys(range(5, 13), 4)
_ORDINALS |= dict.fromkeys(range(13, 41), 1)
"""Numbers of requests and marks with their weights: small ones are more frequent."""

_WHENS: dict[When, int] = {"sent": 1, "answered": 1}

_JOINS = {"JoinGroup": 1, "SyncGroup": 1}
"""Requests at which other faults begin and which programs send only during rebalances."""

RESTARTS_S = (1.0, 0.1, 10.0, 60.0)
"""Seconds until a restart. The last value is longer than Kafka's default session timeout of 45
s."""

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
    kinds: dict[FaultDraw, int] = {}
    if kills:
        kinds |= {_kill: 4}
    if rebalances:
        kinds |= {_stop: 3, _long_pause: 2}
    if lost_answers:
        kinds |= {_lost_answer: 2}
    if slow:
        kinds |= {_short_pause: 1, _slow_instance: 1}
    if brokers:
        kinds |= {_kill_broker: 1, _partition: 1}
    if disk_full:
        kinds |= {_full_disk: 1}
    return _Schedules(kinds, dict.fromkeys(marks, 1), count_max)


class _Choices:
    """Choices of Hypothesis for one example. Each choice shrinks to its first value."""

    def __init__(self, data: ConjectureData, marks: Mapping[str, int]) -> None:
        self._data = data
        self._marks = marks

    def flag(self) -> bool:
        """Return True or False, with equal probability."""
        return self._data.draw_boolean(0.5)

    def pick(self, weights: Mapping[T, float]) -> T:
        """Return one of the keys at random, according to their weights."""
        values = list(weights)
        scale = 0.999 / sum(weights.values())  # Hypothesis wants a sum below 1
        # Numbers from 1: the shrinker tries alternatives of each small number from 0 first, and
        # would change every detail of every fault before it removes faults.
        number = self._data.draw_integer(
            1,
            len(values),
            weights={place: scale * weights[one] for place, one in enumerate(values, 1)},
        )
        return values[number - 1]

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1."""
        return self._data.draw_integer(1, count) - 1

    def seconds(self, *values: float) -> float:
        """Return one of the given durations in seconds. All are equally probable."""
        return values[self.below(len(values))]

    def instance(self) -> int:
        """Return the index of an instance, chosen by Hypothesis."""
        return self.below(INSTANCE_INDEX_MAX + 1)

    def broker(self) -> int:
        """Return the index of a broker, chosen by Hypothesis."""
        return self.below(BROKER_INDEX_MAX + 1)

    def moment(self) -> Moment:
        """Return a moment of any kind. If the program has marks, half of all moments are marks."""
        kinds = {_step: 5, _join: 1, _time: 2} | ({_mark: 8} if self._marks else {})
        return self.pick(kinds)(self)

    def mark(self) -> MarkMoment:
        """Return a moment at which the program passes a mark, chosen by Hypothesis."""
        return MarkMoment(self.pick(self._marks), self.pick(_ORDINALS))

    def request(self, apis: Mapping[str, int]) -> Request:
        """Return a moment that is a request to one of the given APIs."""
        return Request(self.pick(apis), self.pick(_ORDINALS), self.pick(_WHENS))


def _step(choices: _Choices) -> Moment:
    return choices.request(_STEPS)


def _join(choices: _Choices) -> Moment:
    return Request(choices.pick(_JOINS), choices.below(4) + 1, choices.pick(_WHENS))


def _time(choices: _Choices) -> Moment:
    # Most work of a short scenario is done within a second; the coarse times are for long ones.
    if not choices.flag():
        return At(choices.below(61) / 100)
    return At(choices.below(41) / 2)


def _mark(choices: _Choices) -> Moment:
    return choices.mark()


def _kill(choices: _Choices) -> Fault:
    return KillFault(choices.instance(), choices.moment(), choices.seconds(*RESTARTS_S))


def _stop(choices: _Choices) -> Fault:
    return Stop(choices.instance(), choices.moment(), choices.seconds(*RESTARTS_S))


def _long_pause(choices: _Choices) -> Fault:
    return PauseFault(choices.instance(), choices.moment(), choices.seconds(*PAUSES_S))


def _short_pause(choices: _Choices) -> Fault:
    return PauseFault(choices.instance(), choices.moment(), choices.seconds(1.0, 5.0, 20.0))


def _lost_answer(choices: _Choices) -> Fault:
    instance = choices.instance()
    is_timed = choices.pick({False: 3, True: 1})
    return LoseAnswer(instance, _time(choices) if is_timed else choices.request(_WRITES))


def _slow_instance(choices: _Choices) -> Fault:
    return SlowInstance(
        choices.instance(), choices.moment(), delay_s=choices.seconds(1.0, 5.0, 0.1)
    )


def _kill_broker(choices: _Choices) -> Fault:
    return KillBroker(choices.broker(), choices.moment(), choices.seconds(5.0, 1.0, 30.0))


def _partition(choices: _Choices) -> Fault:
    return PartitionFault(
        choices.instance(), choices.broker(), choices.moment(), choices.seconds(10.0, 60.0)
    )


def _full_disk(choices: _Choices) -> Fault:
    return FillDisk(choices.broker(), choices.moment())


FaultDraw: TypeAlias = Callable[[_Choices], Fault]
"""Function that draws a fault of one kind from Hypothesis. Shrinking prefers earlier kinds."""


class _Schedules(SearchStrategy[FaultSchedule]):
    """Strategy for fault schedules, with a place for each fault, which is empty in half of all
    cases.

    It is not composed of Hypothesis' strategies for two reasons. Shrinking empties any place with
    one try, but would cut a list only from its end. Each place has a label of its own, without
    labels inside: Hypothesis repeats each example five times with parts of the same label made
    equal, and these copies find little here.
    """

    def __init__(
        self, kinds: Mapping[FaultDraw, int], marks: Mapping[str, int], count_max: int
    ) -> None:
        super().__init__()
        self._kinds = kinds
        self._marks = marks
        self._labels = [calc_label_from_name(f"fault {place}") for place in range(count_max)]

    def __repr__(self) -> str:
        return "faults()"

    def do_draw(self, data: ConjectureData) -> FaultSchedule:
        choices = _Choices(data, self._marks)
        found = []
        for label in self._labels:
            data.start_span(label)
            if choices.flag():
                found.append(choices.pick(self._kinds)(choices))
            data.stop_span()
        return FaultSchedule(tuple(found))
