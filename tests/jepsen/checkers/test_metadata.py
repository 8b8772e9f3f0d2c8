"""Writes of a topic have one order, and a broker shows a growing prefix of it."""

from collections.abc import Mapping
from random import Random

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.metadata import check_metadata
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import Event, EventKind, History, Json
from tests.jepsen.checkers.object_histories import object_history
from tests.jepsen.checkers.queue_histories import renumbered
from tests.jepsen.checkers.script import Script

SEEDS = st.integers(0, 1 << 32)
Topic = tuple[str, int, dict[str, Json]]


class Cluster:
    """One log of metadata, and brokers that are behind it."""

    def __init__(self, topics: int = 2, brokers: int = 3) -> None:
        self.names = [f"t{number}" for number in range(topics)]
        self.pasts: dict[str, list[Topic | None]] = {name: [None] for name in self.names}
        self.shown = {(name, b): 0 for name in self.names for b in range(brokers)}
        self.brokers = brokers
        self.ids = 0

    def choose(self, rng: Random, thread: int) -> tuple[str, Json]:
        topic = rng.choice(self.names)
        draw = rng.random()
        if draw < 0.6:
            part = rng.choice(("topic", "config"))
            return "describe", {"topic": topic, "part": part, "broker": rng.randrange(self.brokers)}
        self.ids += 1
        if draw < 0.75:
            return "create", {"topic": topic, "count": 1}
        if draw < 0.85:
            return "partitions", {"topic": topic, "count": self.ids}
        if draw < 0.95:
            return "set-config", {"topic": topic, "config": {"retention.ms": self.ids}}
        return "delete", {"topic": topic}

    def apply(self, rng: Random, thread: int, f: str, asked: Json) -> tuple[Json, EventKind]:
        past = self.pasts[asked["topic"]]
        if f == "describe":
            return self.describe(rng, asked), EventKind.OK
        now = past[-1]
        if f == "create":
            if now is not None:
                return None, EventKind.FAIL
            self.ids += 1
            past.append((f"id-{self.ids}", asked["count"], {}))
            result = f"id-{self.ids}" if rng.random() < 0.7 else None
            return {**asked, "id": result}, EventKind.OK
        if now is None or (f == "partitions" and asked["count"] <= now[1]):
            return None, EventKind.FAIL
        if f == "delete":
            past.append(None)
        elif f == "partitions":
            past.append((now[0], asked["count"], now[2]))
        else:
            past.append((now[0], now[1], {**now[2], **asked["config"]}))
        return asked, EventKind.OK

    def describe(self, rng: Random, asked: Json) -> Json:
        topic, broker = asked["topic"], asked["broker"]
        past = self.pasts[topic]
        at = max(self.shown[topic, broker], len(past) - 1 - rng.randrange(3))
        self.shown[topic, broker] = at
        now = past[at]
        result = {"topic": topic, "broker": broker}
        if asked["part"] == "config":
            config = None if now is None else {"retention.ms": now[2].get("retention.ms")}
            return {**result, "config": config}
        return {**result, "id": now and now[0], "count": now and now[1]}

    def extra(self, f: str, asked: Json, result: Json) -> Mapping[str, Json]:
        return {}


@given(SEEDS, st.sampled_from((0.0, 0.1, 0.25)))
@settings(max_examples=150, deadline=None)
def test_brokers_that_show_what_the_log_holds_pass(seed: int, trouble: float) -> None:
    history = object_history(Random(seed), Cluster(), trouble=trouble, count=80)
    verdict = check_metadata(history, RunFacts())
    assert verdict.valid is True, verdict.findings
    assert verdict.findings_count == {}


@given(SEEDS)
@example(4422)  # the answer that goes back repeats one that ran beside the newer one
@settings(max_examples=80, deadline=None)
def test_a_broker_that_goes_back_is_reported_and_nothing_else(seed: int) -> None:
    history = object_history(Random(seed), Cluster(), trouble=0.05, count=80)
    bad = broker_that_went_back(history, Random(seed))
    assume(bad is not None)
    assert bad is not None
    verdict = check_metadata(bad, RunFacts())
    assert verdict.valid is False
    assert verdict.findings_count == {"nonlinearizable": 1}
    assert verdict.findings[0].operations


def broker_that_went_back(history: History, rng: Random) -> History | None:
    """Have a broker return a topic's id once more after it returned that of a later life."""
    result = [
        each
        for each in history.operations("describe")
        if each.kind is EventKind.OK and each.value.get("id") is not None
    ]
    places = [
        (first, third)
        for first in result
        for second in result
        for third in result
        if first.index < second.invoke.index
        and second.index < third.invoke.index
        and first.value["topic"] == second.value["topic"] == third.value["topic"]
        and first.value["broker"] == second.value["broker"] == third.value["broker"]
        and first.value["id"] != second.value["id"]
    ]
    if not places:
        return None
    first, third = rng.choice(places)
    events = list(history.events)
    at = events[third.index]
    events[third.index] = Event(at.index, at.time_ns, at.process, at.kind, at.f, first.value)
    return renumbered(events)


# ---- by hand


def described(script: Script, broker: int | None, result: dict[str, Json], **extra: Json) -> None:
    value = {"topic": "t", "broker": broker, **result}
    script.does(0, "describe", {"topic": "t"}, value, **extra)


def created(script: Script, id_: str | None = "a") -> None:
    script.does(1, "create", {"topic": "t", "count": 1}, {"topic": "t", "count": 1, "id": id_})


def is_valid(script: Script) -> bool:
    valid = check_metadata(script.history(), RunFacts()).valid
    assert valid != "unknown"
    return bool(valid)


A1: dict[str, Json] = {"id": "a", "count": 1}
GONE: dict[str, Json] = {"id": None, "count": None}


def test_a_broker_may_be_behind_another_but_not_behind_itself() -> None:
    script = Script()
    created(script)
    described(script, 1, A1)
    described(script, 2, GONE)
    assert is_valid(script)
    described(script, 1, GONE)
    assert not is_valid(script)


def test_at_the_end_and_at_the_controller_only_the_latest_will_do() -> None:
    for broker, extra in ((1, {"final": True}), (None, {})):
        script = Script()
        created(script)
        described(script, broker, A1, **extra)
        assert is_valid(script)
        script = Script()
        created(script)
        described(script, broker, GONE, **extra)
        assert not is_valid(script)


def test_settings_and_partitions_have_one_order_at_each_broker() -> None:
    script = Script()
    created(script)
    script.does(1, "partitions", {"topic": "t", "count": 3})
    script.does(1, "set-config", {"topic": "t", "config": {"retention.ms": 7}})
    described(script, 1, {"config": {"retention.ms": 7}})
    assert is_valid(script)
    described(script, 1, A1)
    assert not is_valid(script), "it showed the setting, so it has all partitions"


def test_what_repeats_what_was_said_is_still_judged_after_the_other_part_changed() -> None:
    script = Script()
    created(script)
    script.does(1, "set-config", {"topic": "t", "config": {"retention.ms": 7}})
    script.does(1, "set-config", {"topic": "t", "config": {"retention.ms": 8}})
    script.does(1, "partitions", {"topic": "t", "count": 2})
    described(script, 1, {"config": {"retention.ms": 7}})
    described(script, 1, A1)
    described(script, 1, {"config": {"retention.ms": 7}})
    described(script, 1, {"id": "a", "count": 2})
    assert is_valid(script)
    described(script, 1, {"config": {"retention.ms": 7}})
    assert not is_valid(script), "two settings lie between"


def test_an_unreported_topic_id_is_any_id_but_the_same_for_all_reads() -> None:
    script = Script()
    created(script, None)
    described(script, 1, {"id": "x", "count": 1})
    described(script, 2, {"id": "x", "count": 1})
    assert is_valid(script)
    described(script, 3, {"id": "y", "count": 1})
    assert not is_valid(script)


def test_an_unreported_topic_id_differs_from_ids_of_other_creations() -> None:
    script = Script()
    created(script, None)
    described(script, 1, A1)
    script.does(1, "delete", {"topic": "t"})
    created(script, "a")
    assert not is_valid(script)


def test_writes_need_what_they_change() -> None:
    for f in ("delete", "partitions", "set-config"):
        script = Script()
        script.does(0, f, {"topic": "t", "count": 2, "config": {}})
        assert not is_valid(script), f
    twice = Script()
    created(twice)
    created(twice, "b")
    assert not is_valid(twice)
    fewer = Script()
    created(fewer)
    fewer.does(0, "partitions", {"topic": "t", "count": 1})
    assert not is_valid(fewer)


def test_a_write_of_unknown_end_may_be_seen_and_need_not() -> None:
    for shown, valid in ((GONE, True), (A1, True), ({"id": "a", "count": 9}, False)):
        script = Script()
        script.does(1, "create", {"topic": "t", "count": 1}, kind=EventKind.INFO)
        described(script, 1, shown)
        assert is_valid(script) is valid
    failed = Script()
    failed.does(1, "create", {"topic": "t", "count": 1}, kind=EventKind.FAIL)
    described(failed, 1, A1)
    assert not is_valid(failed)


def test_a_bad_topic_is_kept_for_a_picture() -> None:
    script = Script()
    created(script)
    described(script, None, GONE)
    shown = check_metadata(script.history(), RunFacts()).figures["linear"]["t"]
    assert shown["states"] == ["1 partitions, {}"]
    assert shown["stuck"] == [1]


def test_what_could_not_be_decided_is_unknown() -> None:
    script = Script(threads=16)
    for thread in range(14):
        config = {"retention.ms": thread}
        script.begins(thread, "set-config", {"topic": "t", "config": config})
    script.does(14, "create", {"topic": "t", "count": 1}, {"topic": "t", "count": 1, "id": "a"})
    for thread in range(14):
        script.ends(thread)
    described(script, None, {"config": {"retention.ms": 99}})
    verdict = check_metadata(script.history(), RunFacts(steps_max=1_000))
    assert verdict.valid == "unknown"
