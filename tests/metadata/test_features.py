"""Initial features of a new cluster, and their coverage."""

from ottla.metadata import features, fold
from ottla.metadata.features import SUPPORTED, LevelRange, is_share_enabled, uncovered
from ottla.metadata.image import EMPTY


def test_a_new_cluster_starts_with_its_features_and_one_min_insync_replicas() -> None:
    records = features.bootstrap_records(min_insync_replicas=2)

    image = fold.apply_all(EMPTY, records)

    assert records[0].feature_level.name == "metadata.version"
    assert dict(image.features) == features.INITIAL_LEVELS
    assert dict(image.config(4, "")) == {"min.insync.replicas": "2"}


def test_this_release_covers_what_it_finalises() -> None:
    assert uncovered(features.INITIAL_LEVELS.items(), SUPPORTED) is None


def test_this_release_serves_clusters_of_the_releases_before_it() -> None:
    assert uncovered([("metadata.version", 30)], SUPPORTED) is None
    assert uncovered([("metadata.version", 29)], SUPPORTED) == "metadata.version"


def test_a_range_that_ends_below_the_level_does_not_cover_it() -> None:
    ranges = SUPPORTED | {"metadata.version": LevelRange(7, 29)}

    assert uncovered(features.INITIAL_LEVELS.items(), ranges) == "metadata.version"


def test_an_unnamed_feature_covers_only_level_zero() -> None:
    assert uncovered([("streams.version", 0)], SUPPORTED) is None
    assert uncovered([("streams.version", 1)], SUPPORTED) == "streams.version"


def test_share_groups_are_served_from_level_one_of_their_feature() -> None:
    assert uncovered([("share.version", 2)], SUPPORTED) is None
    assert uncovered([("share.version", 3)], SUPPORTED) == "share.version"
    assert [is_share_enabled({"share.version": level}) for level in (0, 1, 2)] == [
        False,
        True,
        True,
    ]
    assert not is_share_enabled({})
