"""Rare choices: taken only by the random source, and never after it is removed."""

from ottla.model.buggify import buggified, buggify


def test_production_takes_no_rare_choice() -> None:
    assert not buggify("a tiny fetch")


def test_dice_decide_while_they_are_there() -> None:
    asked: list[str] = []

    def dice(name: str) -> bool:
        asked.append(name)
        return True

    with buggified(dice):
        assert buggify("a tiny fetch")

    assert not buggify("an early election")
    assert asked == ["a tiny fetch"]
