"""Comparison of a cluster's metadata with its first image."""

from uuid import UUID

from ottla.metadata import records
from ottla.metadata.fold import apply_all
from ottla.metadata.image import EMPTY
from ottla.model.quotas.quota_limits import USER, QuotaEntity
from ottla.model.settings.resources import ConfigKind
from ottla.testing.leftovers import NOTHING, find_leftovers

ORDERS, EARLIER = UUID(int=1), UUID(int=2)
ALICE = (QuotaEntity(USER, is_default=False, name="alice"),)


def test_an_unchanged_cluster_has_no_leftovers() -> None:
    image = apply_all(EMPTY, [records.topic_record("orders", ORDERS)])

    assert find_leftovers(image, image) == NOTHING


def test_a_topic_of_the_first_image_stays() -> None:
    first = apply_all(EMPTY, [records.topic_record("earlier", EARLIER)])
    image = apply_all(first, [records.topic_record("orders", ORDERS)])

    assert find_leftovers(image, first).topics == ("orders",)


def test_a_topic_that_was_created_again_is_a_leftover() -> None:
    first = apply_all(EMPTY, [records.topic_record("orders", EARLIER)])
    image = apply_all(
        first, [records.remove_topic_record(EARLIER), records.topic_record("orders", ORDERS)]
    )

    assert find_leftovers(image, first).topics == ("orders",)


def test_settings_of_a_deleted_topic_go_with_the_topic() -> None:
    image = apply_all(
        EMPTY,
        [
            records.topic_record("orders", ORDERS),
            records.config_record(ConfigKind.TOPIC, "orders", "retention.ms", "1"),
            records.config_record(ConfigKind.BROKER, "", "message.max.bytes", "9"),
        ],
    )

    found = find_leftovers(image, EMPTY)

    assert found.configs == {(ConfigKind.BROKER, ""): ("message.max.bytes",)}


def test_only_new_keys_of_an_earlier_resource_are_leftovers() -> None:
    first = apply_all(
        EMPTY,
        [
            records.config_record(ConfigKind.BROKER, "1", "message.max.bytes", "9"),
            records.client_quota_record(ALICE, "producer_byte_rate", 1.0),
        ],
    )
    image = apply_all(
        first,
        [
            records.config_record(ConfigKind.BROKER, "1", "background.threads", "2"),
            records.client_quota_record(ALICE, "consumer_byte_rate", 1.0),
        ],
    )

    found = find_leftovers(image, first)

    assert found.configs == {(ConfigKind.BROKER, "1"): ("background.threads",)}
    assert found.quotas == {ALICE: ("consumer_byte_rate",)}
