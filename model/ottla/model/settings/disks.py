"""When a node says that the disk of one of its directories fills up."""

from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen


@frozen(kw_only=True)
class DiskConfig:
    """The bounds below which room is short, and how often it is measured."""

    warn_free_percent: float = setting(
        10.0,
        key="ottla.disk.warn.free.percent",
        at_least=0,
        at_most=100,
        text="10",
        doc="Ottla's own: the part of a volume, in percent, below whose being free a log directory "
        "or the directory of the metadata log is said to be filling; 0 switches this bound off.",
    )
    warn_free_bytes: int = setting(
        0,
        key="ottla.disk.warn.free.bytes",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Ottla's own: the free bytes below which such a directory is said to be filling, "
        "beside the bound in percent; 0 switches this bound off.",
    )
    check_interval_ms: int = setting(
        10_000,
        key="ottla.disk.check.interval.ms",
        kind=SettingKind.LONG,
        at_least=100,
        doc="Ottla's own: how often the room of each directory is measured.",
    )
