"""Derives the brokers of a host with many cores from one settings file. This module starts nothing.

The file describes the host: its node.id is the number of the host. The settings of broker `core`
(from 0) are those of the file, with these exceptions:

| setting | value |
|---|---|
| node.id | host × 100 + core |
| ports of listeners, advertised.listeners, metrics | the port in the file + 10 × core |
| log.dirs, metadata.log.dir | the subdirectory `broker-ID` of each |
| log.file | with `-ID` before the suffix |

The rule does not depend on the number of brokers. A broker therefore keeps its identity when
brokers are added or removed.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ottla.cli.cluster.server.cores import AUTO
from ottla.model.errors import ConfigError
from ottla.model.settings.broker import BROKERS_PER_HOST
from ottla.model.settings.endpoints import PORT_MAX, parse_listeners
from ottla.model.settings.roles import BROKER, roles_of
from ottla.model.values import frozen

OPTION = "--brokers-per-host"

CORES_MAX = 100
"""Maximum number of brokers on one host. Higher broker ids belong to the next host."""
HOST_MAX = ((1 << 31) - 1) // CORES_MAX - 1
"""Maximum number of a host (the node.id in its settings file). Broker ids are derived from this
number and must fit into int32."""
PORT_STEP = 10
"""Distance between the ports of neighbouring brokers. With 1, the second broker of a file with
ports 9092 and 9093 would need port 9093, which the first broker uses."""

LISTENER_KEYS = ("listeners", "advertised.listeners")
PROMETHEUS_PORT = "metrics.prometheus.port"
CORDONED = "cordoned.log.dirs"
IDENTITY_FILE = "meta.properties"
METADATA_DIRECTORY = "__cluster_metadata-0"
DELETED_ENDINGS = ("-delete", "-stray")
"""Endings of the names of partition directories that the broker is about to delete."""


@frozen(kw_only=True)
class HostBroker:
    """One broker of a host that runs several brokers."""

    id: int
    overrides: Mapping[str, str]
    """Settings of this broker. They replace the values in the host's settings file."""
    directories: tuple[Path, ...]
    """Log directories of this broker."""
    is_surplus: bool = False
    """True if this broker exceeds the configured number of brokers, but still has replicas."""

    @property
    def name(self) -> str:
        """Name of this broker in messages, such as `broker 101`."""
        return f"broker {self.id}"

    @property
    def options(self) -> list[str]:
        """Command-line options with which `ottla broker FILE` starts this broker."""
        return [f"--set={key}={text}" for key, text in self.overrides.items()]

    @property
    def replica_count(self) -> int:
        """Number of partition logs in this broker's log directories."""
        return sum(_replica_count(path) for path in self.directories)


def wanted_brokers(texts: Mapping[str, str], option: str | None, cores: int) -> int | None:
    """Return the number of brokers on this host that the option or the settings file requests, or
    None if there is no such request.

    Raises ConfigError if the number is invalid, or if the process has another role than broker.
    """
    key = OPTION if option is not None else BROKERS_PER_HOST
    text = (option if option is not None else texts.get(BROKERS_PER_HOST, "")).strip()
    if not text:
        return None
    if text != AUTO and not (text.isdecimal() and 1 <= int(text) <= CORES_MAX):
        raise ConfigError(key, f"is {text!r}; it must be auto or a number from 1 to {CORES_MAX}")
    if roles_of(texts, BROKER) != {BROKER}:
        raise ConfigError(
            key, "is for brokers; give the controller a file of its own, with process.roles"
        )
    return min(cores, CORES_MAX) if text == AUTO else int(text)


def host_brokers(texts: Mapping[str, str], count: int) -> list[HostBroker]:
    """Return the brokers of a host. The list also contains surplus brokers (beyond `count`) that
    still have replicas.

    Raises ConfigError if ids or ports are out of range, or if log.dirs contains the data of a
    single broker.
    """
    host = _host_number(texts)
    roots = _directories(texts, "log.dirs") or _directories(texts, "log.dir")
    if not roots:
        raise ConfigError("log.dirs", "is not set; name the directories of this host")
    for root in roots:
        if (root / IDENTITY_FILE).exists():
            raise ConfigError(
                "log.dirs",
                f"{root} belongs to a broker of its own, and the brokers of a host have"
                " subdirectories; name other directories",
            )
    found = [_broker(texts, host, core, roots) for core in range(count)]
    _check_ports(found)
    found += [
        each
        for core in range(count, CORES_MAX)
        if (each := _broker(texts, host, core, roots, is_surplus=True)).replica_count
    ]
    return found


def _broker(
    texts: Mapping[str, str],
    host: int,
    core: int,
    roots: Sequence[Path],
    *,
    is_surplus: bool = False,
) -> HostBroker:
    node_id = host * CORES_MAX + core
    directories = tuple(root / f"broker-{node_id}" for root in roots)
    overrides = {
        "node.id": str(node_id),
        "log.dirs": ",".join(map(str, directories)),
        BROKERS_PER_HOST: "",
    }
    for key in LISTENER_KEYS:
        if texts.get(key, "").strip():
            overrides[key] = _moved_listeners(key, texts[key], core)
    if "listeners" not in overrides:
        overrides["listeners"] = _moved_listeners("listeners", "PLAINTEXT://:9092", core)
    port = texts.get(PROMETHEUS_PORT, "").strip()
    if port.isdecimal() and int(port):
        overrides[PROMETHEUS_PORT] = str(_moved_port(PROMETHEUS_PORT, int(port), core))
    for root in _directories(texts, "metadata.log.dir"):
        overrides["metadata.log.dir"] = str(root / f"broker-{node_id}")
    for file in _directories(texts, "log.file"):
        overrides["log.file"] = str(file.with_name(f"{file.stem}-{node_id}{file.suffix}"))
    if is_surplus:
        overrides[CORDONED] = "*"
    return HostBroker(
        id=node_id, overrides=overrides, directories=directories, is_surplus=is_surplus
    )


def _host_number(texts: Mapping[str, str]) -> int:
    text = texts.get("node.id", "").strip()
    if not (text.isdecimal() and int(text) <= HOST_MAX):
        raise ConfigError(
            "node.id",
            f"is {text!r}; with several brokers a host it is the number of the host, 0 to"
            f" {HOST_MAX}",
        )
    return int(text)


def _directories(texts: Mapping[str, str], key: str) -> list[Path]:
    return [Path(part.strip()) for part in texts.get(key, "").split(",") if part.strip()]


def _moved_listeners(key: str, text: str, core: int) -> str:
    try:
        listeners = parse_listeners(text)
    except ValueError:
        raise ConfigError(key, f"is {text!r}; it must be a list of NAME://host:port") from None
    return ",".join(str(one._replace(port=_moved_port(key, one.port, core))) for one in listeners)


def _moved_port(key: str, port: int, core: int) -> int:
    """Return the port of the host's broker number `core`. `port` is the port in the settings file.
    Port 0 is unchanged: the system chooses a free port."""
    moved = port + PORT_STEP * core if port else 0
    if moved > PORT_MAX:
        raise ConfigError(key, f"has port {port}, and that of core {core} would be {moved}")
    return moved


def _check_ports(brokers: Sequence[HostBroker]) -> None:
    """Raise ConfigError if two listeners of the host's brokers have the same port."""
    owners: dict[int, str] = {}
    for broker in brokers:
        for port, key in _ports(broker):
            owner = owners.setdefault(port, broker.name)
            if owner != broker.name:
                raise ConfigError(
                    key,
                    f"gives port {port} to {owner} and to {broker.name}; each broker's ports are"
                    f" {PORT_STEP} above those of the one before",
                )


def _ports(broker: HostBroker) -> Iterator[tuple[int, str]]:
    for one in parse_listeners(broker.overrides["listeners"]):
        if one.port:
            yield one.port, "listeners"
    if PROMETHEUS_PORT in broker.overrides:
        yield int(broker.overrides[PROMETHEUS_PORT]), PROMETHEUS_PORT


def _replica_count(directory: Path) -> int:
    """Return the number of partition logs in a broker's log directory, or 0 if the directory cannot
    be read."""
    try:
        names = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
    except OSError:
        return 0
    return sum(
        name.rpartition("-")[2].isdecimal()
        and name != METADATA_DIRECTORY
        and not name.endswith(DELETED_ENDINGS)
        for name in names
    )
