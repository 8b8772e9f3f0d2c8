"""Records of all formats as plain values, without Spark."""

from pathlib import Path
from typing import Any

import pytest

from ottla.client.schemas import (
    AvroSerializer,
    FramingError,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaSerializer,
    run_blocking,
)
from ottla.pipeline.registry.worker_registry import plain_message, plain_reader, worker_registry
from tests.client.registry.registry_server import serve_registry
from tests.client.schemas.order_schemas import ProtoOrder, proto_order

PLAIN_ORDER = {
    "id": "ä-1",
    "price": {"cents": 950, "currency": "EUR"},
    "tags": ["new", ""],
    "at": {"seconds": 1_700_000_000, "nanos": 0},
    "lines": [{"article": "tea"}],
}


def test_a_message_has_all_its_fields() -> None:
    assert plain_message(proto_order()) == PLAIN_ORDER
    assert plain_message(ProtoOrder()) == {
        "id": "", "price": None, "tags": [], "at": None, "lines": []
    }  # fmt: skip


def test_records_of_all_formats_are_read_and_each_schema_is_loaded_once(tmp_path: Path) -> None:
    with serve_registry(tmp_path) as server:
        registry = worker_registry(server.url)
        serializers: tuple[tuple[SchemaSerializer[Any], Any, Any], ...] = (
            (AvroSerializer[Any](registry, '"long"'), 7, 7),
            (JsonSchemaSerializer[Any](registry, "true"), {"a": 1}, {"a": 1}),
            (ProtobufSerializer[Any](registry, ProtoOrder), proto_order(), PLAIN_ORDER),
        )
        for index, (serializer, value, plain) in enumerate(serializers):
            encoded = run_blocking(serializer.serialize(f"t{index}", "value", value))
            asked_before = len(server.asked)
            for _ in range(3):
                assert plain_reader(server.url).read(encoded.data) == plain
            gets = [one for one in server.asked[asked_before:] if one.startswith("GET /schemas/")]
            assert len(gets) == len(set(gets))
        with pytest.raises(FramingError):
            plain_reader(server.url).read(b"{}")
