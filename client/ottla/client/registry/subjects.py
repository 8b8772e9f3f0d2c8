"""Naming strategies for subjects, as in Confluent's serializers. Pure.

A strategy is a function of the topic, the part of the record, and the full name of the record's
type: an Avro name, a Protobuf message, or the title of a JSON schema. Any other function with these
arguments can be used.
"""

from collections.abc import Callable

from ottla.client.registry.framing import RecordPart

SubjectStrategy = Callable[[str, RecordPart, str], str]
"""Function of topic, part and record name that returns the name of a subject."""


def topic_name(topic: str, part: RecordPart, record_name: str) -> str:
    """Return `topic-key` or `topic-value` (TopicNameStrategy).  This is the default."""
    return f"{topic}-{part}"


def record_name(topic: str, part: RecordPart, record_name: str) -> str:
    """Return the name of the record's type (RecordNameStrategy)."""
    return _required(record_name)


def topic_record_name(topic: str, part: RecordPart, record_name: str) -> str:
    """Return `topic-type`, the topic and the name of the record's type
    (TopicRecordNameStrategy)."""
    return f"{topic}-{_required(record_name)}"


def _required(name: str) -> str:
    if not name:
        raise ValueError("the schema has no name; a JSON schema gets one from its title")
    return name
