"""Levels of a new cluster, as options of 'ottla storage format'."""

import pytest

from ottla.cli.cluster.formatting.initial_features import (
    check_voters_may_be_fixed,
    initial_features,
)
from ottla.metadata.features import INITIAL_LEVELS, bootstrap_records
from ottla.metadata.fold import apply_all
from ottla.metadata.image import EMPTY
from ottla.model.errors import ConfigError


def levels_of(release: str | None, *features: str) -> dict[str, int]:
    """Return the levels of a cluster that is formatted with these options."""
    more = initial_features(release, features)
    return dict(apply_all(EMPTY, bootstrap_records(min_insync_replicas=1, more=more)).features)


def test_a_cluster_without_options_has_the_latest_levels() -> None:
    assert initial_features(None, ()) == []
    assert levels_of(None) == INITIAL_LEVELS


@pytest.mark.parametrize(
    ("release", "level", "share_level"), [("4.3", 30, 1), ("4.3-IV0", 30, 1), ("4.4-IV0", 31, 2)]
)
def test_a_release_has_the_levels_of_kafka(release: str, level: int, share_level: int) -> None:
    own = {"metadata.version": level, "share.version": share_level}
    assert levels_of(release) == {**INITIAL_LEVELS, **own}


def test_a_feature_may_differ_from_its_release() -> None:
    assert levels_of("4.3", "share.version=2")["share.version"] == 2


def test_a_release_without_a_step_is_its_highest_supported_level() -> None:
    assert levels_of("4.4")["metadata.version"] == INITIAL_LEVELS["metadata.version"]


def test_each_feature_may_have_its_own_level() -> None:
    found = levels_of(None, "group.version=0", "transaction.version=1")

    assert "group.version" not in found
    assert found["transaction.version"] == 1


@pytest.mark.parametrize(
    ("release", "features", "sentence"),
    [
        ("9.9", (), "is '9.9'; it must be one of 4.3-IV0"),
        ("4.3", ("metadata.version=30",), "excludes --feature metadata.version"),
        (None, ("nothing=1",), "must be NAME=LEVEL, NAME one of"),
        (None, ("group.version",), "must be NAME=LEVEL"),
        (None, ("group.version=-1",), "must be NAME=LEVEL"),
        (None, ("metadata.version=29",), "the supported levels are 30 to"),
    ],
)
def test_a_level_that_cannot_be_is_refused(
    release: str | None, features: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        initial_features(release, features)


def test_voters_of_the_settings_may_be_fixed() -> None:
    levels = initial_features(None, ("kraft.version=0",))
    check_voters_may_be_fixed(levels, is_static=True)
    assert "kraft.version" not in levels_of(None, "kraft.version=0")
    with pytest.raises(ConfigError, match=r"it needs controller\.quorum\.voters"):
        check_voters_may_be_fixed(levels, is_static=False)
    check_voters_may_be_fixed(initial_features(None, ()), is_static=False)
