"""Option `--add-scram` of 'ottla storage format': SCRAM credentials (salted passwords) in the
format of Kafka's tool.

An example is `SCRAM-SHA-512=[name=al,password=pw]`. Further keys are `iterations`, `salt` (base64),
and `saltedpassword` (base64, with `salt`) in place of `password`. Values may be quoted. Error
messages never contain the option's value, because it is secret.
"""

import re
import secrets
from base64 import b64decode

from ottla.metadata.records import Record, scram_credential_record
from ottla.model.errors import ConfigError
from ottla.model.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_BY_NAME,
    ScramCredential,
    ScramHash,
)

OPTION = "--add-scram"
KEYS = ("name", "password", "saltedpassword", "salt", "iterations")
SALT_BYTES = 13

_WHOLE = re.compile(r"([A-Z0-9-]+)=\[(.*)\]", re.DOTALL)
_PART = re.compile(r'\s*([a-z]+)=(?:"([^"]*)"|([^",\]]*))\s*(?:,|$)')


def first_credential(text: str) -> Record:
    """Return the metadata record of a SCRAM credential for a new cluster.

    `text` is the value of the option `--add-scram`. Raises ConfigError if it is not a valid
    credential.
    """
    whole = _WHOLE.fullmatch(text.strip())
    hashing = None if whole is None else SCRAM_BY_NAME.get(whole[1])
    if whole is None or hashing is None:
        raise ConfigError(OPTION, f"must be MECHANISM=[…], one of {', '.join(SCRAM_BY_NAME)}")
    values = _values(whole[2])
    name = values.get("name", "")
    if not name:
        raise ConfigError(OPTION, "must have name=")
    return scram_credential_record(name, hashing.number, _credential(hashing, values))


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[1] not in KEYS or part[1] in values:
            raise ConfigError(OPTION, f"may have each of {', '.join(KEYS)} once, as KEY=VALUE")
        values[part[1]] = part[3] if part[2] is None else part[2]
        at = part.end()
    return values


def _credential(hashing: ScramHash, values: dict[str, str]) -> ScramCredential:
    iterations_text = values.get("iterations", str(ITERATIONS_MIN))
    iterations = int(iterations_text) if iterations_text.isdecimal() else 0
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(OPTION, f"must have iterations= of {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = secrets.token_hex(SALT_BYTES).encode()
    if "salt" in values:
        salt = _bytes_of("salt", values["salt"])
    if ("password" in values) == ("saltedpassword" in values):
        raise ConfigError(OPTION, "must have either password= or saltedpassword=")
    if "password" in values:
        if not values["password"]:
            raise ConfigError(OPTION, "has an empty password=")
        return ScramCredential.of_password(hashing, values["password"], salt, iterations)
    if "salt" not in values:
        raise ConfigError(OPTION, "must have salt= with saltedpassword=")
    salted = _bytes_of("saltedpassword", values["saltedpassword"])
    if len(salted) != hashing.size:
        raise ConfigError(OPTION, f"must have saltedpassword= of {hashing.size} bytes")
    return ScramCredential.from_salted(hashing, salted, salt, iterations)


def _bytes_of(key: str, text: str) -> bytes:
    try:
        found = b64decode(text, validate=True)
    except ValueError:
        found = b""
    if not found:
        raise ConfigError(OPTION, f"must have {key}= in base64")
    return found
