"""The registry of a directory: stable ids, versions, references, and refusals."""

import json
from pathlib import Path

import pytest

from ottla.client.registry import schema_registry
from ottla.client.registry.file_registry import file_registry
from ottla.client.registry.registry_errors import (
    InvalidSchemaError,
    ReferenceLimitError,
    RegistryRefusedError,
    SchemaTooLargeError,
    UnknownSchemaError,
)
from ottla.client.registry.schema_registry import run_blocking
from ottla.client.registry.schema_values import (
    SCHEMA_BYTES_MAX,
    Schema,
    SchemaFormat,
    SchemaReference,
)

NUMBER, TEXT = Schema('"int"'), Schema('"string"')


async def test_ids_and_versions_follow_registrations_and_stay(tmp_path: Path) -> None:
    registry = file_registry(tmp_path)
    first = await registry.register("a", NUMBER)
    second = await registry.register("a", TEXT)
    shared = await registry.register("b", NUMBER)
    assert [(one.id, one.version) for one in (first, second, shared)] == [(1, 1), (2, 2), (1, 1)]

    again = file_registry(tmp_path)
    assert await again.register("a", Schema(' "int" ')) == first.__class__(
        Schema(' "int" '), first.id, first.guid, "a", 1
    )
    assert (await again.latest_schema("a")).schema == TEXT
    assert (await again.schema_of_version("a", 1)).schema == NUMBER
    assert (await again.look_up("a", TEXT)).version == 2
    assert (await again.schema_by_id(2)).schema == TEXT
    assert first.guid is not None
    assert (await again.schema_by_guid(first.guid)).id == 1
    assert await again.list_subjects() == ["a", "b"]


async def test_two_registries_of_one_directory_give_different_ids(tmp_path: Path) -> None:
    first, second = file_registry(tmp_path), file_registry(tmp_path)
    assert (await first.register("a", NUMBER)).id == 1
    assert (await second.register("a", TEXT)).id == 2
    assert (await first.register("b", TEXT)).id == 2


@pytest.mark.parametrize("subject", ["..", ".", "a/../b", "ü-value", "a" * 240])
async def test_a_subject_may_have_any_name(tmp_path: Path, subject: str) -> None:
    registry = file_registry(tmp_path / "registry")
    await registry.register(subject, NUMBER)
    assert await registry.list_subjects() == [subject]
    assert (await registry.latest_schema(subject)).id == 1
    assert [path.name for path in tmp_path.iterdir()] == ["registry"]


async def test_schemas_that_do_not_exist_are_unknown(tmp_path: Path) -> None:
    registry = file_registry(tmp_path)
    await registry.register("a", NUMBER)
    with pytest.raises(UnknownSchemaError, match=r"the registry has no schema 7: .* not found"):
        await registry.schema_by_id(7)
    with pytest.raises(UnknownSchemaError, match="Subject 'b' not found"):
        await registry.latest_schema("b")
    with pytest.raises(UnknownSchemaError, match="Version 2 not found"):
        await registry.schema_of_version("a", 2)
    with pytest.raises(UnknownSchemaError, match="Schema not found"):
        await registry.look_up("a", TEXT)


async def test_what_is_no_schema_is_refused(tmp_path: Path) -> None:
    registry = file_registry(tmp_path)
    with pytest.raises(RegistryRefusedError, match="Invalid schema") as refused:
        await registry.register("a", Schema("{"))
    assert (refused.value.status, refused.value.error_code) == (422, 42201)
    large = Schema(json.dumps("x" * SCHEMA_BYTES_MAX), SchemaFormat.JSON)
    with pytest.raises(RegistryRefusedError, match="exceeds"):
        await registry.register("a", large)
    with pytest.raises(UnknownSchemaError, match="Subject 'missing' not found"):
        await registry.register("a", importing("missing", 1))


def importing(subject: str, version: int, name: str = "other") -> Schema:
    """Return a schema with one reference."""
    return Schema('"int"', references=(SchemaReference(name, subject, version),))


async def test_imported_schemas_come_before_those_that_import_them(tmp_path: Path) -> None:
    registry = file_registry(tmp_path)
    await registry.register("c", TEXT)
    await registry.register("b", importing("c", 1, "c"))
    schema = Schema(
        '"int"', references=(SchemaReference("b", "b", 1), SchemaReference("c", "c", 1))
    )
    found = await registry.imported_schemas(schema)
    assert list(found) == ["c", "b"]


def write_version(directory: Path, subject: str, schema_id: int, schema: Schema) -> None:
    """Write a schema into the files of a registry, as no registry would."""
    references = [
        {"name": one.name, "subject": one.subject, "version": one.version}
        for one in schema.references
    ]
    entry = {
        "guid": "", "schemaType": "AVRO", "schema": schema.text, "references": references
    }  # fmt: skip
    at = directory / "subjects" / subject
    at.mkdir()
    (at / "1.json").write_text(json.dumps({"id": schema_id}))
    (directory / "schemas" / f"{schema_id}.json").write_text(json.dumps(entry))


async def test_references_that_form_a_loop_are_refused(tmp_path: Path) -> None:
    registry = file_registry(tmp_path)
    write_version(tmp_path, "a", 1, importing("b", 1, "b"))
    write_version(tmp_path, "b", 2, importing("a", 1, "a"))
    with pytest.raises(ReferenceLimitError, match="a version 1 imports itself"):
        await registry.imported_schemas(importing("a", 1))


async def test_references_are_bounded_in_depth_number_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = file_registry(tmp_path)
    await registry.register("s0", NUMBER)
    for number in range(1, 40):
        await registry.register(f"s{number}", importing(f"s{number - 1}", 1, f"n{number}"))
    with pytest.raises(ReferenceLimitError, match="nested over 32 deep"):
        await registry.imported_schemas(importing("s39", 1))
    monkeypatch.setattr(schema_registry, "REFERENCE_COUNT_MAX", 4)
    with pytest.raises(ReferenceLimitError, match="more than 4 schemas are imported"):
        await registry.imported_schemas(importing("s9", 1))
    monkeypatch.setattr(schema_registry, "REFERENCE_BYTES_MAX", 10)
    with pytest.raises(SchemaTooLargeError, match="more than 10 bytes"):
        await registry.imported_schemas(importing("s9", 1))


async def test_one_name_stands_for_one_schema(tmp_path: Path) -> None:
    registry = file_registry(tmp_path)
    await registry.register("a", NUMBER)
    await registry.register("b", TEXT)
    references = (SchemaReference("x", "a", 1), SchemaReference("x", "b", 1))
    with pytest.raises(InvalidSchemaError, match="two schemas are imported as x"):
        await registry.imported_schemas(Schema('"int"', references=references))


def test_a_blocking_program_needs_no_loop(tmp_path: Path) -> None:
    registry = file_registry(tmp_path)
    assert run_blocking(registry.register("a", NUMBER)).id == 1
