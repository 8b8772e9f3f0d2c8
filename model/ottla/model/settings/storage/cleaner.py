"""Settings of the log cleaner, which compacts logs."""

from ottla.model.errors import ConfigError
from ottla.model.limits import KIB, MIB
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen

UNTHROTTLED = 1.7976931348623157e308
"""I/O rate of the cleaner, in bytes per second, that means no limit. It is the largest double, as
in Kafka."""

ALWAYS_COMPACTED = "compacted topics are always compacted"


THREADS = "log.cleaner.threads"
DEDUPE_BUFFER = "log.cleaner.dedupe.buffer.size"


def check_thread_count(wanted: int, in_force: int, key: str = THREADS) -> None:
    """Raise ConfigError if a running broker cannot change a thread count to `wanted` in one step.

    The rule is Kafka's: the new count must be at least one, and between half and double the current
    count.
    """
    if wanted < 1:
        raise ConfigError(key, f"is {wanted}; a running broker accepts at least 1")
    if not in_force // 2 <= wanted <= in_force * 2:
        raise ConfigError(
            key,
            f"is {wanted}; a running broker changes {in_force} to between half and twice as many",
        )


@frozen(kw_only=True)
class CleanerConfig:
    """Settings of the log cleaner: its workers, their memory and their I/O rate."""

    is_enabled: bool = setting(
        True,
        key="log.cleaner.enable",
        has_no_effect_yet=ALWAYS_COMPACTED,
        no_effect_values=("false",),
        doc="Whether logs are compacted; deprecated.",
    )
    thread_count: int = setting(
        1,
        key=THREADS,
        at_least=1,
        is_dynamic=True,
        doc="Number of logs compacted at the same time. A running broker can change it to between "
        "half and twice the present number.",
    )
    io_bytes_per_second_max: float = setting(
        UNTHROTTLED,
        key="log.cleaner.io.max.bytes.per.second",
        kind=SettingKind.DOUBLE,
        at_least=1,
        is_dynamic=True,
        doc="Maximum rate, in bytes per second, at which compaction reads and writes, over all "
        "logs.",
    )
    dedupe_buffer_bytes: int = setting(
        128 * MIB,
        key=DEDUPE_BUFFER,
        kind=SettingKind.LONG,
        at_least=MIB,
        is_dynamic=True,
        doc="Memory for the keys of all logs that are compacted at the same time, at 24 bytes per "
        "key; a log with more keys needs several passes.",
    )
    io_buffer_bytes: int = setting(
        512 * KIB,
        key="log.cleaner.io.buffer.size",
        at_least=0,
        is_dynamic=True,
        doc="Bytes read and written at once by all logs that are compacted at the same time.",
    )
    buffer_load_factor: float = setting(
        0.9,
        key="log.cleaner.io.buffer.load.factor",
        kind=SettingKind.DOUBLE,
        at_least=0.01,
        at_most=1,
        is_dynamic=True,
        doc="Maximum fraction of the memory for keys that is filled.",
    )
    backoff_ms: int = setting(
        15_000,
        key="log.cleaner.backoff.ms",
        kind=SettingKind.LONG,
        at_least=0,
        is_dynamic=True,
        doc="Delay before the next check if no log needs compaction.",
    )

    def __post_init__(self) -> None:
        needed = self.thread_count * MIB
        if self.dedupe_buffer_bytes < needed:
            raise ConfigError(
                DEDUPE_BUFFER,
                f"is {self.dedupe_buffer_bytes}; the {self.thread_count} of {THREADS} need "
                f"{needed}, a MiB each",
            )
