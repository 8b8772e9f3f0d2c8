"""The identity of a directory, in Kafka's own file."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ConfigError, CorruptDataError, NewerReleaseError
from ottla.model.ids import NodeId
from ottla.storage.directories.meta_properties import (
    MetaProperties,
    check_identities,
    format_meta_properties,
    parse_meta_properties,
    uuid_from_text,
    uuid_to_text,
)

# As `kafka-storage.sh format` of Kafka 4 writes it.
KAFKAS_FILE = b"""#
#Fri Nov 21 02:00:00 UTC 2025
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
directory.id=3Ku4jMy1Qv2vNqu6dJpWzg
node.id=1
version=1
"""
IDENTITY = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=7))


def test_kafkas_file_is_read() -> None:
    properties = parse_meta_properties(KAFKAS_FILE)
    assert properties.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"
    assert properties.node_id == 1
    assert properties.directory_id is not None
    assert uuid_to_text(properties.directory_id) == "3Ku4jMy1Qv2vNqu6dJpWzg"


def test_what_is_written_is_read() -> None:
    assert parse_meta_properties(format_meta_properties(IDENTITY)) == IDENTITY


@pytest.mark.parametrize("line", [b"version=2", b"version=1\nottla.format=2"])
def test_a_directory_of_a_newer_release_is_named_as_such(line: bytes) -> None:
    with pytest.raises(NewerReleaseError, match="a newer release formatted the directory"):
        parse_meta_properties(KAFKAS_FILE.replace(b"version=1", line))


@given(st.uuids())
def test_a_uuid_survives_its_text(uuid: UUID) -> None:
    text = uuid_to_text(uuid)
    assert len(text) == 22
    assert uuid_from_text(text) == uuid


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"version=0\ncluster.id=c\nbroker.id=1\n",
        b"version=1\ncluster.id=\nnode.id=1\n",
        b"version=1\ncluster.id=c\n",
        b"version=1\ncluster.id=c\nnode.id=-1\n",
        b"version=1\ncluster.id=c\nnode.id=" + b"1" * 5_000 + b"\n",
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n",
        b"\xff\xfe",
    ],
)
def test_a_file_that_lies_is_corrupt(wrong: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_meta_properties(wrong)


def test_an_unformatted_directory_takes_the_others_cluster() -> None:
    found = {"/a": None, "/b": IDENTITY}
    assert check_identities(found, node_id=NodeId(1), cluster_id=None) == "c"


@pytest.mark.parametrize(
    ("found", "cluster_id", "sentence"),
    [
        ({"/a": None}, None, "log.dirs: no directory is formatted; run `ottla storage format`"),
        ({"/a": IDENTITY}, "d", "log.dirs: /a belongs to cluster c, not to d"),
        (
            {"/a": MetaProperties(cluster_id="c", node_id=NodeId(2))},
            "c",
            "node.id: is 1, but /a belongs to node 2",
        ),
        (
            {"/a": IDENTITY, "/b": IDENTITY},
            "c",
            "log.dirs: /b is a copy of /a: they share one id",
        ),
    ],
)
def test_a_directory_that_is_not_ours_is_refused_in_one_sentence(
    found: dict[str, MetaProperties | None], cluster_id: str | None, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_identities(found, node_id=NodeId(1), cluster_id=cluster_id)
    assert str(caught.value) == sentence
