"""Options for the bucket of tiered storage, and a function that opens its object store.

The bucket's location is from the first available source, in this order: `--uri`, the file of
`--config`, the settings of the local cluster of `--dir`, the settings that a broker describes.
"""

import argparse
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.cli.cluster.cluster_file import ListedNode, properties_of
from ottla.cli.common import (
    CLUSTER_FILE,
    CONNECTION,
    bootstrap_of,
    local_directory_of,
    read_cluster_file,
)
from ottla.cli.imports import importing
from ottla.cli.options import Declared, option
from ottla.model.errors import ConfigError
from ottla.model.settings.resources import ConfigKind
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
        f"{URI_KEY} in --config, else that of the cluster)",
    ),
    option(
        "--config FILE",
        "file with the settings remote.log.storage.*, such as a broker's .properties (default: "
        "those of the cluster, and credentials of the environment)",
    ),
    *CONNECTION,
)
"""Options of every command that reads a bucket."""

DESCRIBED = (URI_KEY, ENDPOINT_KEY, REGION_KEY)
"""Settings of the object store that are requested from a broker. A broker never describes its
credentials, and its CA file is a path on its own machine."""

HIDDEN = (
    "; a broker does not describe its credentials: give those of this machine with --config FILE, "
    "or by the environment"
)
"""End of an error message about object store settings that a broker has described."""


class Bucket(NamedTuple):
    """An open object store, and the id of the cluster to which its prefix (directory in the bucket)
    belongs."""

    store: ObjectStore
    cluster_id: str
    uri: str = ""
    """URI of the object store."""


class FoundSettings(NamedTuple):
    """Settings of an object store by key, and the name of their source for error messages."""

    texts: Mapping[str, str]
    origin: str
    is_described: bool
    """True if a broker has described the settings. Credentials are then missing, because brokers
    never describe them."""


@asynccontextmanager
async def open_bucket(arguments: argparse.Namespace) -> AsyncIterator[Bucket]:
    """Yield the bucket that the options name. Raises ConfigError if a setting is invalid, or if the
    store refuses this user."""
    settings, is_described = await store_settings(arguments)
    try:
        async with open_object_store(settings) as store:
            yield Bucket(store, await read_owner(store), settings.uri)
    except StoreRefusedError as error:
        raise ConfigError("--uri", f"{error}{HIDDEN if is_described else ''}") from None


async def store_settings(arguments: argparse.Namespace) -> tuple[StoreSettings, bool]:
    """Return the settings of the object store from the command's options. Also returns whether a
    broker has described the settings. Raises ConfigError if a file is missing or a setting is
    invalid."""
    texts: dict[str, str] = {}
    if arguments.config:
        try:
            texts = parse_properties(Path(arguments.config).read_text())
        except FileNotFoundError:
            raise ConfigError("--config", f"{arguments.config} is not there") from None
    if arguments.uri:
        texts[URI_KEY] = arguments.uri
    is_described = False
    if not texts.get(URI_KEY) or arguments.dir is not None:
        found = await _settings_of_cluster(arguments)
        texts = {**found.texts, **texts}
        is_described = found.is_described and SECRET_ACCESS_KEY_KEY not in texts
        if not texts.get(URI_KEY):
            raise ConfigError(
                "--uri", f"is not set, and {found.origin} has no {URI_KEY}; name the bucket"
            )
    return StoreSettings(
        uri=texts[URI_KEY],
        access_key_id=texts.get(ACCESS_KEY_ID_KEY, ""),
        secret_access_key=texts.get(SECRET_ACCESS_KEY_KEY, ""),
        endpoint=texts.get(ENDPOINT_KEY, ""),
        region=texts.get(REGION_KEY, ""),
        ca_file=texts.get(CA_FILE_KEY, ""),
    ), is_described


async def _settings_of_cluster(arguments: argparse.Namespace) -> FoundSettings:
    """Return the object store settings of the cluster that the connection options select. The nodes
    of a local cluster need not run, because the cluster's files have the settings."""
    directory = local_directory_of(arguments)
    if directory is not None:
        origin = f"the cluster of {directory}"
        for row in read_cluster_file(directory / CLUSTER_FILE)["brokers"]:
            path = properties_of("broker", ListedNode(**row))
            if path.exists():
                return FoundSettings(parse_properties(path.read_text()), origin, False)
        return FoundSettings({}, origin, False)
    with importing():
        from ottla.client.admin import open_admin
        from ottla.client.admin_parts.admin_configs import ConfigResource

    async with open_admin(bootstrap_of(arguments)) as admin:
        brokers = (await admin.describe_cluster()).brokers
        if not brokers:
            return FoundSettings({}, "no broker is there that", True)
        node = min(broker.node for broker in brokers)
        entries = await admin.describe_configs(
            ConfigResource(ConfigKind.BROKER, str(node)), keys=DESCRIBED
        )
    texts = {key: entry.value for key, entry in entries.items() if entry.value}
    return FoundSettings(texts, f"broker {node}", True)
