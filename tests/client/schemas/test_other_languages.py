"""Records of Confluent's JavaScript serializers and of franz-go, in both directions.

With `OTTLA_INTEROP=full`, npm and Go fetch their packages, some 170 MB, and a Go program is built.
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP_FILE

from ottla.client.registry.schema_registry import run_blocking
from ottla.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    EncodedField,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaFormat,
    SchemaRegistry,
    SerializerConfig,
    open_blocking_registry,
)
from tests.client.registry.registry_server import serve_registry
from tests.client.schemas.order_schemas import (
    AVRO_ORDER,
    AVRO_PRICE,
    JSON_ORDER,
    JSON_PRICE,
    ORDER,
    ORDER_FILE,
    PRICE_FILE,
    ProtoOrder,
    proto_order,
)
from tests.client.schemas.round_trips import read_back

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(
        os.environ.get("OTTLA_INTEROP") != "full", reason="OTTLA_INTEROP=full runs it"
    ),
]

HERE = Path(__file__).parent / "interop"
NPM_PACKAGE = "@confluentinc/schemaregistry@1.10.1"
GO_MODULES = (
    "github.com/hamba/avro/v2@v2.31.0",
    "github.com/twmb/franz-go/pkg/sr@v1.8.0",
    "google.golang.org/protobuf@v1.36.12",
)
FORMATS = ("avro", "json", "protobuf")

Program = Callable[[str, list[dict[str, Any]]], list[dict[str, Any]]]
"""Function of a registry's address and cases that returns the results of a program."""


def program_at(command: list[str], directory: Path) -> Program:
    """Return a function that runs a program on cases."""
    files = FileDescriptorSet(file=[PRICE_FILE, ORDER_FILE])
    files.file.insert(0, files.file.add())
    del files.file[-1]
    files.file[0].ParseFromString(TIMESTAMP_FILE.serialized_pb)

    def run(url: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        given = {"url": url, "files": encode(files.SerializeToString()), "cases": cases}
        done = subprocess.run(
            command,
            cwd=directory,
            input=json.dumps(given).encode(),
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return run


def installed(tool: str) -> str:
    """Return the path of a tool; skip the test if it is not installed."""
    found = shutil.which(tool) or shutil.which(tool, path="/usr/local/go/bin")
    if found is None:
        pytest.skip(f"{tool} is not installed")
    return found


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Give the program with Confluent's JavaScript serializers."""
    node, npm = installed("node"), installed("npm")
    directory = tmp_path_factory.mktemp("javascript")
    (directory / "package.json").write_text("{}")
    options = ["--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run([npm, "install", *options, NPM_PACKAGE], cwd=directory, check=True)
    shutil.copy(HERE / "confluent.js", directory)
    return program_at([node, "confluent.js"], directory)


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Give the program with franz-go's schema registry package."""
    tool = installed("go")
    directory = tmp_path_factory.mktemp("go")
    shutil.copy(HERE / "franz.go", directory)
    for arguments in (["mod", "init", "interop"], ["get", *GO_MODULES], ["build", "-o", "franz"]):
        subprocess.run([tool, *arguments], cwd=directory, check=True)
    return program_at(["./franz"], directory)


class OurSide:
    """Our serializers and deserializers with one registry."""

    def __init__(self, url: str, registry: SchemaRegistry) -> None:
        self.url = url
        self.registry = registry

    def write(self, kind: str, is_in_header: bool = False) -> EncodedField:
        """Return an order as our serializer writes it."""
        config = SerializerConfig(is_guid_in_header=is_in_header)
        make: dict[str, tuple[Any, Any]] = {
            "avro": (AvroSerializer[Any], AVRO_ORDER),
            "json": (JsonSchemaSerializer[Any], JSON_ORDER),
            "protobuf": (ProtobufSerializer[Any], ProtoOrder),
        }
        serializer_class, schema = make[kind]
        serializer = serializer_class(self.registry, schema, config=config)
        value = proto_order() if kind == "protobuf" else ORDER
        encoded: EncodedField = run_blocking(serializer.serialize(kind, "value", value))
        return encoded

    def read(self, kind: str, encoded: EncodedField) -> Any:
        """Return an order as plain JSON, as our deserializer reads it."""
        deserializer: Any = {
            "avro": AvroDeserializer[Any],
            "json": JsonSchemaDeserializer[Any],
            "protobuf": ProtobufDeserializer[Any],
        }[kind](self.registry)
        found = run_blocking(read_back(deserializer, encoded))
        return json_format.MessageToDict(found) if kind == "protobuf" else found


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[OurSide]:
    """Give our side, with a registry that has the prices and orders."""
    with serve_registry(tmp_path) as server, open_blocking_registry(server.url) as registry:
        run_blocking(registry.register("shop.Price", Schema(AVRO_PRICE)))
        run_blocking(registry.register("price.json", Schema(JSON_PRICE, SchemaFormat.JSON)))
        side = OurSide(server.url, registry)
        for kind in FORMATS:
            side.write(kind)
        yield side


EXPECTED: dict[str, Any] = {
    "avro": ORDER,
    "json": ORDER,
    "protobuf": json_format.MessageToDict(proto_order()),
}


def encode(data: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(data).decode()


def check_theirs(ours: OurSide, program: Program, *, is_in_header: bool = False) -> None:
    """Check that our deserializers read the records of a program."""
    cases = [
        {"format": kind, "topic": kind, "value": EXPECTED[kind], "isInHeader": is_in_header}
        for kind in FORMATS
    ]
    for kind, found in zip(FORMATS, program(ours.url, cases), strict=True):
        assert "error" not in found, found["error"]
        headers = {
            name: base64.b64decode(content) for name, content in found.get("headers", {}).items()
        }
        assert bool(headers) is is_in_header
        encoded = EncodedField(base64.b64decode(found["data"]), tuple(headers.items()))
        assert ours.read(kind, encoded) == EXPECTED[kind], kind


def check_ours(ours: OurSide, program: Program, *, is_in_header: bool = False) -> None:
    """Check that a program reads the records of our serializers."""
    cases = []
    for kind in FORMATS:
        encoded = ours.write(kind, is_in_header)
        headers = {name: encode(content) for name, content in encoded.headers}
        cases.append(
            {"format": kind, "topic": kind, "data": encode(encoded.data), "headers": headers}
        )
    for kind, found in zip(FORMATS, program(ours.url, cases), strict=True):
        assert "error" not in found, found["error"]
        assert found["value"] == EXPECTED[kind], kind


@pytest.mark.parametrize("is_in_header", [False, True], ids=["prefix", "header"])
def test_records_of_confluents_javascript_client(
    ours: OurSide, javascript: Program, is_in_header: bool
) -> None:
    check_theirs(ours, javascript, is_in_header=is_in_header)
    check_ours(ours, javascript, is_in_header=is_in_header)


def test_records_of_franz_go(ours: OurSide, go: Program) -> None:
    check_theirs(ours, go)
    check_ours(ours, go)
