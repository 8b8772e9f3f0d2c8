"""Each ability that a machine lacks is detected by a trial, and reported with its reason."""

import json
from pathlib import Path

import pytest

from ottla.jepsen.processes.abilities import NOTHING, Abilities, Ability, probe

pytestmark = pytest.mark.cluster


async def test_on_a_bare_machine_every_lack_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await probe(tmp_path / "run")
    # Links that are not ours to hurt are our proxies' to hurt.
    assert set(found.missing) == {Ability.NAMESPACES, Ability.IMAGES, Ability.CLOCKS}
    assert all(found.missing.values())
    assert found.missing[Ability.CLOCKS] == "cc is not installed"
    assert not found.has_namespaces


async def test_trying_finds_the_same_again_and_leaves_nothing_mounted(
    tmp_path: Path, abilities: Abilities
) -> None:
    again = await probe(tmp_path)
    assert set(again.missing) == set(abilities.missing)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_removed_abilities_are_missing_and_printed_as_json() -> None:
    all_there = Abilities({})
    assert all(one in all_there for one in Ability)
    without = all_there.without(Ability.CLOCKS, reason="not wanted")
    assert Ability.CLOCKS not in without
    assert json.loads(json.dumps(without.to_json())) == {
        **dict.fromkeys(map(str, Ability)),
        "clocks": "not wanted",
    }
    assert Ability.RESETS in NOTHING
    assert Ability.NAMESPACES not in NOTHING
