"""The nemesis of a run: faults in turns, each healed, each noted; in virtual time."""

from random import Random

import trio
import trio.testing

from ottla.jepsen.history import Json
from ottla.jepsen.processes.runs.run_faults import (
    BREATH_S,
    INJECT_TIMEOUT_S,
    LEAD_IN_S,
    FaultInjector,
)


class ScriptedNemesis:
    """A nemesis that does nothing, and says when."""

    def __init__(self, name: str, story: list[tuple[str, float]]) -> None:
        self.name = name
        self.took_s = 0.0
        self.error: Exception | None = None
        self.did: Json = {"nodes": ["b1"]}
        self._story = story

    async def inject(self, rng: Random) -> Json:
        self._story.append((f"{self.name} in", trio.current_time()))
        await trio.sleep(self.took_s)
        if self.error is not None:
            raise self.error
        return self.did

    async def heal(self) -> Json:
        self._story.append((f"{self.name} out", trio.current_time()))
        return {"restarted": ["b1"]}


class Notes:
    """Recorded faults."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Json]] = []

    def __call__(self, fault: str, value: Json) -> None:
        self.rows.append((fault, value))

    def phases(self) -> list[str]:
        return [value["phase"] for _, value in self.rows]


async def test_every_fault_is_healed_before_the_next_and_at_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    story: list[tuple[str, float]] = []
    notes = Notes()
    faults = FaultInjector([ScriptedNemesis("kill", story)], Random(1), 10.0, notes)
    began = trio.current_time()

    await faults.run(50.0)

    names = [name for name, _ in story]
    assert names[::2] == ["kill in"] * (len(names) // 2)
    assert names[1::2] == ["kill out"] * (len(names) // 2)
    assert story[0][1] - began == LEAD_IN_S
    assert trio.current_time() - began == 50.0
    assert faults.injected["kill"] == len(names) // 2 >= 2
    assert notes.phases() == ["start", "injected", "end"] * (len(names) // 2)
    assert [value["id"] for _, value in notes.rows] == sorted([*range(len(names) // 2)] * 3)
    assert faults.now == ""


async def test_each_named_fault_has_its_turn_before_any_comes_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    names = ["kill", "pause", "slow", "loss"]
    faults = FaultInjector([ScriptedNemesis(name, []) for name in names], Random(3), 1.0, Notes())

    await faults.run(40.0)

    dealt = [row["fault"] for row in faults.rows]
    assert sorted(dealt[:4]) == sorted(dealt[4:8]) == sorted(names)
    assert dealt[:4] != dealt[4:8] or dealt[:4] != dealt[8:12]


async def test_a_failed_injection_is_no_fault_but_is_recorded_and_healed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    story: list[tuple[str, float]] = []
    nemesis = ScriptedNemesis("kill", story)
    nemesis.error = OSError("no such process")
    faults = FaultInjector([nemesis], Random(1), 10.0, Notes())

    await faults.run(20.0)

    assert faults.injected.total() == 0
    assert "kill could not be injected: OSError: no such process" in faults.errors
    assert [name for name, _ in story] == ["kill in", "kill out"]


async def test_a_nemesis_that_found_nothing_to_do_has_injected_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    nemesis = ScriptedNemesis("power-cut", [])
    nemesis.did = {}
    faults = FaultInjector([nemesis], Random(1), 10.0, Notes())

    await faults.run(20.0)

    assert faults.injected.total() == 0
    assert faults.errors == []
    assert len(faults.rows) > 10, "it is asked again soon"


async def test_a_nemesis_with_periods_of_its_own_has_its_quiet_ones_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class MixingNemesis(ScriptedNemesis):
        interval_s = 20.0

    story: list[tuple[str, float]] = []
    nemesis = MixingNemesis("mixer", story)
    nemesis.did = {}
    faults = FaultInjector([nemesis], Random(1), 10.0, Notes())

    await faults.run(60.0)

    (first, _), (last, _), (second, _), *_ = story
    assert [first, last, second] == ["mixer in", "mixer out", "mixer in"]
    assert 16 <= story[1][1] - story[0][1] <= 24
    assert story[2][1] - story[1][1] == BREATH_S


async def test_a_fault_once_begun_is_done_wholly_and_healed_though_the_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    story: list[tuple[str, float]] = []
    nemesis = ScriptedNemesis("power-cut", story)
    nemesis.took_s = 4.0
    faults = FaultInjector([nemesis], Random(1), 10.0, Notes())

    await faults.run(LEAD_IN_S + 1)

    assert [name for name, _ in story] == ["power-cut in", "power-cut out"]
    assert faults.injected["power-cut"] == 1


async def test_an_injection_that_hangs_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    nemesis = ScriptedNemesis("kill", [])
    nemesis.took_s = 1e6
    faults = FaultInjector([nemesis], Random(1), 10.0, Notes())

    await faults.run(LEAD_IN_S + INJECT_TIMEOUT_S + 5)

    assert faults.errors[0].startswith("kill could not be injected: TooSlowError")


async def test_the_same_seed_deals_the_same_faults_at_the_same_times(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stories: list[list[tuple[str, float]]] = [[], []]
    for story in stories:
        began = trio.current_time()
        mine: list[tuple[str, float]] = []
        nemeses = [ScriptedNemesis(name, mine) for name in ("kill", "pause", "slow")]
        await FaultInjector(nemeses, Random("7/faults"), 3.0, Notes()).run(60.0)
        story += [(name, round(at - began, 6)) for name, at in mine]

    assert stories[0] == stories[1]
    assert len(stories[0]) > 10
