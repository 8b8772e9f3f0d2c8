"""`ottla bundle`: collects the state of the cluster in one archive, without secrets.

The archive is meant for a supporter who has no access to the cluster. It contains the output of
commands of `ottla` as JSON, and no records, passwords, users or ACLs.
"""

import argparse
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import trio

from ottla.cli.cluster.support.sections import SECTIONS, Section
from ottla.cli.common import CONNECTION, FORMAT, bootstrap_of, print_json, run_async
from ottla.cli.options import Declared, option
from ottla.cli.terminal import note, say
from ottla.client.admin import Admin, open_admin
from ottla.model.errors import ConfigError, ErrorCode, OttlaError, RefusedError
from ottla.model.version import VERSION

SECTION_TIMEOUT_S = 60.0
"""Maximum time, in seconds, for collecting one file of the support archive."""

OPTIONS: tuple[Declared, ...] = (
    *CONNECTION,
    FORMAT,
    option(
        "-o --output FILE", "archive to write, of type .tar.gz (default: ottla-bundle-TIME.tar.gz)"
    ),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla bundle`: collect the state of the cluster, and write the archive. Returns the exit
    code."""
    wall_s = int(time.time())
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_s))
    path = Path(arguments.output or f"ottla-bundle-{stamp}.tar.gz")
    if path.exists():
        raise ConfigError("--output", f"is {path}, which exists; name another file")

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            contents, failures = await collected(admin)
        if len(failures) >= len(SECTIONS) - 1:
            reason = next(iter(failures.values()))
            raise RefusedError(ErrorCode.NETWORK_EXCEPTION, f"nothing was collected: {reason}")
        contents["manifest"] = {
            "version": 1,
            "collected_at_s": wall_s,
            "ottla": VERSION,
            "files": sorted(contents),
            "failures": failures,
        }
        write_archive(path, contents, wall_s=wall_s)
        for name, reason in failures.items():
            note(f"{name} could not be collected: {reason}")
        if arguments.format == "json":
            print_json({"file": str(path), "failures": failures})
        else:
            say(f"{path}: {len(contents)} files; read them before you pass them on")
        return 0

    return run_async(body)


async def collected(admin: Admin) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the content of each file of the support archive by name, and the reasons why other
    files are missing."""
    contents: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name, section in SECTIONS.items():
        found = await _of_one(admin, section)
        if isinstance(found, OttlaError):
            failures[name] = str(found)
        else:
            contents[name] = found
    return contents, failures


async def _of_one(admin: Admin, section: Section) -> Any:
    """Return the content of one file of the support archive. If the content cannot be read, return
    the error instead."""
    try:
        with trio.fail_after(SECTION_TIMEOUT_S):
            return await section(admin)
    except OttlaError as error:
        return error
    except trio.TooSlowError:
        return RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"no answer in {SECTION_TIMEOUT_S:g} s")


def write_archive(path: Path, contents: dict[str, Any], *, wall_s: int) -> None:
    """Write the support archive, with one JSON file for each entry of `contents`. Only the
    archive's owner can read it."""
    folder = path.name.removesuffix(".gz").removesuffix(".tar")
    path.touch(mode=0o600)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in sorted(contents.items()):
            body = json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"
            entry = tarfile.TarInfo(f"{folder}/{name}.json")
            entry.size, entry.mtime, entry.mode = len(body), wall_s, 0o600
            archive.addfile(entry, io.BytesIO(body))
