"""Settings of the free space below which a node warns of a full disk."""

from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen


@frozen(kw_only=True)
class DiskConfig:
    """Free space below which a node warns of a full disk, and the interval of measurements."""

    warn_free_percent: float = setting(
        10.0,
        key="ottla.disk.warn.free.percent",
        at_least=0,
        at_most=100,
        text="10",
        doc="Ottla's own: percentage of free space on the volume of a log directory, or of the "
        "metadata log, below which the node warns that it is filling; 0 disables this threshold.",
    )
    warn_free_bytes: int = setting(
        0,
        key="ottla.disk.warn.free.bytes",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Ottla's own: free bytes below which the node warns that such a volume is filling, in "
        "addition to the percentage; 0 disables this threshold.",
    )
    check_interval_ms: int = setting(
        10_000,
        key="ottla.disk.check.interval.ms",
        kind=SettingKind.LONG,
        at_least=100,
        doc="Ottla's own: interval between measurements of each directory's free space.",
    )
