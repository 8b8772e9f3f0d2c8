"""`ottla cluster features` and `ottla cluster upgrade` with a played cluster."""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.cli.cluster.upgrades import upgrade as upgrades
from ottla.cli.cluster.upgrades.features import describe, downgrade, levels_of, upgrade
from ottla.cli.confirmation import UnconfirmedError
from ottla.client.admin_parts.admin_cluster import FeatureLevels, FeatureUpdateKind
from ottla.insight.facts.survey_driver import SurveyedBroker
from ottla.model.errors import ConfigError, ErrorCode, RefusedError

OTTLA, METADATA, SHARE = "ottla.version", "metadata.version", "share.version"
OLD = {METADATA: FeatureLevels(32, 30, 32)}
"""Features that a broker of release 0.2.0 reports."""
NEW = {METADATA: FeatureLevels(32, 30, 33), OTTLA: FeatureLevels(0, 0, 1)}
SHARING = NEW | {SHARE: FeatureLevels(1, 0, 2)}
FINAL = {METADATA: FeatureLevels(33, 30, 33), OTTLA: FeatureLevels(1, 0, 1)}


@dataclass
class PlayedAdmin:
    """A cluster whose brokers report given features, and the updates that it gets."""

    features: Mapping[int, Mapping[str, FeatureLevels]]
    refusal: RefusedError | None = None
    updates: list[tuple[dict[str, int], FeatureUpdateKind, bool]] = field(default_factory=list)

    async def describe_features(self, node: int | None = None) -> Mapping[str, FeatureLevels]:
        return self.features[next(iter(self.features)) if node is None else node]

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        kind: FeatureUpdateKind = FeatureUpdateKind.UPGRADE,
        is_dry_run: bool = False,
    ) -> None:
        self.updates.append((dict(levels), kind, is_dry_run))
        if self.refusal is not None:
            raise self.refusal

    @property
    def made(self) -> list[tuple[dict[str, int], FeatureUpdateKind]]:
        """Updates that were not only checked."""
        return [(levels, kind) for levels, kind, is_dry_run in self.updates if not is_dry_run]


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SurveyedBroker]]:
    """The brokers that the survey finds."""
    found = [
        SurveyedBroker(id=id_, host="h", port=9092, rack=None, is_fenced=False, version="0.2.0")
        for id_ in (1, 2)
    ]

    async def survey(_: object) -> list[SurveyedBroker]:
        return found

    async def controllers(_: object) -> dict[int, str | None]:
        return {101: "0.2.0", 102: None}

    monkeypatch.setattr(upgrades, "brokers_of", survey)
    monkeypatch.setattr(upgrades, "controllers_of", controllers)
    yield found


def options(**given: Any) -> Namespace:
    usual = {"format": "table", "yes": False, "dry_run": False, "unsafe": False, "levels": []}
    return Namespace(**({**usual, "feature": []} | given))


def admin_of(*features: Mapping[str, FeatureLevels], refusal: str = "") -> Any:
    error = RefusedError(ErrorCode.INVALID_UPDATE_VERSION, refusal) if refusal else None
    return PlayedAdmin(dict(enumerate(features, 1)), error)


@pytest.mark.parametrize(
    ("texts", "levels"),
    [
        (["metadata.version=33"], {METADATA: 33}),
        (["metadata.version=4.4-IV2", "group.version=0"], {METADATA: 33, "group.version": 0}),
        (["ottla.version=0.3.0"], {OTTLA: 1}),
    ],
)
def test_a_level_is_a_number_or_the_name_of_a_release(
    texts: list[str], levels: dict[str, int]
) -> None:
    assert levels_of(texts) == levels


@pytest.mark.parametrize(
    "texts",
    [["metadata.version"], ["=3"], ["a=-1"], ["a=x"], ["a=" + "9" * 6], ["a=1", "a=2"], ["a=٣"]],
)
def test_what_is_no_level_is_named(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="FEATURE=LEVEL"):
        levels_of(texts)


async def test_levels_are_shown_with_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert await describe(admin_of(NEW), options()) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        *["metadata.version", "32", "(4.4-IV1)", "30", "(4.3-IV0)", "33", "(4.4-IV2)"]
    ]
    await describe(admin_of(NEW), options(format="json"))
    (metadata, _) = json.loads(capsys.readouterr().out)
    assert metadata == {"feature": METADATA, "finalized": 32, "lowest": 30, "highest": 33}


async def test_a_level_is_raised_if_it_is_confirmed(capsys: pytest.CaptureFixture[str]) -> None:
    admin, levels = admin_of(NEW), ["metadata.version=33"]

    assert await upgrade(admin, options(levels=levels, dry_run=True)) == 0
    with pytest.raises(UnconfirmedError):
        await upgrade(admin, options(levels=levels))
    assert admin.made == []
    shown = capsys.readouterr()
    assert "32 (4.4-IV1)  33 (4.4-IV2)" in shown.out
    assert "nothing was changed" in shown.err
    assert await upgrade(admin, options(levels=levels, yes=True)) == 0
    assert admin.made == [({METADATA: 33}, FeatureUpdateKind.UPGRADE)]
    assert capsys.readouterr().out == "metadata.version is 33 (4.4-IV2)\n"


async def test_a_refused_level_is_not_asked_about() -> None:
    admin = admin_of(NEW, refusal="Broker 2 only supports versions 30-32")

    with pytest.raises(RefusedError, match="Broker 2 only"):
        await upgrade(admin, options(levels=["metadata.version=33"], yes=True))
    assert admin.made == []


async def test_a_level_that_is_finalized_needs_no_change() -> None:
    admin = admin_of(NEW)

    assert await upgrade(admin, options(levels=["metadata.version=32"], yes=True)) == 0
    assert admin.made == []


@pytest.mark.parametrize(
    ("is_unsafe", "kind"),
    [(False, FeatureUpdateKind.SAFE_DOWNGRADE), (True, FeatureUpdateKind.UNSAFE_DOWNGRADE)],
)
async def test_a_level_is_lowered(is_unsafe: bool, kind: FeatureUpdateKind) -> None:
    admin = admin_of(NEW)
    arguments = options(levels=["metadata.version=31"], yes=True, unsafe=is_unsafe)

    assert await downgrade(admin, arguments) == 0
    assert admin.updates == [({METADATA: 31}, kind, True), ({METADATA: 31}, kind, False)]


async def test_an_upgrade_ends_with_all_levels_that_all_brokers_support() -> None:
    admin = admin_of(NEW, NEW)

    assert await upgrades.finalize(admin, options(yes=True)) == 0
    assert admin.made == [({OTTLA: 1, METADATA: 33}, FeatureUpdateKind.UPGRADE)]


async def test_an_upgrade_does_not_end_while_a_broker_is_old_or_silent(
    brokers: list[SurveyedBroker],
) -> None:
    admin = admin_of(NEW, OLD)
    with pytest.raises(RefusedError, match=r"not all brokers support level 1 \(since 0\.3\.0\)"):
        await upgrades.finalize(admin, options(yes=True))
    brokers[1].failure = "connection refused"
    with pytest.raises(RefusedError, match="broker 2 did not answer"):
        await upgrades.finalize(admin, options(yes=True))
    assert admin.updates == []


async def test_the_status_names_what_prevents_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    admin = admin_of(NEW, OLD, refusal="Broker 2 does not support this feature.")

    assert await upgrades.status(admin, options()) == 2
    shown = capsys.readouterr()
    assert "1 (since 0.3.0)" in shown.out
    assert "not ready: Broker 2 does not support this feature." in shown.err
    assert await upgrades.status(admin, options(format="json")) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["ready"], found["next"]) == (False, {OTTLA: 1, METADATA: 33})
    assert found["brokers"][1]["highest"] == {OTTLA: 0, METADATA: 32}


async def test_the_status_of_an_old_cluster_names_the_levels_of_the_commands_release(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = admin_of(OLD, OLD, refusal="The controller does not support this feature.")

    assert await upgrades.status(admin, options(format="json")) == 2
    assert json.loads(capsys.readouterr().out)["next"] == {OTTLA: 1, METADATA: 33}
    with pytest.raises(RefusedError, match="not all brokers support"):
        await upgrades.finalize(admin, options(yes=True))


async def test_the_status_shows_the_version_of_each_controller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = admin_of(FINAL, FINAL)
    await upgrades.status(admin, options())
    assert [line.split() for line in capsys.readouterr().out.splitlines()][-5:-1] == [
        ["CONTROLLER", "VERSION"],
        ["101", "0.2.0"],
        ["102", "-"],
        [],
    ]
    await upgrades.status(admin, options(format="json"))
    found = json.loads(capsys.readouterr().out)
    assert found["controllers"] == [
        {"id": 101, "version": "0.2.0"},
        {"id": 102, "version": None},
    ]


@pytest.mark.parametrize(("level", "is_fixed"), [(0, True), (1, False)])
async def test_the_status_names_the_command_after_which_voters_may_change(
    level: int, is_fixed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    features = FINAL | {"kraft.version": FeatureLevels(level, 0, 1)}
    assert await upgrades.status(admin_of(features, features), options()) == 0
    command = "ottla cluster upgrade finalize --feature kraft.version=1"
    assert (command in capsys.readouterr().out) is is_fixed


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        (NEW, "each node may return to the release before"),
        (SHARING, "run 'ottla cluster features downgrade share.version=0'"),
        (NEW | {METADATA: FeatureLevels(33, 30, 33)}, "no node may return to release 0.2.0"),
        (FINAL, "nothing is left to finalize"),
    ],
)
async def test_the_status_names_the_next_step(
    features: Mapping[str, FeatureLevels], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await upgrades.status(admin_of(features, features), options()) == 0
    assert sentence in capsys.readouterr().out
    assert await upgrades.finalize(admin_of(FINAL, FINAL), options(yes=True)) == 0


@pytest.mark.parametrize(
    ("features", "can_return", "lowered"),
    [(NEW, True, {}), (SHARING, True, {SHARE: 0}), (FINAL, False, {})],
)
async def test_the_status_reports_levels_to_lower_before_a_return(
    features: Mapping[str, FeatureLevels],
    can_return: bool,
    lowered: dict[str, int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    await upgrades.status(admin_of(features, features), options(format="json"))
    found = json.loads(capsys.readouterr().out)
    assert (found["can_return"], found["lower_before_return"]) == (can_return, lowered)


@pytest.mark.parametrize(
    ("features", "change", "level", "sentence"),
    [
        (SHARING, downgrade, 0, "share groups stop, and their consumers fail"),
        (SHARING, upgrade, 2, ""),
        (NEW | {SHARE: FeatureLevels(0, 0, 2)}, upgrade, 1, "no broker can return"),
        (FINAL | {SHARE: FeatureLevels(0, 0, 2)}, upgrade, 1, ""),
    ],
)
async def test_a_change_of_share_version_names_its_consequence(
    features: Mapping[str, FeatureLevels],
    change: Any,
    level: int,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await change(admin_of(features), options(levels=[f"{SHARE}={level}"], yes=True))
    shown = capsys.readouterr().err
    assert sentence in shown
    assert bool(shown) == bool(sentence)
