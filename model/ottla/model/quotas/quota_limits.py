"""The limits of one quota by user and client id, and the choice of the level that applies to a
client.

Pure. There are eight levels. The most specific level with a limit applies, and a client's usage is
counted under the client's own names at that level. Two users with the limit of `<default>` may
therefore each use the full limit.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.model.compiled import mypyc_attr


class QuotaEntity(NamedTuple):
    """One component of the entity that a quota is for: a user, a client id, an IP address, or the
    default of one of these."""

    type: str
    is_default: bool
    name: str


USER, CLIENT_ID = "user", "client-id"

ClientEntity = tuple[QuotaEntity, ...]
"""A user, a client id or both, each by name or as default. The components are sorted, as in the
metadata image."""


class Level(NamedTuple):
    """One level of limits. Each component of the entity is given by name, by default, or not at
    all."""

    user: bool | None
    """True if the user is given by name, False for the default user, None for any user."""
    client_id: bool | None

    def entity(self, user: str, client_id: str) -> ClientEntity:
        """Return the entity of this level that a client belongs to."""
        parts = []
        if self.client_id is not None:
            parts.append(_part(CLIENT_ID, client_id, is_named=self.client_id))
        if self.user is not None:
            parts.append(_part(USER, user, is_named=self.user))
        return tuple(parts)

    def counted_as(self, user: str, client_id: str) -> tuple[str, str]:
        """Return the user and client id under which a client's usage is counted."""
        return (
            "" if self.user is None else user,
            "" if self.client_id is None else client_id,
        )


LEVELS = (
    Level(True, True),
    Level(True, False),
    Level(True, None),
    Level(False, True),
    Level(False, False),
    Level(False, None),
    Level(None, True),
    Level(None, False),
)
"""The levels, the most specific first."""


class Match(NamedTuple):
    """The limit that applies to a client, and the level and names under which its usage is
    counted."""

    level: Level
    limit: float
    counted_as: tuple[str, str]


@mypyc_attr(allow_interpreted_subclasses=True)
class Limits:
    """All limits of one quota, by entity."""

    def __init__(self, by_entity: Mapping[ClientEntity, float] | None = None) -> None:
        self._by_entity = dict(by_entity or {})
        self._kind_counts = Counter(map(_kind, self._by_entity))
        self._levels = self._levels_used()

    def changed(self, changes: Mapping[ClientEntity, float | None]) -> "Limits":
        """Return a copy with some limits changed. The value None removes a limit."""
        limits = Limits()
        by_entity = limits._by_entity = self._by_entity.copy()
        counts = limits._kind_counts = self._kind_counts.copy()
        for entity, limit in changes.items():
            if entity in by_entity:
                counts[_kind(entity)] -= 1
                del by_entity[entity]
            if limit is not None:
                counts[_kind(entity)] += 1
                by_entity[entity] = limit
        limits._levels = limits._levels_used()
        return limits

    def _levels_used(self) -> list[Level]:
        return [level for level in LEVELS if self._kind_counts[_kind(level.entity("", ""))] > 0]

    def __bool__(self) -> bool:
        """Return whether the quota has any limits."""
        return bool(self._by_entity)

    @property
    def by_entity(self) -> Mapping[ClientEntity, float]:
        """The limits of the quota by entity."""
        return self._by_entity

    @property
    def may_change(self) -> bool:
        """True if the next look-up may return another limit."""
        return False

    @property
    def have_changed(self) -> bool:
        """True if results of earlier look-ups may have changed. Always False for limits that are
        set in the cluster."""
        return False

    def find(self, user: str, client_id: str) -> Match | None:
        """Return the limit of the most specific level that has one for this client, or None if no
        level has one."""
        for level in self._levels:
            limit = self._by_entity.get(level.entity(user, client_id))
            if limit is not None:
                return Match(level, limit, level.counted_as(user, client_id))
        return None

    def considered(self, user: str, client_id: str) -> Iterator[tuple[ClientEntity, float | None]]:
        """Yield each level's entity for a client and its limit, the most specific first."""
        for level in LEVELS:
            entity = level.entity(user, client_id)
            yield entity, self._by_entity.get(entity)


def limits_of(quotas: Mapping[ClientEntity, Mapping[str, float]], key: str) -> Limits:
    """Return the limits for users and client ids that the quotas of a metadata image set under one
    key."""
    return Limits({entity: limits[key] for entity, limits in quotas.items() if key in limits})


def _part(type_: str, name: str, *, is_named: bool) -> QuotaEntity:
    return QuotaEntity(type_, not is_named, name if is_named else "")


def _kind(entity: ClientEntity) -> tuple[tuple[str, bool], ...]:
    return tuple((part.type, part.is_default) for part in entity)
