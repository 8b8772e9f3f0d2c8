"""A missing package is named with the command that installs it."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.client.schemas import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    MissingExtraError,
    file_registry,
    open_blocking_registry,
)
from ottla.model.install_hint import install_hint


@pytest.mark.parametrize(
    ("module", "use", "sentence"),
    [
        ("fastavro", lambda path: AvroDeserializer(file_registry(path)), "Avro needs fastavro"),
        (
            "jsonschema_rs",
            lambda path: JsonSchemaDeserializer(file_registry(path)),
            "JSON Schema needs jsonschema-rs",
        ),
        (
            "httpx2",
            lambda path: open_blocking_registry("http://localhost").__enter__(),
            "a schema registry over HTTP needs httpx2",
        ),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    module: str,
    use: Callable[[Path], object],
    sentence: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("schemas"))) as missing:
        use(tmp_path)
    assert str(missing.value).startswith(sentence)
