"""UpdateFeatures beside Kafka 4.4.0, whose answers to the same requests are in the table."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.controller.decision import Context, decided
from ottla.controller.settings.update_features import update_features
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.image import ControllerRegistration, FeatureRange
from ottla.metadata.records import feature_level_record
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse

MV, OV = "metadata.version", "ottla.version"
GROUP, TRANSACTION, KRAFT = "group.version", "transaction.version", "kraft.version"
ELR, SHARE, STREAMS = "eligible.leader.replicas.version", "share.version", "streams.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3

NEEDS_TYPE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe"
    " or unsafe downgrade."
)
LOSES = "Refusing to perform the requested downgrade because it might delete metadata information."
NOT_UNSAFE = "Unsafe metadata downgrade is not supported in this version."
UP = "Can't downgrade to a newer version."
NO_TYPE = "The controller does not support the given upgrade type."

Update = tuple[str, int, int]


def invalid(name: str, level: int, reason: str) -> str:
    return f"Invalid update version {level} for feature {name}. {reason}"


def lowered(name: str, now: int, level: int, reason: str) -> str:
    return f"Unsupported {name} downgrade from {now} to {level}. {reason}"


def only(levels: str) -> str:
    return f"Local controller 1 only supports versions {levels}"


NOT_SUPPORTED = "Local controller 1 does not support this feature."

OF_KAFKA: list[tuple[list[Update], str | None, str | None]] = [
    # The updates, Kafka's text of the error, and ours where it differs.
    ([], None, None),
    ([(MV, 30, UPGRADE)], invalid(MV, 30, NEEDS_TYPE), None),
    ([(MV, 30, SAFE)], lowered(MV, 33, 30, LOSES), None),
    ([(MV, 30, UNSAFE)], lowered(MV, 33, 30, NOT_UNSAFE), None),
    ([(MV, 32, SAFE)], lowered(MV, 33, 32, LOSES), None),
    ([(MV, 33, UPGRADE)], None, None),
    ([(MV, 33, SAFE)], None, None),
    ([(MV, 33, 0)], invalid(MV, 33, NO_TYPE), None),
    ([(MV, 33, 4)], invalid(MV, 33, NO_TYPE), None),
    ([(MV, -1, SAFE)], invalid(MV, -1, "A feature version cannot be less than 0."), None),
    ([(GROUP, 0, UPGRADE)], invalid(GROUP, 0, NEEDS_TYPE), None),
    ([(GROUP, 0, SAFE)], None, None),
    ([(GROUP, 0, UNSAFE)], None, None),
    ([(GROUP, 1, UPGRADE)], None, None),
    ([(GROUP, 1, SAFE)], None, None),
    ([(GROUP, 2, UPGRADE)], invalid(GROUP, 2, only("0-1")), None),
    ([(TRANSACTION, 3, UPGRADE)], invalid(TRANSACTION, 3, only("0-2")), None),
    ([(TRANSACTION, 1, UPGRADE)], invalid(TRANSACTION, 1, NEEDS_TYPE), None),
    ([(TRANSACTION, 1, SAFE)], None, None),
    ([(TRANSACTION, 0, UNSAFE)], None, None),
    ([(ELR, 1, UPGRADE)], None, None),
    ([(ELR, 2, UPGRADE)], invalid(ELR, 2, only("0-1")), None),
    ([(KRAFT, 0, UPGRADE)], invalid(KRAFT, 0, NEEDS_TYPE), None),
    ([(KRAFT, 0, SAFE)], invalid(KRAFT, 0, "Can't downgrade the version of this feature."), None),
    ([(KRAFT, 0, UNSAFE)], invalid(KRAFT, 0, "Can't downgrade the version of this feature."), None),
    ([(KRAFT, 1, UPGRADE)], None, None),
    ([(KRAFT, 1, SAFE)], None, None),
    ([(KRAFT, 2, UPGRADE)], invalid(KRAFT, 2, only("0-1")), None),
    ([("x.version", 1, UPGRADE)], invalid("x.version", 1, NOT_SUPPORTED), None),
    ([("x.version", 0, UPGRADE)], invalid("x.version", 0, "Feature x.version not found."), None),
    ([("x.version", 0, SAFE)], invalid("x.version", 0, "Feature x.version not found."), None),
    ([("", 1, UPGRADE)], invalid("", 1, NOT_SUPPORTED), None),
    ([(GROUP, 0, SAFE), (TRANSACTION, 3, UPGRADE)], invalid(TRANSACTION, 3, only("0-2")), None),
    ([(TRANSACTION, 1, SAFE), (GROUP, 0, UPGRADE)], invalid(GROUP, 0, NEEDS_TYPE), None),
    # This release supports no level below 30.
    ([(MV, 34, UPGRADE)], invalid(MV, 34, only("7-33")), invalid(MV, 34, only("30-33"))),
    ([(MV, 34, SAFE)], invalid(MV, 34, only("7-33")), invalid(MV, 34, only("30-33"))),
    ([(MV, 0, SAFE)], invalid(MV, 0, only("7-33")), invalid(MV, 0, only("30-33"))),
    ([(MV, 6, UNSAFE)], invalid(MV, 6, only("7-33")), invalid(MV, 6, only("30-33"))),
    ([(MV, 29, SAFE)], lowered(MV, 33, 29, LOSES), invalid(MV, 29, only("30-33"))),
    ([(SHARE, 1, UPGRADE)], invalid(SHARE, 1, NEEDS_TYPE), None),
    ([(SHARE, 1, SAFE)], None, None),
    ([(SHARE, 2, UPGRADE)], None, None),
    ([(SHARE, 3, UPGRADE)], invalid(SHARE, 3, only("0-2")), None),
    # It has no streams groups.
    ([(STREAMS, 2, UPGRADE)], invalid(STREAMS, 2, only("0-1")), invalid(STREAMS, 2, NOT_SUPPORTED)),
    # Kafka does not have our own feature.
    ([(OV, 1, UPGRADE)], invalid(OV, 1, NOT_SUPPORTED), ""),
    ([(OV, 0, SAFE)], invalid(OV, 0, "Feature ottla.version not found."), lowered(OV, 1, 0, LOSES)),
]
"""Requests in version 2 to a cluster of the levels 33, 1, 2, 1 and 1 of metadata.version,
group.version, transaction.version, eligible.leader.replicas.version and kraft.version."""

PREFIX = "The update failed for all features since the following feature had an error: "


def ask(
    cluster: InMemoryController,
    *updates: Update,
    version: int = 2,
    is_dry: bool = False,
    controllers: tuple[ControllerRegistration, ...] = (),
    voter_ids: tuple[int, ...] = (),
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        validate_only=is_dry,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
    )
    context = Context(
        config=cluster.config,
        rng=cluster.rng,
        quorum_status=cluster.quorum_status,
        api_version=version,
        controllers=controllers,
        voter_ids=tuple(map(NodeId, voter_ids)),
    )
    return cluster.take(update_features(cluster.image, context, request))


def cluster_of(*brokers: int) -> InMemoryController:
    cluster = InMemoryController()
    cluster.start(*brokers)
    return cluster


def controller(id_: int, **ranges: tuple[int, int]) -> ControllerRegistration:
    features = tuple(
        FeatureRange(name.replace("_", "."), *levels) for name, levels in ranges.items()
    )
    return ControllerRegistration(id=NodeId(id_), incarnation_id=UUID(int=id_), features=features)


@pytest.mark.parametrize(("updates", "kafkas", "ours"), OF_KAFKA)
def test_an_update_is_answered_as_by_kafka(
    updates: list[Update], kafkas: str | None, ours: str | None
) -> None:
    expected = kafkas if ours is None else ours or None
    for is_dry in (True, False):
        cluster = cluster_of(1)
        before = cluster.image.features

        answer = ask(cluster, *updates, is_dry=is_dry)

        text = None if expected is None else PREFIX + expected
        if text is not None:
            text = text.replace("controller 1 ", f"controller {cluster.config.node_id} ")
        assert (answer.error_code, answer.error_message) == (95 if text else 0, text)
        changed = {name: level for name, level, _ in updates} if not (is_dry or text) else {}
        levels = {**before, **changed}
        assert dict(cluster.image.features) == {
            one: level for one, level in levels.items() if level
        }


def test_results_of_single_features_are_in_versions_0_and_1_and_only_of_an_update() -> None:
    cluster = cluster_of(1)
    done = ask(cluster, (GROUP, 1, UPGRADE), version=1)
    refused = ask(cluster, (GROUP, 2, UPGRADE), version=1)

    assert [(one.feature, one.error_code, one.error_message) for one in done.results] == [
        (GROUP, 0, "NONE")
    ]
    assert refused.results == []


@pytest.mark.parametrize(("may_lower", "level"), [(True, 0), (False, 1)])
def test_version_0_has_a_flag_that_permits_a_downgrade(may_lower: bool, level: int) -> None:
    cluster = cluster_of(1)
    update = FeatureUpdateKey(feature=GROUP, max_version_level=0, allow_downgrade=may_lower)
    context = Context(
        config=cluster.config, rng=cluster.rng, quorum_status=cluster.quorum_status, api_version=0
    )
    request = UpdateFeaturesRequest(feature_updates=[update])

    answer = cluster.take(update_features(cluster.image, context, request))

    assert answer.error_message == (None if may_lower else PREFIX + invalid(GROUP, 0, NEEDS_TYPE))
    assert cluster.image.features.get(GROUP, 0) == level


def test_a_feature_that_is_named_twice_is_refused() -> None:
    """Kafka takes one of the two levels."""
    answer = ask(cluster_of(1), (GROUP, 1, UPGRADE), (GROUP, 0, SAFE))

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == PREFIX + "Feature group.version appears more than once."


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_a_level_without_changed_records_can_be_lowered(kind: int) -> None:
    cluster = cluster_of(1)
    cluster.take(decided(cluster.image, [feature_level_record(MV, 31)], None))

    assert ask(cluster, (MV, 30, kind)).error_code == 0
    assert cluster.image.features[MV] == 30


def test_a_controller_that_does_not_support_a_level_prevents_it() -> None:
    """A standby controller would read records that it does not know."""
    cluster = cluster_of(1)
    cluster.take(decided(cluster.image, [feature_level_record(MV, 32)], None))
    old = controller(102, metadata_version=(30, 32))
    new = controller(102, metadata_version=(30, 33))
    own = cluster.config.node_id
    update = (MV, 33, UPGRADE)

    refused = ask(cluster, update, controllers=(old,))
    unregistered = ask(cluster, update, controllers=(new,), voter_ids=(own, 102, 103))
    without = ask(cluster, (OV, 1, UPGRADE), controllers=(new,))

    text = PREFIX + invalid(MV, 33, "Controller 102 only supports versions 30-32")
    assert refused.error_message == text
    text = invalid(MV, 33, "controller 103 has not registered, and may not support this feature")
    assert unregistered.error_message == PREFIX + text
    text = invalid(OV, 1, "Controller 102 does not support this feature.")
    assert without.error_message == PREFIX + text
    assert cluster.image.features[MV] == 32
    assert ask(cluster, update, controllers=(new,), voter_ids=(own, 102)).error_code == 0


def test_a_broker_that_does_not_support_a_level_prevents_it() -> None:
    cluster = cluster_of(1, 2)
    cluster.take(decided(cluster.image, [feature_level_record(MV, 32)], None))
    broker = cluster.image.brokers[NodeId(2)]
    old = replace(broker, features=(FeatureRange(MV, 30, 32),))
    cluster.image = replace(cluster.image, brokers=cluster.image.brokers.set(broker.id, old))

    assert ask(cluster, (MV, 33, UPGRADE)).error_message == PREFIX + invalid(
        MV, 33, "Broker 2 only supports versions 30-32"
    )
    assert ask(cluster, (OV, 1, UPGRADE)).error_message == PREFIX + invalid(
        OV, 1, "Broker 2 does not support this feature."
    )


def test_the_level_of_controllers_brings_their_registrations_into_the_log() -> None:
    """Below it, they are only in the memory of the active controller."""
    cluster = cluster_of(1)
    cluster.take(decided(cluster.image, [feature_level_record(OV, 0)], None))
    known = controller(102, ottla_version=(0, 1))

    assert ask(cluster, (OV, 1, UPGRADE), controllers=(known,), is_dry=True).error_code == 0
    assert not cluster.image.controllers
    assert ask(cluster, (OV, 1, UPGRADE), controllers=(known,)).error_code == 0
    assert dict(cluster.image.controllers) == {known.id: known}
    assert cluster.image.features[OV] == 1
