"""Records of the metadata log in words."""

from uuid import UUID

import pytest

from ottla.jepsen.fuzz.targets.metadata import history
from ottla.metadata import records
from ottla.metadata.record_words import WORDS, topic_id_text, words_of
from ottla.metadata.records import Record
from ottla.model.ids import NodeId
from ottla.model.security.scram import ScramCredential
from ottla.proto import metadata_pb2 as pb


def words(record: Record) -> str:
    return words_of(record, lambda topic_id: f"t{UUID(bytes=topic_id).int}")


TOPIC = UUID(int=7)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            records.partition_change_record(
                TOPIC, 2, leader=NodeId(-1), isr=[NodeId(1), NodeId(2)]
            ),
            "partition t7-2: no leader; in sync 1, 2",
        ),
        (records.remove_topic_record(TOPIC), "topic t7 was deleted"),
        (
            records.config_record(2, "orders", "retention.ms", "7"),
            "topic orders: retention.ms=7",
        ),
        (records.config_record(4, "", "k", None), "every broker: k was removed"),
        (
            records.config_record(4, "1", "listener.name.a.ssl.keystore.key", "secret"),
            "broker 1: listener.name.a.ssl.keystore.key=(hidden)",
        ),
        (
            records.feature_level_record("metadata.version", 33),
            "feature metadata.version has level 33 (4.4-IV2)",
        ),
        (Record(), "a record of a later release"),
    ],
)
def test_a_record_is_a_sentence(record: Record, text: str) -> None:
    assert words(record) == text


def test_every_kind_of_record_has_words() -> None:
    kinds = {field.name for field in pb.MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields}
    assert set(WORDS) >= kinds - UNWORDED
    for record in history():
        assert words_of(record, topic_id_text)


UNWORDED: frozenset[str] = frozenset()
"""Kinds that are named by their kind only."""


def test_no_secret_of_a_credential_is_shown() -> None:
    credential = ScramCredential(b"salt-bytes", b"stored-key", b"server-key", 4_096)
    text = words(records.scram_credential_record("al", 1, credential))
    assert text == "user al has another credential for SCRAM-SHA-256"
