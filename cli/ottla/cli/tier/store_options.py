"""Options that name the bucket of tiered storage, and the opening of its object store."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.cli.options import Declared, option
from ottla.model.errors import ConfigError
from ottla.node.properties import parse_properties
from ottla.storage.tier.bucket_driver import read_owner
from ottla.storage.tier.obstore_driver import open_object_store
from ottla.storage.tier.store_seam import ObjectStore, StoreRefusedError
from ottla.storage.tier.store_settings import (
    ACCESS_KEY_ID_KEY,
    CA_FILE_KEY,
    ENDPOINT_KEY,
    REGION_KEY,
    SECRET_ACCESS_KEY_KEY,
    URI_KEY,
    StoreSettings,
)

STORE: tuple[Declared, ...] = (
    option(
        "--uri URI",
        "place of the copied segments: s3://, gs://, az:// or file:/// (default: "
        f"{URI_KEY} in --config)",
    ),
    option(
        "--config FILE",
        "file with the settings remote.log.storage.*, such as a broker's .properties (default: "
        "credentials are those of the environment)",
    ),
)
"""Options of every command that reads a bucket."""


class Bucket(NamedTuple):
    """An open object store, and the id of the cluster that owns its prefix."""

    store: ObjectStore
    cluster_id: str


@asynccontextmanager
async def open_bucket(arguments: argparse.Namespace) -> AsyncIterator[Bucket]:
    """Yield the bucket that the options name. Raises ConfigError if a setting is invalid, or if the
    store refuses this user."""
    try:
        async with open_object_store(store_settings(arguments)) as store:
            yield Bucket(store, await read_owner(store))
    except StoreRefusedError as error:
        raise ConfigError("--uri", str(error)) from None


def store_settings(arguments: argparse.Namespace) -> StoreSettings:
    """Return the settings of the object store that the options name. Raises ConfigError."""
    texts: dict[str, str] = {}
    if arguments.config:
        try:
            texts = parse_properties(Path(arguments.config).read_text())
        except FileNotFoundError:
            raise ConfigError("--config", f"{arguments.config} is not there") from None
    uri = arguments.uri or texts.get(URI_KEY, "")
    if not uri:
        raise ConfigError("--uri", f"is not set; name the bucket, or a file with {URI_KEY}")
    return StoreSettings(
        uri=uri,
        access_key_id=texts.get(ACCESS_KEY_ID_KEY, ""),
        secret_access_key=texts.get(SECRET_ACCESS_KEY_KEY, ""),
        endpoint=texts.get(ENDPOINT_KEY, ""),
        region=texts.get(REGION_KEY, ""),
        ca_file=texts.get(CA_FILE_KEY, ""),
    )
