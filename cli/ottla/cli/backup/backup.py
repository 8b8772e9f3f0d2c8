"""`ottla backup create|verify|restore`: saves records of topics and offsets of groups as files, and
restores them."""

import argparse
from pathlib import Path

from ottla.cli.backup.backup_files import Manifest, read_manifest, verify
from ottla.cli.common import FORMAT, bootstrap_of, counted
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.terminal import note
from ottla.cli.verbs import admin_verb, verb
from ottla.client.admin import Admin
from ottla.model.amounts import moment
from ottla.model.errors import ConfigError

TIMEOUT_S = 120.0
COLUMNS = ("TOPIC", "PARTITIONS", "RECORDS")
REQUEST_BYTES_MAX = 100 << 20
"""Maximum size, in bytes, of the produce requests of a restore. It is high, so that only the
topic's max.message.bytes limits the size of a restored record."""


async def create(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla backup create`: write a backup of the running cluster into a new directory. Returns
    the exit code."""
    from ottla.cli.backup.backup_reader import create_backup

    directory = Path(arguments.directory)
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError("DIR", f"{directory} is not empty; name a new directory")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    manifest = await create_backup(admin, directory, arguments.topic, arguments.timeout)
    _show(arguments, manifest)
    note(f"backup of {moment(manifest.started_ms)} in {directory}")
    return 0


def check(arguments: argparse.Namespace) -> int:
    """`ottla backup verify`: read all files of a backup, check them, and print the backup's
    contents. Returns the exit code."""
    directory = Path(arguments.directory)
    manifest = read_manifest(directory)
    verify(directory, manifest)
    _show(arguments, manifest)
    note(f"sound: backup of {moment(manifest.started_ms)} of cluster {manifest.cluster_id}")
    return 0


async def restore(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla backup restore`: write a backup into a cluster in which none of its topics exists.
    Returns the exit code."""
    from ottla.cli.backup.backup_restore import restore_backup
    from ottla.client.producer import open_producer
    from ottla.model.settings.client import ProducerConfig

    directory = Path(arguments.directory)
    manifest = read_manifest(directory)
    config = ProducerConfig(acks=-1, request_bytes_max=REQUEST_BYTES_MAX)
    async with open_producer(bootstrap_of(arguments), config) as producer:
        factor = arguments.replication_factor
        await restore_backup(admin, producer, directory, manifest, factor)
    _show(arguments, manifest)
    note(f"restored, with the offsets of {counted(len(manifest.groups), 'group')}")
    return 0


def _show(arguments: argparse.Namespace, manifest: Manifest) -> None:
    rows = [(one.name, len(one.counts), sum(one.counts)) for one in manifest.topics]
    show(arguments, COLUMNS, rows, command="backup")


DIRECTORY = option("directory DIR", "directory of the backup")

VERBS = (
    admin_verb(
        "create",
        "copy topics and the offsets of groups into files, while the cluster serves",
        create,
        option("directory DIR", "new directory for the backup"),
        option("--topic NAME ...", "topic; may be repeated (default: all that are not internal)"),
        option(
            "--timeout SECONDS",
            "longest wait for transactions that are open (default: %(default)g)",
            type=float,
            default=TIMEOUT_S,
        ),
    ),
    verb("verify", "check all files of a backup", check, DIRECTORY, FORMAT),
    admin_verb(
        "restore",
        "write a backup into a cluster that has none of its topics",
        restore,
        DIRECTORY,
        option(
            "--replication-factor COUNT",
            "replicas of each partition (default: as in the backup)",
            type=int,
        ),
    ),
)
