"""The table of ACLs: its indexes agree with its entries."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.acl_table import NO_ACLS, AclTable, pattern_key
from ottla.model.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

NAMES = ["*", "a", "ab", "abc", "b"]
PRINCIPALS = ["User:*", "User:al", "User:bo"]
HOSTS = ["*", "10.0.0.1", "10.0.0.0/8"]


def entries() -> st.SearchStrategy[AclEntry]:
    return st.builds(
        AclEntry,
        resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
        resource_name=st.sampled_from(NAMES),
        pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        principal=st.sampled_from(PRINCIPALS),
        host=st.sampled_from(HOSTS),
        operation=st.sampled_from([AclOperation.ALL, AclOperation.READ, AclOperation.DESCRIBE]),
        permission=st.sampled_from([AclPermission.DENY, AclPermission.ALLOW]),
    )


def filters() -> st.SearchStrategy[AclFilter]:
    return st.builds(
        AclFilter,
        resource_type=st.sampled_from([ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP]),
        resource_name=st.none() | st.sampled_from([*NAMES, "abcd", "c"]),
        pattern_type=st.sampled_from([one for one in PatternType if one]),
        principal=st.none() | st.sampled_from(PRINCIPALS),
        host=st.none() | st.sampled_from(HOSTS),
        operation=st.sampled_from([AclOperation.ANY, AclOperation.READ]),
        permission=st.sampled_from([AclPermission.ANY, AclPermission.DENY]),
    )


def table_of(found: set[AclEntry]) -> AclTable:
    return NO_ACLS.with_entries({UUID(int=at): one for at, one in enumerate(sorted(found))})


@given(st.lists(st.sets(entries(), max_size=8), max_size=6))
def test_the_indexes_say_what_the_entries_say(changes: list[set[AclEntry]]) -> None:
    """Each change removes the present ACLs of a set and adds the absent ones."""
    table, number = NO_ACLS, 0
    for change in changes:
        table = table.without_entries([table.ids[one] for one in change if one in table.ids])
        added = {}
        for one in sorted(change):
            number += 1
            if one not in table.ids and number % 3:
                added[UUID(int=number)] = one
        table = table.with_entries(added)

    again = NO_ACLS.with_entries(dict(table.entries))
    assert table == again
    assert table.ids == again.ids
    assert table.by_pattern == again.by_pattern
    assert table.prefix_lengths == again.prefix_lengths
    assert {
        (principal, key): sorted(rules)
        for principal, buckets in table.by_principal.items()
        for key, rules in buckets.items()
    } == {
        (entry.principal, pattern_key(entry)): sorted(
            rule
            for rule in again.by_principal[entry.principal][pattern_key(entry)]
            if rule.entry.principal == entry.principal
        )
        for entry in table.entries.values()
    }


@given(st.sets(entries(), max_size=20), filters())
def test_the_candidates_of_a_filter_have_each_entry_that_it_asks_for_once(
    found: set[AclEntry], wanted: AclFilter
) -> None:
    table = table_of(found)

    candidates = [entry for _, entry in table.candidates(wanted) if wanted.matches(entry)]

    assert len(candidates) == len(set(candidates))
    assert set(candidates) == {entry for entry in found if obviously_matches(wanted, entry)}


def obviously_matches(wanted: AclFilter, entry: AclEntry) -> bool:
    """Decide as Kafka's ResourcePatternFilter and AccessControlEntryFilter are written."""
    pairs = [
        (wanted.resource_type, entry.resource_type, ResourceType.ANY),
        (wanted.operation, entry.operation, AclOperation.ANY),
        (wanted.permission, entry.permission, AclPermission.ANY),
        (wanted.principal, entry.principal, None),
        (wanted.host, entry.host, None),
    ]
    if any(asked not in (wild, given) for asked, given, wild in pairs):
        return False
    kind, name = wanted.pattern_type, wanted.resource_name
    if kind not in (PatternType.ANY, PatternType.MATCH) and kind != entry.pattern_type:
        return False
    if name is None:
        return True
    if kind in (PatternType.ANY, entry.pattern_type):
        return name == entry.resource_name
    if entry.pattern_type == PatternType.LITERAL:
        return entry.resource_name in (name, "*")
    return name.startswith(entry.resource_name)


def test_a_named_filter_looks_at_few_entries() -> None:
    entry = AclEntry(
        resource_type=ResourceType.TOPIC,
        resource_name="",
        pattern_type=PatternType.LITERAL,
        principal="User:al",
        host="*",
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )
    table = table_of({replace(entry, resource_name=f"t-{at}") for at in range(1_000)})

    assert len(list(table.candidates(AclFilter(resource_name="t-5")))) == 1
    assert len(list(table.candidates(AclFilter(principal="User:bo")))) == 0


def test_tables_differ_by_the_entries_that_one_of_them_has_alone() -> None:
    entry = AclEntry(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        pattern_type=PatternType.LITERAL,
        principal="User:al",
        host="*",
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )
    table = table_of({entry})

    assert table.differing(NO_ACLS) == NO_ACLS.differing(table) == {UUID(int=0)}
    assert table.differing(table_of({entry})) == set()
