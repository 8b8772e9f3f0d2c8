"""Limits of one quota by user and client id, and the rule that selects the limit of a client.

Pure. There are eight levels, from user and client id by name to the default client id. The most
specific level that has a limit applies. The usage of a client is counted under the client's own
names, even if the limit is a default. Two users to whom the limit of `<default>` applies may
therefore each use the full limit.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.model.compiled import mypyc_attr


class QuotaEntity(NamedTuple):
    """One component of a quota's entity: a user, a client id, an IP address, or the default of one
    of these kinds."""

    type: str
    is_default: bool
    name: str


USER, CLIENT_ID = "user", "client-id"

ClientEntity = tuple[QuotaEntity, ...]
"""Entity that a client quota is for: a user, a client id, or both. Each is given by name or as the
default. The components are sorted, as in the metadata image."""


class Level(NamedTuple):
    """One level of client quotas. It specifies whether the user and the client id are given by
    name, as default, or not at all."""

    user: bool | None
    """True if the user is given by name, False for the default user, None if the level ignores the
    user."""
    client_id: bool | None

    def entity(self, user: str, client_id: str) -> ClientEntity:
        """Return the quota entity at this level for a client with the given user and client id."""
        parts = []
        if self.client_id is not None:
            parts.append(_part(CLIENT_ID, client_id, is_named=self.client_id))
        if self.user is not None:
            parts.append(_part(USER, user, is_named=self.user))
        return tuple(parts)

    def counted_as(self, user: str, client_id: str) -> tuple[str, str]:
        """Return the user and the client id under which the usage of a client is counted at this
        level. A component that the level ignores is empty."""
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
"""The eight levels of client quotas, the most specific first."""


class Match(NamedTuple):
    """The quota that applies to a client: its level, its limit, and the names under which the
    client's usage is counted."""

    level: Level
    limit: float
    counted_as: tuple[str, str]


@mypyc_attr(allow_interpreted_subclasses=True)
class Limits:
    """All limits of one quota, such as `producer_byte_rate`, by entity."""

    def __init__(self, by_entity: Mapping[ClientEntity, float] | None = None) -> None:
        self._by_entity = dict(by_entity or {})
        self._kind_counts = Counter(map(_kind, self._by_entity))
        self._levels = self._levels_used()

    def changed(self, changes: Mapping[ClientEntity, float | None]) -> "Limits":
        """Return a copy of these limits with the given changes. The value None removes the limit of
        an entity."""
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
        """Return whether any entity has a limit."""
        return bool(self._by_entity)

    @property
    def by_entity(self) -> Mapping[ClientEntity, float]:
        """Limits by entity, for entities that have a limit."""
        return self._by_entity

    @property
    def may_change(self) -> bool:
        """True if the limits of a client may change at any time. Always False for limits that are
        set in the cluster."""
        return False

    @property
    def have_changed(self) -> bool:
        """True if limits may have changed since they were last returned. Always False for limits
        that are set in the cluster."""
        return False

    def find(self, user: str, client_id: str) -> Match | None:
        """Return the most specific limit that applies to a client, or None if no level has a limit
        for this client."""
        for level in self._levels:
            limit = self._by_entity.get(level.entity(user, client_id))
            if limit is not None:
                return Match(level, limit, level.counted_as(user, client_id))
        return None

    def considered(self, user: str, client_id: str) -> Iterator[tuple[ClientEntity, float | None]]:
        """Yield, for each level, the entity to which a client belongs, and the entity's limit or
        None. The order begins with the most specific level."""
        for level in LEVELS:
            entity = level.entity(user, client_id)
            yield entity, self._by_entity.get(entity)


def limits_of(quotas: Mapping[ClientEntity, Mapping[str, float]], key: str) -> Limits:
    """Return the limits by user and client id that a metadata image contains for one quota, such as
    `producer_byte_rate`."""
    return Limits({entity: limits[key] for entity, limits in quotas.items() if key in limits})


def _part(type_: str, name: str, *, is_named: bool) -> QuotaEntity:
    return QuotaEntity(type_, not is_named, name if is_named else "")


def _kind(entity: ClientEntity) -> tuple[tuple[str, bool], ...]:
    return tuple((part.type, part.is_default) for part in entity)
