"""Settings of the object store for tiered storage, and their checks. Pure.

| URI | store |
|---|---|
| `s3://bucket/prefix` | S3, or a server with its API at `remote.log.storage.endpoint` |
| `gs://bucket/prefix` | Google Cloud Storage |
| `az://container/prefix` | Azure Blob Storage |
| `file:///directory` | a directory, such as a mounted network file system |
| `memory:` | the memory of the process, for tests |

Without an access key, the client of the store looks for credentials as the provider's own tools do:
environment variables, identity of the machine or pod.
"""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from ottla.model.errors import ConfigError
from ottla.model.settings.storage.tier import TierConfig
from ottla.model.values import frozen
from ottla.storage.tier.store_seam import ObjectStore, is_plain_key

URI_KEY = "remote.log.storage.uri"
ACCESS_KEY_ID_KEY = "remote.log.storage.access.key.id"
SECRET_ACCESS_KEY_KEY = "remote.log.storage.secret.access.key"
ENDPOINT_KEY = "remote.log.storage.endpoint"
REGION_KEY = "remote.log.storage.region"
CA_FILE_KEY = "remote.log.storage.ca.file"

PREFIX_CHARS_MAX = 256
"""Maximum length, in characters, of the prefix in a store's URI. The longest key after the prefix
has 440 characters, and the complete key in a store may have 1024."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}")
"""Pattern of bucket names that S3 (63 characters), Google Cloud Storage (222) or Azure (63) may
accept."""
_ENDPOINT = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/?")


class StoreScheme(StrEnum):
    """Scheme of a store's URI, which determines the kind of object store."""

    S3 = "s3"
    GOOGLE = "gs"
    AZURE = "az"
    FILE = "file"
    MEMORY = "memory"


class StoreLocation(NamedTuple):
    """Location of a cluster's objects: kind of store, bucket and prefix."""

    scheme: StoreScheme
    bucket: str
    """Name of the bucket, or of the container in Azure. Empty for `file:` and `memory:`."""
    prefix: str
    """Common start of all keys, without a slash at either end. The prefix may be empty. For
    `file:`, it is the absolute path of a directory."""


@frozen(kw_only=True)
class StoreSettings:
    """Settings of an object store. An empty text means that a setting has no value. The text form
    (`repr`) of this object contains no credentials."""

    uri: str
    access_key_id: str = field(default="", repr=False)
    """Access key in S3, or account name in Azure. Without effect for Google Cloud Storage."""
    secret_access_key: str = field(default="", repr=False)
    """Secret key in S3, account key in Azure, or the JSON text of a service account's key in Google
    Cloud Storage."""
    endpoint: str = ""
    """URL of the server, such as `https://minio.example:9000`. If empty, the server of the provider
    is used."""
    region: str = ""
    ca_file: str = ""
    """Path of a PEM file with trusted CA certificates. The CA certificates of the operating system
    are trusted as well."""


def store_settings_of(config: TierConfig) -> StoreSettings:
    """Return the settings of the object store from the settings of a broker."""
    return StoreSettings(
        uri=config.store_uri,
        access_key_id=config.access_key_id,
        secret_access_key=config.secret_access_key,
        endpoint=config.endpoint,
        region=config.region,
        ca_file=config.ca_file,
    )


OpenObjectStore = Callable[[StoreSettings], AbstractAsyncContextManager[ObjectStore]]
"""Function that opens the object store that the settings describe, and closes it at the end of the
block. Raises ConfigError if a setting is invalid."""


def parse_store_uri(uri: str) -> StoreLocation:
    """Return the location that a store's URI describes. Raises ConfigError if the URI is invalid.
    The message does not quote the URI, which may contain credentials by mistake."""
    scheme_text, colon, rest = uri.partition(":")
    try:
        scheme = StoreScheme(scheme_text)
    except ValueError:
        colon = ""
    if not colon:
        raise ConfigError(URI_KEY, "begins with s3://, gs://, az:// or file:///")
    if scheme is StoreScheme.MEMORY:
        if rest:
            raise ConfigError(URI_KEY, "nothing may follow memory:")
        return StoreLocation(scheme, "", "")
    if not rest.startswith("//"):
        raise ConfigError(URI_KEY, f"two slashes must follow {scheme.value}:")
    if scheme is StoreScheme.FILE:
        return StoreLocation(scheme, "", _directory(rest[2:]))
    bucket, _, prefix = rest[2:].partition("/")
    prefix = prefix.removesuffix("/")
    if _BUCKET.fullmatch(bucket) is None:
        raise ConfigError(
            URI_KEY,
            "the name of a bucket must follow the scheme: lower-case letters, digits, dots, hyphens"
            " and underscores; credentials belong into settings of their own",
        )
    if prefix and not (is_plain_key(prefix) and len(prefix) <= PREFIX_CHARS_MAX):
        raise ConfigError(
            URI_KEY,
            "the prefix may contain letters, digits, dots, hyphens, underscores and single slashes,"
            f" {PREFIX_CHARS_MAX} characters in all",
        )
    return StoreLocation(scheme, bucket, prefix)


def checked_location(settings: StoreSettings) -> StoreLocation:
    """Return the location of the object store that the settings describe. Raises ConfigError if a
    setting is invalid or contradicts the URI. The message contains no credentials."""
    location = parse_store_uri(settings.uri)
    scheme = location.scheme
    has_id, has_secret = bool(settings.access_key_id), bool(settings.secret_access_key)
    if scheme in (StoreScheme.FILE, StoreScheme.MEMORY):
        for key, value in (
            (ACCESS_KEY_ID_KEY, settings.access_key_id),
            (SECRET_ACCESS_KEY_KEY, settings.secret_access_key),
            (ENDPOINT_KEY, settings.endpoint),
            (REGION_KEY, settings.region),
            (CA_FILE_KEY, settings.ca_file),
        ):
            if value:
                raise ConfigError(key, f"has no meaning with a URI of the scheme {scheme.value}:")
    elif scheme is StoreScheme.GOOGLE:
        if has_id:
            raise ConfigError(
                ACCESS_KEY_ID_KEY,
                f"has no meaning with gs://; {SECRET_ACCESS_KEY_KEY} is the JSON of a key of a"
                " service account",
            )
    elif has_id != has_secret:
        missing = SECRET_ACCESS_KEY_KEY if has_id else ACCESS_KEY_ID_KEY
        raise ConfigError(missing, "must be set, too: the other half of the credentials is")
    if settings.region and scheme is not StoreScheme.S3:
        raise ConfigError(REGION_KEY, "has a meaning only with s3://")
    if settings.endpoint and _ENDPOINT.fullmatch(settings.endpoint) is None:
        raise ConfigError(
            ENDPOINT_KEY, "must be http://HOST:PORT or https://HOST:PORT, without path and user"
        )
    return location


def _directory(path: str) -> str:
    parts = path.rstrip("/").split("/")
    is_clean = all(part not in ("", ".", "..") for part in parts[1:])
    if parts[0] or len(parts) < 2 or not is_clean or not path.isprintable():
        raise ConfigError(URI_KEY, "after file:// an absolute path of a directory must follow")
    if any(mark in path for mark in "%?#"):
        raise ConfigError(URI_KEY, "the path of a directory may not contain %, ? and #")
    return "/".join(parts)
