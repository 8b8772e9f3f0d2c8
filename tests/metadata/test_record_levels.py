"""Records are written only at the level of ottla.version that allows them."""

from uuid import UUID

import pytest

from ottla.metadata import features, fold, record_levels
from ottla.metadata.features import OTTLA_VERSION
from ottla.metadata.image import EMPTY, ControllerRegistration, MetadataImage
from ottla.metadata.record_levels import FIELDS, KINDS, check_writable, level_of
from ottla.metadata.records import (
    feature_level_record,
    register_controller_record,
    topic_record,
    unregister_controller_record,
)
from ottla.model.errors import NewerReleaseError
from ottla.model.ids import NodeId
from ottla.proto import metadata_pb2

CONTROLLER = ControllerRegistration(id=NodeId(101), incarnation_id=UUID(int=1))

OF_RELEASE_0_2_0 = {
    "register_broker": 12,
    "unregister_broker": 2,
    "topic": 2,
    "partition": 15,
    "config": 4,
    "partition_change": 12,
    "remove_topic": 1,
    "delegation_token": 7,
    "user_scram_credential": 6,
    "feature_level": 2,
    "client_quota": 3,
    "producer_ids": 3,
    "broker_registration_change": 6,
    "access_control_entry": 8,
    "remove_access_control_entry": 1,
    "no_op": 0,
    "remove_user_scram_credential": 2,
    "remove_delegation_token": 1,
    "clear_elr": 1,
}
"""Records of the first release that can be rolled, and the highest number of their fields."""


def image_at(level: int) -> MetadataImage:
    return fold.apply(EMPTY, feature_level_record(OTTLA_VERSION, level))


def test_what_release_0_2_0_does_not_know_has_a_level() -> None:
    """Without one, a node could not return to that release.  A new kind or field is entered in
    `record_levels.py`, never here."""
    kinds = metadata_pb2.MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields
    for kind in kinds:
        known_max = OF_RELEASE_0_2_0.get(kind.name)
        if known_max is None:
            assert KINDS[kind.name] > 0
            continue
        assert kind.message_type is not None
        for field in kind.message_type.fields:
            assert field.number <= known_max or FIELDS[kind.name, field.name] > 0


def test_every_level_is_one_of_the_feature() -> None:
    assert set(KINDS.values()) | set(FIELDS.values()) <= set(features.OTTLA_VERSION_NAMES)
    assert max(features.OTTLA_VERSION_NAMES) == record_levels.HIGHEST


@pytest.mark.parametrize(
    "record", [register_controller_record(CONTROLLER), unregister_controller_record(CONTROLLER.id)]
)
def test_a_record_is_not_written_below_its_level(record: metadata_pb2.MetadataRecord) -> None:
    old = topic_record("a", UUID(int=2))
    check_writable([old], image_at(0))
    check_writable([old, record], image_at(1))
    with pytest.raises(AssertionError, match="WritableLevels"):
        check_writable([old, record], image_at(0))


def test_a_field_can_have_a_level_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIELDS, ("topic", "topic_id"), 1)

    assert level_of(topic_record("a", UUID(int=2))) == 1
    assert level_of(metadata_pb2.MetadataRecord(topic=metadata_pb2.Topic(name="a"))) == 0


@pytest.mark.parametrize(("name", "level"), [(OTTLA_VERSION, 99), ("new.version", 1)])
def test_a_level_of_a_newer_release_is_named(name: str, level: int) -> None:
    image = fold.apply(EMPTY, feature_level_record(name, level))

    with pytest.raises(NewerReleaseError, match=f"has level {level} of {name}, and Ottla .* the"):
        features.check_supported(image.features.items())
    features.check_supported(image_at(1).features.items())
