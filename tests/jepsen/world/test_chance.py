"""Chance: draws are recorded, and a recording is drawn again."""

import subprocess
import sys

from ottla.jepsen.world.chance import Chance


def test_one_seed_is_one_row_of_choices() -> None:
    first, second, other = Chance(7), Chance(7), Chance(8)

    draws = [[chance.below(1000) for _ in range(50)] for chance in (first, second, other)]

    assert draws[0] == draws[1] != draws[2]
    assert first.decisions == draws[0]


def test_decisions_played_again_give_the_same_choices() -> None:
    def choose(chance: Chance) -> list[object]:
        return [
            chance.below(10),
            chance.chance(0.5),
            chance.random(),
            chance.pick("abc"),
            chance.uuid(),
            chance.chance(0.9),
        ]

    original = Chance(3)
    chosen = choose(original)

    again = Chance(0, replay=original.decisions)

    assert choose(again) == chosen
    assert again.is_spent
    assert again.decisions == original.decisions


def test_beyond_its_end_a_replay_chooses_what_is_quiet() -> None:
    chance = Chance(3, replay=[5])

    assert [chance.below(10), chance.below(10), chance.pick("abc")] == [5, 0, "a"]
    assert not chance.chance(0.99)
    assert chance.is_spent
    assert not Chance(3).is_spent


def test_a_replayed_choice_stays_within_its_bound() -> None:
    assert Chance(0, replay=[17]).below(10) < 10


def test_streams_are_apart_from_each_other_and_from_the_main_one() -> None:
    chance = Chance(1)
    disk, net = chance.stream("disk"), chance.stream("net")

    drawn = [[stream.below(1 << 30) for _ in range(4)] for stream in (disk, net)]

    assert drawn[0] != drawn[1]
    assert chance.decisions == []
    assert [Chance(1).stream("disk").below(1 << 30)] == drawn[0][:1]
    assert disk.decisions == []


def test_certain_and_impossible_things() -> None:
    chance = Chance(1)

    assert not any(chance.chance(0.0) for _ in range(100))
    assert all(chance.chance(1.0) for _ in range(100))


def test_the_numbers_are_the_same_in_every_process() -> None:
    program = "from ottla.jepsen.world.chance import Chance; c = Chance(5).stream('x');"
    program += "print([c.below(100) for _ in range(5)], Chance(5).uuid())"

    printed = {
        subprocess.run(
            [sys.executable, "-c", program], env=None, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }

    chance = Chance(5).stream("x")
    assert printed == {f"{[chance.below(100) for _ in range(5)]} {Chance(5).uuid()}\n"}
