"""Settings of quotas: the measurement windows, and the limits that users, client ids and IP
addresses may have."""

import math

from ottla.model.limits import INT32_MAX, INT64_MAX
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

WHOLE_LIMITS = {
    PRODUCER_BYTE_RATE: INT64_MAX,
    CONSUMER_BYTE_RATE: INT64_MAX,
    CONNECTION_CREATION_RATE: INT32_MAX,
}
"""Keys of the limits that must be whole numbers, with the maximum of each."""

CLIENT_KEYS = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
"""Keys of the limits that may be set for a user, a client id, or both together."""

IP_KEYS = frozenset({CONNECTION_CREATION_RATE})
"""Keys of the limits that may be set for an IP address."""


CALLBACK_CLASS = "client.quota.callback.class"


def parse_callback(text: str) -> str | None:
    """module:Class, a class in Python; one of Java cannot be loaded.

    Checks the name of a quota callback class and returns it. Returns None if the text is empty.
    Raises ValueError if the text is malformed. Error messages quote the first line as the
    description of valid texts.
    """
    if not text:
        return None
    module, _, name = text.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(text)
    return text


def limit_problem(key: str, value: float) -> str | None:
    """Return the reason why a quota cannot have this limit, or None if the limit is valid."""
    if not math.isfinite(value):
        return f"{key} must be a finite number, not {value}"
    # An address may have a limit of zero, which refuses all its connections; no other entity may.
    if value < 0 or (value == 0 and key not in IP_KEYS):
        return f"{key} must be above 0, not {value:g}"
    most = WHOLE_LIMITS.get(key)
    if most is not None:
        if value != int(value):
            return f"{key} must be a whole number, not {value:g}"
        if value > most:
            return f"{key} must be at most {most}, not {value:g}"
    return None


@frozen(kw_only=True)
class QuotaConfig:
    """Measurement windows of a broker's quotas for clients and for replication."""

    window_count: int = setting(
        11,
        key="quota.window.num",
        at_least=1,
        doc="Number of windows over which client quotas are measured, including the one being "
        "filled.",
    )
    window_s: int = setting(
        1,
        key="quota.window.size.seconds",
        at_least=1,
        doc="Length of a window of client quotas. A client that exceeds the request quota is "
        "throttled for at most one window.",
    )
    replication_window_count: int = setting(
        11,
        key="replication.quota.window.num",
        at_least=1,
        doc="Number of windows over which throttled replication is measured.",
    )
    replication_window_s: int = setting(
        1,
        key="replication.quota.window.size.seconds",
        at_least=1,
        doc="Length of a window of throttled replication.",
    )
    log_dirs_window_count: int = setting(
        11,
        key="alter.log.dirs.replication.quota.window.num",
        at_least=1,
        doc="Number of windows over which moves between log directories are measured.",
    )
    log_dirs_window_s: int = setting(
        1,
        key="alter.log.dirs.replication.quota.window.size.seconds",
        at_least=1,
        doc="Length of a window of moves between log directories.",
    )
    remote_copy_rate_max: int = setting(
        INT64_MAX,
        key="remote.log.manager.copy.max.bytes.per.second",
        kind=SettingKind.LONG,
        at_least=1,
        is_dynamic=True,
        doc="Maximum rate, in bytes per second, of copies to remote storage.",
    )
    remote_copy_window_count: int = setting(
        11,
        key="remote.log.manager.copy.quota.window.num",
        at_least=1,
        doc="Number of windows over which copies to remote storage are measured.",
    )
    remote_copy_window_s: int = setting(
        1,
        key="remote.log.manager.copy.quota.window.size.seconds",
        at_least=1,
        doc="Length of a window of copies to remote storage.",
    )
    remote_fetch_rate_max: int = setting(
        INT64_MAX,
        key="remote.log.manager.fetch.max.bytes.per.second",
        kind=SettingKind.LONG,
        at_least=1,
        is_dynamic=True,
        doc="Maximum rate, in bytes per second, of reads from remote storage.",
    )
    remote_fetch_window_count: int = setting(
        11,
        key="remote.log.manager.fetch.quota.window.num",
        at_least=1,
        doc="Number of windows over which reads from remote storage are measured.",
    )
    remote_fetch_window_s: int = setting(
        1,
        key="remote.log.manager.fetch.quota.window.size.seconds",
        at_least=1,
        doc="Length of a window of reads from remote storage.",
    )
    callback_class: str | None = setting(
        None,
        key=CALLBACK_CLASS,
        kind=SettingKind.CLASS,
        parse=parse_callback,
        doc="Class that decides the limits of clients in place of the eight levels, as "
        "module:Class.",
    )


@frozen(kw_only=True)
class MutationQuotaConfig:
    """Measurement windows of the quota for created and deleted partitions, which the active
    controller enforces."""

    window_count: int = setting(
        11,
        key="controller.quota.window.num",
        at_least=1,
        doc="Number of windows of the quota of controller mutations. A client may accumulate the "
        "mutations of all of them, and use them in one burst.",
    )
    window_s: int = setting(
        1,
        key="controller.quota.window.size.seconds",
        at_least=1,
        doc="Length of a window of the quota of controller mutations.",
    )
    callback_class: str | None = setting(
        None,
        key=CALLBACK_CLASS,
        kind=SettingKind.CLASS,
        parse=parse_callback,
        text="",
        doc="Class that decides the limits of clients in place of the eight levels, as "
        "module:Class; set it on brokers and controllers.",
    )
