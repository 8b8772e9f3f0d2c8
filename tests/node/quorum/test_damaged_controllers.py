"""Three controllers as processes, of which one's files are damaged while all are down."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from ottla.model.errors import RefusedError
from tests.node.quorum.test_three_processes import Controllers, three_controllers

pytestmark = pytest.mark.cluster

ROUNDS = int(os.environ.get("OTTLA_DAMAGES", "0"))
"""Repetitions of the table of all damages and orders; none by default, for it takes an hour."""

CHANGE_COUNT = 6


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)


DAMAGES: dict[str, tuple[tuple[str, ...], Callable[[Path], object]]] = {
    "log removed": (("*.log",), Path.unlink),
    "log emptied": (("*.log",), lambda path: path.write_bytes(b"")),
    "log halved": (("*.log",), halve),
    "log flipped": (("*.log",), flip),
    "vote removed": (("quorum-state",), Path.unlink),
    "vote emptied": (("quorum-state",), lambda path: path.write_bytes(b"")),
    "checkpoint removed": (("voter-checkpoint",), Path.unlink),
    "checkpoint flipped": (("voter-checkpoint",), flip),
    "both removed": (("quorum-state", "voter-checkpoint"), Path.unlink),
    "epochs removed": (("leader-epoch-checkpoint",), Path.unlink),
    "snapshot removed": (("*.checkpoint",), Path.unlink),
    "snapshot emptied": (("*.checkpoint",), lambda path: path.write_bytes(b"")),
}


async def go_through(controllers: Controllers, name: str, order: tuple[int, ...]) -> None:
    """Have B miss six changes, kill all, damage A, and start them in an order.

    The first of the six changes must be there as soon as any two lead, and at the end.
    """
    a, b, c = controllers.ids
    await controllers.change()
    controllers.kill(b)
    ends = [await controllers.change() for _ in range(CHANGE_COUNT)]
    controllers.kill(a, c)
    patterns, damage = DAMAGES[name]
    # A flipped checkpoint leaves its other slot, which says no less than the log shows.
    has_lost = name.startswith(("log", "both")) or name == "checkpoint removed"
    files = controllers.path(a) / "__cluster_metadata-0"
    for path in [found for pattern in patterns for found in sorted(files.glob(pattern))]:
        damage(path)
    for position, at in enumerate(order):
        controllers.start(controllers.ids[at])
        if position == 1:
            is_a_there, is_c_there = 0 in order[:2], 2 in order[:2]
            if is_a_there and not is_c_there and has_lost:
                # None of the two has what A and C had acknowledged.
                with pytest.raises((RefusedError, trio.TooSlowError)):
                    await controllers.change(deadline_ms=3_000)
    with trio.fail_after(60):
        after = await controllers.change()
    assert after > max(ends), f"{name} {order}: {after} after {ends}"
    if has_lost:
        log = await controllers.log_with("votes again", a)
        assert "neither votes nor may lead" in log
    elif name == "snapshot emptied":
        assert "is damaged; it is deleted" in controllers.log_of(a)
    elif name.startswith("vote"):
        assert "written again from voter-checkpoint" in controllers.log_of(a)


@pytest.mark.parametrize("name", ["log halved", "both removed", "vote removed", "snapshot emptied"])
async def test_six_changes_outlive_damage_of_one_of_the_two_that_have_them(
    tmp_path: Path, name: str
) -> None:
    async with three_controllers(tmp_path) as controllers:
        await go_through(controllers, name, (0, 1, 2))


@pytest.mark.skipif(ROUNDS == 0, reason="OTTLA_DAMAGES=N goes through the table N times")
@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
@pytest.mark.parametrize("name", DAMAGES)
async def test_six_changes_outlive_every_damage_in_every_order(
    tmp_path: Path, name: str, order: tuple[int, ...]
) -> None:
    for round_ in range(ROUNDS):
        async with three_controllers(tmp_path / str(round_)) as controllers:
            await go_through(controllers, name, order)


async def test_the_quorum_names_a_controller_that_follows_without_a_vote(tmp_path: Path) -> None:
    async with three_controllers(tmp_path, count=5) as controllers:
        await controllers.change()
        damaged, away, *_ = controllers.ids
        controllers.kill(damaged, away)
        files = controllers.path(damaged) / "__cluster_metadata-0"
        for name in ("quorum-state", "voter-checkpoint"):
            (files / name).unlink()

        controllers.start(damaged)
        with trio.fail_after(60):
            while not (shown := (await controllers.quorum()).error_message):
                await trio.sleep(0.05)
        assert shown.startswith(f"controller {damaged} follows without a vote: its disk lost")
        assert "start those that are down" in shown, "the one that is away has not answered it"

        controllers.start(away)
        with trio.fail_after(60):
            while (await controllers.quorum()).error_message:
                await trio.sleep(0.05)
        assert "votes again" in await controllers.log_with("votes again", damaged)
