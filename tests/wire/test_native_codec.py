"""The codecs that are compiled ahead read and write the same bytes as the codec's other functions.

Interpreted, the modules of the compiled form are made in memory from the same source.
"""

import random
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.model.compiled import installed_form
from ottla.model.errors import ProtocolError
from ottla.wire import codec, schema
from ottla.wire.answers import encode_answer, framed_answer
from ottla.wire.apis import message_class
from ottla.wire.codec_examples import example
from ottla.wire.codec_types import Message
from ottla.wire.codec_writers.codec_native import native_module_name, native_source
from ottla.wire.generator import schema_files
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.native_codec import ABSENT, UNUSUAL, NativeCodec, UnusualError
from ottla.wire.schema import module_name

ROOT = Path(__file__).parents[2]
HATCH = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
COMPILED = set(HATCH["targets"]["wheel"]["hooks"]["custom"]["modules"])
NAMES = [name for name in schema_files() if f"ottla.wire.messages.{module_name(name)}" in COMPILED]
EXAMPLES_PER_VERSION = 3
FLIPS_PER_VERSION = 60
BOUND = 1 << 20


@cache
def native(name: str) -> NativeCodec:
    """Return the native codec of a message, compiled or made from its source."""
    made: NativeCodec
    if installed_form() == "compiled":
        made = import_module(native_module_name(name)).CODEC
        return made
    module = ModuleType(native_module_name(name))
    sys.modules[module.__name__] = module
    try:
        exec(compile(native_source(name), module.__name__, "exec"), vars(module))
    finally:
        del sys.modules[module.__name__]
    made = module.CODEC
    return made


@pytest.fixture(autouse=True)
def reference_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the codec use the functions that it makes itself."""
    for name in NAMES:
        monkeypatch.setitem(codec._natives, message_class(name), ABSENT)


def examples(name: str) -> Iterator[tuple[int, Message]]:
    rng = FuzzRng(random.Random(name))
    for version in message_class(name).VERSIONS:
        for _ in range(EXAMPLES_PER_VERSION):
            yield version, example(message_class(name), version, rng)


def test_every_compiled_message_has_a_native_codec() -> None:
    assert len(NAMES) == sum(name.startswith("ottla.wire.messages.") for name in COMPILED)
    assert len(NAMES) > 20


@pytest.mark.parametrize("name", NAMES)
def test_a_message_is_written_as_by_the_codec(name: str) -> None:
    for version, message in examples(name):
        assert native(name).encode(message, version, 0, 0) == codec.encode_chunks(message, version)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("Response")])
def test_an_answer_is_framed_as_by_the_codec(name: str) -> None:
    key = message_class(name).API_KEY
    for version, message in examples(name):
        for correlation_id in (0, 7, -1, 2**31 - 1, -(2**31)):
            body = codec.encode_chunks(message, version)
            framed = framed_answer(list(body), key, version, correlation_id)
            head_bytes = sum(map(len, framed)) - sum(map(len, body))
            found = native(name).encode(message, version, head_bytes, correlation_id)
            assert found == framed
            assert encode_answer(message, key, version, correlation_id) == framed


@pytest.mark.parametrize("name", NAMES)
def test_a_message_is_read_as_by_the_codec(name: str) -> None:
    for version, message in examples(name):
        data = codec.encode(message, version)
        for prefix in (b"", b"x" * 7, b"x" * 5_000):
            view = memoryview(prefix + data)
            found = native(name).decode(version, view, len(prefix), BOUND)
            assert found == (message, len(view))
            whole = memoryview(prefix + data + b"further")
            assert native(name).decode(version, whole, len(prefix), BOUND) == found


@pytest.mark.parametrize("name", NAMES)
def test_of_changed_bytes_nothing_is_read_that_the_codec_refuses(name: str) -> None:
    chance = random.Random(name)
    kind = message_class(name)
    read_count = 0
    for version, message in examples(name):
        data = codec.encode(message, version)
        for number in range(FLIPS_PER_VERSION if data else 0):
            changed = bytearray(data)
            for _ in range(chance.choice((1, 1, 2, 8))):
                changed[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            view = memoryview(changed)[: chance.randrange(len(data)) if number % 4 == 0 else None]
            found = outcome(native(name), version, view)
            if found is not None:
                read_count += 1
                assert codec.decode_prefix(kind, version, view, 0, BOUND) == found
    assert read_count or not any(codec.encode(message, v) for v, message in examples(name))


def outcome(one: NativeCodec, version: int, view: memoryview) -> tuple[Any, int] | None:
    try:
        return one.decode(version, view, 0, BOUND)
    except UNUSUAL:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_a_version_that_does_not_exist_is_left_to_the_codec(name: str) -> None:
    versions = message_class(name).VERSIONS
    for version in (-1, versions[0] - 1, versions[-1] + 1, 99):
        assert outcome(native(name), version, memoryview(bytes(100))) is None
        with pytest.raises(ProtocolError):
            codec.decode(message_class(name), version, bytes(100))


def test_records_are_views_of_the_frame_however_large_they_are() -> None:
    sizes = (0, 10, 5_000, 100_000, 3)
    partitions = [PartitionProduceData(index=at, records=bytes(n)) for at, n in enumerate(sizes)]
    message = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)])
    frame = codec.encode(message, 9)
    found, end = native("ProduceRequest").decode(9, memoryview(frame), 0, BOUND)
    assert found == message
    assert end == len(frame)
    for partition in found.topic_data[0].partition_data:
        assert partition.records.obj is frame


def test_a_thousand_partitions_without_records_are_read_window_by_window() -> None:
    partitions = [PartitionData(partition_index=at, records=b"") for at in range(1_000)]
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    frame = codec.encode(message, 17)
    assert native("FetchResponse").decode(17, memoryview(frame), 0, BOUND)[0] == message


def test_a_large_message_without_records_is_read_up_to_a_mebibyte() -> None:
    topics = [MetadataRequestTopic(name="t" * 200)] * 4_000
    frame = memoryview(codec.encode(MetadataRequest(topics=topics), 12))
    found, _ = native("MetadataRequest").decode(12, frame, 0, 8 * BOUND)
    assert found.topics == topics
    assert (
        outcome(native("MetadataRequest"), 12, memoryview(frame.tobytes() + bytes(BOUND))) is None
    )


def test_elements_that_take_too_much_memory_are_left_to_the_codec() -> None:
    topics = [MetadataRequestTopic(name="t")] * 4_000
    frame = memoryview(codec.encode(MetadataRequest(topics=topics), 12))
    assert native("MetadataRequest").decode(12, frame, 0, BOUND)[1] == len(frame)
    with pytest.raises(UnusualError, match="count"):
        native("MetadataRequest").decode(12, frame, 0, 100_000)


def test_unknown_tagged_fields_are_left_to_the_codec() -> None:
    data = codec.encode(HeartbeatRequest(group_id="g"), 4)
    assert native("HeartbeatRequest").decode(4, memoryview(data), 0, BOUND)[1] == len(data)
    with pytest.raises(UnusualError, match="tag"):
        native("HeartbeatRequest").decode(4, memoryview(data[:-1] + b"\1\x63\1x"), 0, BOUND)


@pytest.mark.parametrize("name", NAMES)
def test_a_field_of_another_type_is_left_to_the_codec(name: str) -> None:
    kind = message_class(name)
    fields = [field.name for field in schema.load(kind.SCHEMA)[name].root.fields]
    refused_count = 0
    for version, message in examples(name):
        values = {field: getattr(message, field) for field in fields}
        for field in fields:
            for wrong in (None, "text", b"bytes", 1 << 70, -1, 1.5, [None], object()):
                try:
                    native(name).encode(kind(**{**values, field: wrong}), version, 0, 0)
                except UNUSUAL:
                    refused_count += 1
    assert refused_count or not fields


@pytest.mark.interpreted_only("sets a constant")
def test_an_error_of_another_kind_is_a_fault_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    faulty: Any = SimpleNamespace(decode=fail, encode=fail)
    monkeypatch.setitem(codec._natives, HeartbeatRequest, faulty)
    monkeypatch.setattr(codec, "_may_be_native", True)
    with pytest.raises(ZeroDivisionError):
        codec.decode(HeartbeatRequest, 4, b"")
    with pytest.raises(ZeroDivisionError):
        codec.encode_chunks(HeartbeatRequest(), 4)
    with pytest.raises(ZeroDivisionError):
        encode_answer(HeartbeatRequest(), 12, 4, 1)
