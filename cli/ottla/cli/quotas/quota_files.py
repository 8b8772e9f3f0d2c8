"""Converts quotas to JSON and back, and computes the changes that make a cluster's quotas equal to
a file. Pure.

A file is a list of objects: `{"user": "anna", "client-id": null, "limits": {"producer_byte_rate":
1048576}}`. A null user or client id means the default entity of its type. If the user or the client
id is absent, the quota applies to any user or client id.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.client.admin_parts.admin_quotas import QuotaChange, QuotaOwner
from ottla.model.errors import ConfigError
from ottla.model.quotas.quota_limits import QuotaEntity

PARTS = ("user", "client-id", "ip")
LIMITS = "limits"

AllLimits = Mapping[QuotaOwner, Mapping[str, float]]


def exported(limits: AllLimits) -> list[dict[str, object]]:
    """Return quotas as the list of objects in a quota file, sorted by the entity of each quota."""
    return [
        {
            **{part.type: None if part.is_default else part.name for part in owner},
            LIMITS: dict(sorted(limits[owner].items())),
        }
        for owner in sorted(limits)
    ]


def imported(content: object) -> dict[QuotaOwner, dict[str, float]]:
    """Return the quotas in the content of a quota file. Raises ConfigError, which names the entry,
    if an entry is invalid."""
    if not isinstance(content, list):
        raise ConfigError("--file", "must hold a list of owners and their limits")
    found: dict[QuotaOwner, dict[str, float]] = {}
    for number, entry in enumerate(content, 1):
        owner, limits = _entry(entry, f"entry {number}")
        if owner in found:
            raise ConfigError("--file", f"entry {number} has an owner that came before")
        found[owner] = limits
    return found


def changes_to(wanted: AllLimits, present: AllLimits, *, prunes: bool) -> list[QuotaChange]:
    """Return the changes that turn the present quotas into the wanted quotas. If `prunes` is True,
    quotas that are not in `wanted` are removed."""
    owners = [*wanted, *(owner for owner in present if prunes and owner not in wanted)]
    changes = []
    for owner in owners:
        has, wants = present.get(owner, {}), wanted.get(owner, {})
        limits: dict[str, float | None] = {
            key: limit for key, limit in wants.items() if has.get(key) != limit
        }
        if prunes:
            limits |= {key: None for key in has if key not in wants}
        if limits:
            changes.append(QuotaChange(owner, limits))
    return changes


def owner_of(parts: Iterable[tuple[str, str | None]]) -> QuotaOwner:
    """Return the entity to which a quota applies. `parts` contains pairs of entity type and name.
    The name None means the default entity of the type."""
    return tuple(sorted(QuotaEntity(type_, name is None, name or "") for type_, name in parts))


def _entry(entry: Any, place: str) -> tuple[QuotaOwner, dict[str, float]]:
    if not isinstance(entry, dict):
        raise ConfigError("--file", f"{place} must be an object with an owner and limits")
    strange = entry.keys() - {*PARTS, LIMITS}
    if strange:
        raise ConfigError("--file", f"{place} has {sorted(strange)[0]!r}, which nothing knows")
    owner = owner_of((part, entry[part]) for part in PARTS if part in entry)
    if not owner:
        raise ConfigError("--file", f"{place} names no user, client-id or ip")
    if not all(isinstance(part.name, str) for part in owner):
        raise ConfigError("--file", f"{place} has a name that is no text")
    limits = entry.get(LIMITS)
    if not isinstance(limits, dict) or not all(
        isinstance(limit, int | float) and not isinstance(limit, bool) for limit in limits.values()
    ):
        raise ConfigError("--file", f"{place} must have limits: an object of numbers")
    return owner, {key: float(limit) for key, limit in limits.items()}
