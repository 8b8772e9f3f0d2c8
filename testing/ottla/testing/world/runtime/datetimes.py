"""`datetime.datetime` and `datetime.date` with the clock of a simulated world."""

import datetime
from typing import Any

from ottla.testing.world.runtime.sources import SOURCES


class _DatetimeType(type):
    """Class of `WorldDatetime`. Its `isinstance` check accepts every datetime."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _real_datetime)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _real_datetime)


class _DateType(type):
    """Class of `WorldDate`. Its `isinstance` check accepts every date."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _real_date)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _real_date)


_real_datetime, _real_date = datetime.datetime, datetime.date


class WorldDatetime(datetime.datetime, metaclass=_DatetimeType):
    """`datetime.datetime` with the clock of a simulated world. Its instances are ordinary
    datetimes."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Create an ordinary `datetime.datetime` from the arguments."""
        return _real_datetime(*args, **options)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """Return the current time of the simulated world, in UTC without a time zone if `tz` is
        None."""
        sources = SOURCES.get()
        if sources is None:
            return _real_datetime.now(tz)
        # The time zone of a world is UTC.
        found = _real_datetime.fromtimestamp(sources.wall_ns() / 1e9, tz or datetime.UTC)
        return found.replace(tzinfo=None) if tz is None else found

    @classmethod
    def utcnow(cls) -> Any:
        """Return the current time of the simulated world in UTC."""
        return cls.now()

    @classmethod
    def today(cls) -> Any:
        """Return the current time of the simulated world."""
        return cls.now()


class WorldDate(datetime.date, metaclass=_DateType):
    """`datetime.date` with the clock of a simulated world. Its instances are ordinary dates."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Create an ordinary `datetime.date` from the arguments."""
        return _real_date(*args, **options)

    @classmethod
    def today(cls) -> Any:
        """Return the current date of the simulated world."""
        return WorldDatetime.now().date()


for _type, _real in ((WorldDatetime, _real_datetime), (WorldDate, _real_date)):
    for _name in ("min", "max", "resolution"):
        setattr(_type, _name, getattr(_real, _name))
    for _name in (
        "fromtimestamp",
        "utcfromtimestamp",
        "fromordinal",
        "fromisoformat",
        "fromisocalendar",
        "strptime",
        "combine",
    ):
        if hasattr(_real, _name):
            setattr(_type, _name, staticmethod(getattr(_real, _name)))
