"""Names of partition directories, as Kafka gives them."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.storage.disk.directory_names import (
    DirectoryKind,
    deleted_name,
    directory_name,
    parse_directory_name,
    stray_name,
)

PARTITION = TopicPartition("a-b.c", 12)
UNIQUE = UUID("0123456789abcdef0123456789abcdef")


def test_the_names_are_kafkas() -> None:
    assert directory_name(PARTITION) == "a-b.c-12"
    assert deleted_name(PARTITION, UNIQUE) == "a-b.c-12.0123456789abcdef0123456789abcdef-delete"
    assert stray_name(PARTITION, UNIQUE) == "a-b.c-12.0123456789abcdef0123456789abcdef-stray"


@given(st.text(alphabet="aZ0._-", min_size=1, max_size=249), st.integers(0, (1 << 31) - 1))
def test_every_partition_is_found_again_by_its_name(topic: str, partition: int) -> None:
    expected = TopicPartition(topic, partition)
    assert parse_directory_name(directory_name(expected)) == (DirectoryKind.LOG, expected)
    for name, kind in (
        (deleted_name(expected, UNIQUE), DirectoryKind.DELETE),
        (stray_name(expected, UNIQUE), DirectoryKind.STRAY),
    ):
        assert len(name) <= 255
        assert parse_directory_name(name).kind is kind


@pytest.mark.parametrize(
    "name",
    ["__cluster_metadata-0", "remote-log-index-cache", "lost+found", "a-01", "-1", "a-", "a--x"],
)
def test_what_is_no_partition_is_left_alone(name: str) -> None:
    assert parse_directory_name(name).kind is DirectoryKind.OTHER


def test_a_topic_may_look_like_a_suffix() -> None:
    assert parse_directory_name("x.y-delete-0") == (
        DirectoryKind.LOG,
        TopicPartition("x.y-delete", 0),
    )
