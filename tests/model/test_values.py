"""A frozen value is equal to one made by `dataclass(frozen=True, slots=True)`, with one compiled
function."""

import copy
import pickle
import re
import tomllib
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from ottla.model.values import frozen

ROOT = Path(__file__).parents[2]
FOLDERS_OF_NODES = (
    "model",
    "wire",
    "telemetry",
    "storage",
    "raft",
    "metadata",
    "rpc",
    "node",
    "controller",
    "broker",
)
SLOW = re.compile(r"^@dataclass\(frozen=True, slots=True(, kw_only=True)?\)$", re.MULTILINE)


@frozen
class Place:
    """Two fields without a default, one with, and one that is made for each."""

    x: int
    y: int
    name: str = "here"
    tags: list[str] = field(default_factory=list)


@frozen(kw_only=True)
class Secret:
    """Fields that are not shown, not compared, or set by the value itself."""

    user: str
    password: str = field(repr=False)
    note: str = field(default="", compare=False)
    length: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.password))


@frozen
class Nothing:
    """No field at all."""


@frozen
class NamedPlace(Place):
    """A value with fields of its base."""

    title: str = ""


@frozen
class Own:
    """A value with its own equality and text."""

    a: int
    b: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.a == other.a

    def __hash__(self) -> int:
        return self.a

    def __repr__(self) -> str:
        return "own"


@dataclass(frozen=True, slots=True)
class Reference:
    """Python's own dataclass with the fields of `Place`."""

    x: int
    y: int
    name: str = "here"
    tags: list[str] = field(default_factory=list)


def test_it_is_made_and_shown_as_a_dataclass_is() -> None:
    for value, reference in (
        (Place(1, 2), Reference(1, 2)),
        (Place(1, name="there", y=2), Reference(1, name="there", y=2)),
        (Place(1, 2, "n", ["t"]), Reference(1, 2, "n", ["t"])),
    ):
        assert repr(value) == repr(reference).replace("Reference", "Place")
        assert asdict(value) == asdict(reference)
    assert [one.name for one in fields(Place)] == [one.name for one in fields(Reference)]
    assert Place.__match_args__ == Reference.__match_args__
    assert Place(1, 2).tags is not Place(1, 2).tags
    assert repr(Nothing()) == "Nothing()"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Place(1),  # type: ignore[call-arg]
        lambda: Place(1, 2, z=3),  # type: ignore[call-arg]
        lambda: Place(1, 2, "", [], 5),  # type: ignore[call-arg]
        lambda: Secret("u", "p"),  # type: ignore[call-arg]
        lambda: Secret(user="u", password="p", length=1),  # type: ignore[call-arg]
    ],
)
def test_it_refuses_other_arguments(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()


def test_values_are_equal_by_their_fields_and_their_class() -> None:
    assert Place(1, 2, tags=["a"]) == Place(1, 2, tags=["a"])
    assert Place(1, 2) != Place(1, 3)
    assert Place(1, 2) != NamedPlace(1, 2)
    other: object = (1, 2, "here", [])
    assert Place(1, 2) != other
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert Secret(user="u", password="p", note="a") == Secret(user="u", password="p", note="b")
    assert len({Secret(user="u", password="p", note="a"), Secret(user="u", password="p")}) == 1
    assert Own(1, 2) == Own(1, 3)
    assert (hash(Own(7, 2)), repr(Own(7, 2))) == (7, "own")


def test_a_field_can_be_hidden_and_set_after_the_others() -> None:
    secret = Secret(user="u", password="pass")
    assert "pass'" not in repr(secret)
    assert secret.length == 4
    assert replace(secret, user="v").length == 4


def test_nothing_of_it_changes() -> None:
    place: Any = NamedPlace(1, 2, title="t")
    for name in ("x", "title", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(place, name, 1)
        with pytest.raises(FrozenInstanceError):
            delattr(place, name)
    assert not hasattr(place, "__dict__")
    assert replace(place, x=5) == NamedPlace(5, 2, title="t")
    assert place.x == 1


@pytest.mark.parametrize("value", [NamedPlace(1, 2, tags=["a"]), Nothing(), Own(1, 2)])
def test_it_can_be_copied_and_sent_to_another_process(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value


def test_it_is_matched_by_its_fields() -> None:
    match Place(1, 2, "there"):
        case Place(x, y, name=name):
            assert (x, y, name) == (1, 2, "there")
        case _:
            pytest.fail("a value is matched by position and by name")


def test_no_interpreted_module_of_a_node_makes_its_values_slowly() -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    compiled = set(hatch["targets"]["wheel"]["hooks"]["custom"]["modules"])
    slow = []
    for folder in FOLDERS_OF_NODES:
        for path in (ROOT / folder / "ottla").rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            if SLOW.search(path.read_text()) and name not in compiled:
                slow.append(name)
    assert slow == []
