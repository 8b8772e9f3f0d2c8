"""Strategies for the names of subjects, as in Confluent's serializers. Pure.

A strategy is a function of the topic, the part of the record (key or value), and the full name of
the record's type. The type is an Avro name, a Protobuf message, or the title of a JSON schema. An
application may use any other function with these arguments.
"""

from collections.abc import Callable

from ottla.client.registry.framing import RecordPart

SubjectStrategy = Callable[[str, RecordPart, str], str]
"""Function that returns the name of a subject. Its arguments are the topic, the part of the record
(key or value), and the full name of the record's type."""


def topic_name(topic: str, part: RecordPart, record_name: str) -> str:
    """Return the subject `TOPIC-key` or `TOPIC-value` (TopicNameStrategy). This strategy is the
    default."""
    return f"{topic}-{part}"


def record_name(topic: str, part: RecordPart, record_name: str) -> str:
    """Return the name of the record's type as the subject (RecordNameStrategy)."""
    return _required(record_name)


def topic_record_name(topic: str, part: RecordPart, record_name: str) -> str:
    """Return the topic and the name of the record's type, joined by a hyphen, as the subject
    (TopicRecordNameStrategy)."""
    return f"{topic}-{_required(record_name)}"


def _required(name: str) -> str:
    if not name:
        raise ValueError("the schema has no name; a JSON schema gets one from its title")
    return name
