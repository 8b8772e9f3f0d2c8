"""A store of schemas in a directory, which implements the requests of a schema registry's HTTP API.

The store is for tests and offline programs. Schemas get the ids 1, 2, 3 in the order of their
registration. The ids are permanent, so a directory may be committed with the tests that use it.
Several processes may register schemas in one directory. Compatibility is not checked, and nothing
is normalized.

| file | content |
|---|---|
| `schemas/7.json` | the schema with id 7: `guid`, `schemaType`, `schema`, `references` |
| `subjects/orders-value/2.json` | the id of version 2 of the subject `orders-value` |
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from ottla.client.registry.schema_registry import RegistryCall, RegistryReply
from ottla.client.registry.schema_values import SCHEMA_BYTES_MAX

NO_SUBJECT, NO_VERSION, NO_SCHEMA = 40401, 40402, 40403
INVALID_SCHEMA, INVALID_VERSION, INVALID_SUBJECT, TOO_LARGE = 42201, 42202, 42208, 42209
FILE_NAME_BYTES_MAX = 255


class _RefusedCallError(Exception):
    def __init__(self, status: int, error_code: int, message: str) -> None:
        self.reply = RegistryReply(
            status, json.dumps({"error_code": error_code, "message": message}).encode()
        )
        super().__init__(message)


class RestStore:
    """A store of schemas in a directory, which is created if it does not exist."""

    def __init__(self, directory: str | Path) -> None:
        self._schemas_at = Path(directory) / "schemas"
        self._subjects_at = Path(directory) / "subjects"
        self._schemas_at.mkdir(parents=True, exist_ok=True)
        self._subjects_at.mkdir(parents=True, exist_ok=True)
        self._schemas: dict[int, dict[str, Any]] = {}
        self._ids: dict[str, int] = {}
        """Ids of schemas by the text that `_identity` returns."""

    def answer(self, call: RegistryCall) -> RegistryReply:
        """Return the response to a request of the schema registry's HTTP API."""
        names = [unquote(one) for one in call.path.strip("/").split("/")]
        try:
            return RegistryReply(200, json.dumps(self._answer(call, names)).encode())
        except _RefusedCallError as refused:
            return refused.reply

    def _answer(self, call: RegistryCall, names: list[str]) -> Any:
        match call.method, names:
            case "GET", ["schemas", "ids", number] if number.isdecimal():
                return self._found(int(number))
            case "GET", ["schemas", "guids", guid]:
                return self._by_guid(guid)
            case "GET", ["subjects"]:
                return sorted(unquote(path.name) for path in self._subjects_at.iterdir())
            case "GET", ["subjects", subject, "versions"]:
                return self._versions(subject)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, _entry(call.body))
            case "POST", ["subjects", subject]:
                return self._look_up(subject, _entry(call.body))
        raise _RefusedCallError(404, 404, f"{call.method} {call.path} is not supported")

    def _found(self, schema_id: int) -> dict[str, Any]:
        self._read_new()
        if schema_id not in self._schemas:
            raise _RefusedCallError(404, NO_SCHEMA, f"Schema {schema_id} not found")
        return {"id": schema_id, **self._schemas[schema_id]}

    def _by_guid(self, guid: str) -> dict[str, Any]:
        self._read_new()
        for schema_id, entry in self._schemas.items():
            if entry["guid"] == guid:
                return {"id": schema_id, **entry}
        raise _RefusedCallError(404, NO_SCHEMA, f"Schema {guid} not found")

    def _versions(self, subject: str) -> list[int]:
        directory = self._directory_of(subject)
        if not directory.is_dir():
            raise _RefusedCallError(404, NO_SUBJECT, f"Subject '{subject}' not found.")
        return sorted(int(path.stem) for path in directory.glob("*.json"))

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        versions = self._versions(subject)
        if not versions:
            raise _RefusedCallError(404, NO_SUBJECT, f"Subject '{subject}' not found.")
        if version not in ("latest", "-1") and not version.isdecimal():
            raise _RefusedCallError(422, INVALID_VERSION, f"Version {version} is not a number")
        number = versions[-1] if version in ("latest", "-1") else int(version)
        if number not in versions:
            raise _RefusedCallError(404, NO_VERSION, f"Version {version} not found.")
        path = self._directory_of(subject) / f"{number}.json"
        schema_id = int(json.loads(path.read_text())["id"])
        return {"subject": subject, "version": number, **self._found(schema_id)}

    def _look_up(self, subject: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        self._read_new()
        schema_id = self._ids.get(_identity(entry))
        for version in self._versions(subject):
            found = self._version(subject, str(version))
            if found["id"] == schema_id:
                return found
        raise _RefusedCallError(404, NO_SCHEMA, "Schema not found")

    def _register(self, subject: str, entry: dict[str, Any]) -> dict[str, Any]:
        for reference in entry.get("references", ()):
            self._version(reference["subject"], str(reference["version"]))
        directory = self._directory_of(subject)
        directory.mkdir(exist_ok=True)
        self._read_new()
        identity = _identity(entry)
        while identity not in self._ids:
            content = {"guid": str(UUID(bytes=hashlib.md5(identity.encode()).digest())), **entry}
            # Another process may take the number first; its schema is then read.
            _create(self._schemas_at / f"{max(self._schemas, default=0) + 1}.json", content)
            self._read_new()
        schema_id = self._ids[identity]
        while True:
            versions = self._versions(subject)
            for version in versions:
                found = self._version(subject, str(version))
                if found["id"] == schema_id:
                    return found
            _create(directory / f"{max(versions, default=0) + 1}.json", {"id": schema_id})

    def _directory_of(self, subject: str) -> Path:
        # A subject may be `..`; no name of a directory here has a dot.
        name = quote(subject, safe="").replace(".", "%2E")
        if not 0 < len(name) <= FILE_NAME_BYTES_MAX:
            raise _RefusedCallError(422, INVALID_SUBJECT, f"the subject has {len(name)} bytes")
        return self._subjects_at / name

    def _read_new(self) -> None:
        """Read the schemas that were registered since the last call."""
        for name in os.listdir(self._schemas_at):
            stem, _, suffix = name.partition(".")
            if suffix == "json" and stem.isdecimal() and int(stem) not in self._schemas:
                entry = json.loads((self._schemas_at / name).read_text())
                self._schemas[int(stem)] = entry
                self._ids[_identity(entry)] = int(stem)


def _entry(body: bytes | None) -> dict[str, Any]:
    """Return the schema in the body of a call. Raises _RefusedCallError if the body is
    malformed."""
    try:
        found = json.loads(body or b"")
        text, kind = found["schema"], found.get("schemaType") or "AVRO"
        references = [
            {"name": one["name"], "subject": str(one["subject"]), "version": int(one["version"])}
            for one in found.get("references") or ()
        ]
        if not isinstance(text, str):
            raise TypeError("the schema is not a text")
        if kind != "PROTOBUF":
            json.loads(text)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _RefusedCallError(422, INVALID_SCHEMA, f"Invalid schema: {error}") from error
    if len(text) > SCHEMA_BYTES_MAX:
        raise _RefusedCallError(422, TOO_LARGE, f"Schema exceeds {SCHEMA_BYTES_MAX} bytes")
    entry: dict[str, Any] = {"schema": text, "schemaType": kind}
    return {**entry, "references": references} if references else entry


def _identity(entry: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal schemas. White space in JSON is ignored."""
    text = entry["schema"]
    if entry["schemaType"] != "PROTOBUF":
        text = json.dumps(json.loads(text), separators=(",", ":"))
    return json.dumps([entry["schemaType"], text, entry.get("references", [])])


def _create(path: Path, content: Mapping[str, Any]) -> None:
    """Create a file with all its content in one atomic step. Does nothing if the file exists."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new") as file:
        json.dump(content, file, indent=1)
        file.flush()
        try:
            os.link(file.name, path)
        except FileExistsError:
            return
