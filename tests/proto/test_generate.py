"""The committed modules are those that the sources generate."""

from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from ottla.proto.generate import SOURCES, run


def without_json_names(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Drop the fields that only protoc's own descriptor sets have."""
    messages = list(file.message_type)
    while messages:
        message = messages.pop()
        messages.extend(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")
    return str(file)


@pytest.mark.parametrize("source", SOURCES)
def test_the_committed_module_is_what_protoc_makes_of_the_source(
    source: str, tmp_path: Path
) -> None:
    descriptors = tmp_path / "descriptors"
    module = import_module(source.replace("/", ".").removesuffix(".proto") + "_pb2")

    run(f"--descriptor_set_out={descriptors}")

    fresh = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes())
    by_name = {file.name: file for file in fresh.file}
    committed = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    assert without_json_names(committed) == without_json_names(by_name[source])


def test_four_files_are_ours() -> None:
    names = ("client_metrics", "controller", "metadata", "quorum")
    assert tuple(f"ottla/proto/{name}.proto" for name in names) == SOURCES
