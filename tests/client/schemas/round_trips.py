"""A value through a serializer and a deserializer."""

from typing import Any

from ottla.client.registry.framing import RecordPart
from ottla.client.schemas import EncodedField, SchemaDeserializer, SchemaSerializer


async def read_back(
    deserializer: SchemaDeserializer[Any], encoded: EncodedField, part: RecordPart = "value"
) -> Any:
    """Return the value of a serialized field, with the headers that its serializer added."""
    await deserializer.prepare(part, [(encoded.data, encoded.headers)])
    return deserializer.deserialize(part, encoded.data, encoded.headers)


async def round_trip(
    serializer: SchemaSerializer[Any],
    deserializer: SchemaDeserializer[Any],
    value: Any,
    part: RecordPart = "value",
) -> Any:
    """Return a value as it is read after it was written."""
    return await read_back(deserializer, await serializer.serialize("orders", part, value), part)
