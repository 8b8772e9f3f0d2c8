"""Parses the form that writes one record. Pure."""

import base64
import binascii
from collections.abc import Mapping

from ottla.console.form_values import form_number
from ottla.model.errors import ConfigError
from ottla.model.values import frozen

INPUTS = {"text": "text (UTF-8)", "hex": "hexadecimal", "base64": "Base64"}
HEADERS_MAX = 100


@frozen(kw_only=True)
class NewRecord:
    """A record to write to a topic, as a form describes it."""

    partition: int | None
    """Partition to which the record is written, or None if the key determines it."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def parse_record(form: Mapping[str, str]) -> NewRecord:
    """Parse the form fields `partition`, `key`, `no_key`, `key_input`, `value`, `tombstone`,
    `value_input` and `headers`, and return the record to write. Raises ConfigError for an invalid
    field."""
    partition = form.get("partition", "").strip()
    return NewRecord(
        partition=form_number("partition", partition) if partition else None,
        key=None if form.get("no_key") else _bytes("key", form),
        value=None if form.get("tombstone") else _bytes("value", form),
        headers=_headers(form.get("headers", "")),
    )


def _bytes(name: str, form: Mapping[str, str]) -> bytes:
    text, chosen = form.get(name, ""), form.get(f"{name}_input", "text")
    try:
        match chosen:
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode("".join(text.split()), validate=True)
            case "text":
                # Forms send line ends as CR LF.
                return text.replace("\r\n", "\n").encode()
    except (ValueError, binascii.Error) as error:
        raise ConfigError(name, f"is not {INPUTS[chosen]}: {str(error)[:100]}") from None
    raise ConfigError(f"{name}_input", f"is {chosen[:50]!r}; it must be one of {', '.join(INPUTS)}")


def _headers(text: str) -> tuple[tuple[str, bytes], ...]:
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not (equals and name.strip()):
            raise ConfigError("headers", f"have the line {line[:100]!r}; it must be NAME=VALUE")
        found.append((name.strip(), value.strip().encode()))
    if len(found) > HEADERS_MAX:
        raise ConfigError("headers", f"are {len(found)}; {HEADERS_MAX} are allowed")
    return tuple(found)
