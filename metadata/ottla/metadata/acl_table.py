"""Immutable table of the ACLs in a metadata image, indexed by principal and by resource pattern.

The table is a persistent data structure: adding or removing an entry copies only a few nodes of a
tree. Each image can therefore have its own table, even with very many entries.

Invariants: no two ids have equal entries; the indexes are derived from `entries`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.persistent_map import PersistentMap
from ottla.model.security.acl_hosts import Address, HostPattern, host_pattern_of
from ottla.model.security.acls import (
    WILDCARD,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.values import frozen

EVERY_OPERATION = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)

_OP = AclOperation

GRANTED_BESIDE = {
    _OP.READ: (_OP.DESCRIBE,),
    _OP.WRITE: (_OP.DESCRIBE,),
    _OP.DELETE: (_OP.DESCRIBE,),
    _OP.ALTER: (_OP.DESCRIBE,),
    _OP.ALTER_CONFIGS: (_OP.DESCRIBE_CONFIGS,),
}
"""Operations that an ALLOW entry also allows, by the operation that the entry names. For example,
an entry that allows READ also allows DESCRIBE. A DENY entry denies only the operation that it
names."""


class PatternKey(NamedTuple):
    """Resource pattern of ACL entries: the resource type, and a name or a prefix of names. Key of
    the table's index."""

    resource_type: int
    pattern_type: int
    name: str


class AclRule(NamedTuple):
    """An ACL entry whose operation and host are parsed in advance, so that the authorizer can
    evaluate it quickly."""

    id: UUID
    entry: AclEntry
    operations: int
    """Bit field of the operations to which the ACL entry applies: bit n is set for the operation
    with Kafka's number n."""
    is_deny: bool
    host: str
    addresses: HostPattern | None
    """Range of IP addresses that the entry's `host` denotes, or None if `host` is a single address
    or the wildcard."""

    @property
    def pattern(self) -> PatternKey:
        """Resource pattern of the ACL entry: resource type, and a name or a prefix of names."""
        return pattern_key(self.entry)

    def holds_at(self, host: str, address: Address | None) -> bool:
        """Return whether the ACL entry applies to a client on `host`. `address` is the parsed form
        of `host`, or None if it cannot be parsed."""
        if self.host in (WILDCARD, host):
            return True
        return self.addresses is not None and self.addresses.holds(address)


Rules = PersistentMap[PatternKey, tuple[AclRule, ...]]
NO_RULES: Rules = PersistentMap()
NO_IDS: PersistentMap[UUID, None] = PersistentMap()
NO_LENGTHS: PersistentMap[int, int] = PersistentMap()


@frozen(kw_only=True)
class AclTable:
    """Immutable table of all ACL entries of a cluster, by id. Two tables are equal if they have the
    same entries."""

    entries: PersistentMap[UUID, AclEntry] = field(default_factory=PersistentMap)
    ids: PersistentMap[AclEntry, UUID] = field(default_factory=PersistentMap, compare=False)
    by_principal: PersistentMap[str, Rules] = field(default_factory=PersistentMap, compare=False)
    by_pattern: PersistentMap[PatternKey, PersistentMap[UUID, None]] = field(
        default_factory=PersistentMap, compare=False
    )
    prefix_lengths: PersistentMap[int, PersistentMap[int, int]] = field(
        default_factory=PersistentMap, compare=False
    )
    """For each resource type, the number of distinct resource patterns with a prefix, by the length
    of the prefix."""

    def __len__(self) -> int:
        return len(self.entries)

    def with_entries(self, added: Mapping[UUID, AclEntry]) -> "AclTable":
        """Return a new table that also contains the ACL entries `added`. Neither their ids nor the
        entries themselves may be in this table already."""
        assert not any(one in self.entries for one in added)
        by_principal: dict[str, dict[PatternKey, list[AclRule]]] = {}
        by_pattern: dict[PatternKey, dict[UUID, None]] = {}
        for entry_id, entry in added.items():
            key = pattern_key(entry)
            rules = by_principal.setdefault(entry.principal, {})
            rules.setdefault(key, []).append(rule_of(entry_id, entry))
            by_pattern.setdefault(key, {})[entry_id] = None
        principals = {}
        for principal, buckets in by_principal.items():
            before = self.by_principal.get(principal, NO_RULES)
            principals[principal] = before.update(
                {key: before.get(key, ()) + tuple(rules) for key, rules in buckets.items()}
            )
        patterns = {
            key: self.by_pattern.get(key, NO_IDS).update(ids) for key, ids in by_pattern.items()
        }
        new_keys = [key for key in by_pattern if key not in self.by_pattern]
        return AclTable(
            entries=self.entries.update(added),
            ids=self.ids.update({entry: entry_id for entry_id, entry in added.items()}),
            by_principal=self.by_principal.update(principals),
            by_pattern=self.by_pattern.update(patterns),
            prefix_lengths=_counted(self.prefix_lengths, new_keys, 1),
        )

    def without_entries(self, removed: Iterable[UUID]) -> "AclTable":
        """Return a new table without the ACL entries that have the ids `removed`."""
        entries, ids, by_pattern = self.entries, self.ids, self.by_pattern
        gone: dict[str, dict[PatternKey, set[UUID]]] = {}
        old_keys = []
        for entry_id in removed:
            entry = entries[entry_id]
            entries, ids = entries.delete(entry_id), ids.delete(entry)
            key = pattern_key(entry)
            gone.setdefault(entry.principal, {}).setdefault(key, set()).add(entry_id)
            left = by_pattern[key].delete(entry_id)
            if left:
                by_pattern = by_pattern.set(key, left)
            else:
                by_pattern = by_pattern.delete(key)
                old_keys.append(key)
        by_principal = self.by_principal
        for principal, buckets in gone.items():
            rules = by_principal[principal]
            for key, gone_ids in buckets.items():
                kept = tuple(rule for rule in rules[key] if rule.id not in gone_ids)
                rules = rules.set(key, kept) if kept else rules.delete(key)
            by_principal = (
                by_principal.set(principal, rules) if rules else by_principal.delete(principal)
            )
        return AclTable(
            entries=entries,
            ids=ids,
            by_principal=by_principal,
            by_pattern=by_pattern,
            prefix_lengths=_counted(self.prefix_lengths, old_keys, -1),
        )

    def differing(self, other: "AclTable") -> set[UUID]:
        """Return the ids of ACL entries that differ between this table and another table, or that
        only one of the tables contains."""
        mine, others = self.entries, other.entries
        if mine is others:
            return set()
        changed = {one for one, entry in mine.unordered_items() if others.get(one) != entry}
        return changed | {one for one, _ in others.unordered_items() if one not in mine}

    def candidates(self, wanted: AclFilter) -> Iterator[tuple[UUID, AclEntry]]:
        """Yield the ACL entries that may match the filter `wanted`, in no particular order. Every
        matching entry is among them; the caller checks each.

        Few entries are yielded if the filter names a resource or a principal.
        """
        if wanted.principal is not None and wanted.resource_name is None:
            for _, rules in self.by_principal.get(wanted.principal, NO_RULES).unordered_items():
                for rule in rules:
                    yield rule.id, rule.entry
        elif wanted.resource_name is not None:
            for key in self._patterns(wanted, wanted.resource_name):
                if wanted.principal is not None:
                    buckets = self.by_principal.get(wanted.principal, NO_RULES)
                    for rule in buckets.get(key, ()):
                        yield rule.id, rule.entry
                    continue
                for entry_id, _ in self.by_pattern.get(key, NO_IDS).unordered_items():
                    yield entry_id, self.entries[entry_id]
        else:
            yield from self.entries.unordered_items()

    def _patterns(self, wanted: AclFilter, name: str) -> Iterator[PatternKey]:
        """Yield each resource pattern in the table that an ACL filter for the resource `name` may
        match. No pattern is yielded twice."""
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        for resource_type in ResourceType:
            if wanted.resource_type not in (ResourceType.ANY, resource_type):
                continue
            yield PatternKey(resource_type, literal, name)
            if wanted.pattern_type is not PatternType.MATCH:
                yield PatternKey(resource_type, prefixed, name)
                continue
            if name != WILDCARD:
                yield PatternKey(resource_type, literal, WILDCARD)
            for length in self.prefix_lengths.get(resource_type, NO_LENGTHS):
                if length <= len(name):
                    yield PatternKey(resource_type, prefixed, name[:length])


NO_ACLS = AclTable()


def pattern_key(entry: AclEntry) -> PatternKey:
    """Return the resource pattern (type and name or prefix) to which an ACL entry applies."""
    return PatternKey(entry.resource_type, entry.pattern_type, entry.resource_name)


def rule_of(entry_id: UUID, entry: AclEntry) -> AclRule:
    """Return the parsed rule that the authorizer evaluates for an ACL entry."""
    is_deny = entry.permission is AclPermission.DENY
    return AclRule(
        id=entry_id,
        entry=entry,
        operations=_decided(entry.operation, is_deny=is_deny),
        is_deny=is_deny,
        host=entry.host,
        addresses=host_pattern_of(entry.host),
    )


def _decided(operation: AclOperation, *, is_deny: bool) -> int:
    if operation is AclOperation.ALL:
        return EVERY_OPERATION
    beside = () if is_deny else GRANTED_BESIDE.get(operation, ())
    return sum(1 << one for one in (operation, *beside))


def _counted(
    lengths: PersistentMap[int, PersistentMap[int, int]], keys: Iterable[PatternKey], step: int
) -> PersistentMap[int, PersistentMap[int, int]]:
    """Add `step` to the number of prefixed resource patterns for each of the keys. Returns the new
    numbers, by resource type and length of the prefix."""
    for resource_type, pattern_type, name in keys:
        if pattern_type != PatternType.PREFIXED:
            continue
        of_type = lengths.get(resource_type, NO_LENGTHS)
        count = of_type.get(len(name), 0) + step
        of_type = of_type.set(len(name), count) if count else of_type.delete(len(name))
        lengths = lengths.set(resource_type, of_type) if of_type else lengths.delete(resource_type)
    return lengths
