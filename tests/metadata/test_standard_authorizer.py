"""Authorization by the ACLs of the image: order of decision, cache, audit log."""

import logging
from dataclasses import replace
from uuid import UUID

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import fold, standard_authorizer
from ottla.metadata.acl_table import NO_ACLS, AclTable
from ottla.metadata.audit_log import DENIALS_PER_WINDOW_MAX, AuditLog
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, NOWHERE
from ottla.metadata.records import acl_record, remove_acl_record
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.security.acl_hosts import address_of, host_pattern_of
from ottla.model.security.acls import (
    OPERATIONS,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.security.acls import (
    ResourceType as Type,
)
from ottla.model.security.authorizer import AllowAll, Authorizer, authorized_operations
from ottla.model.settings.security.authorizer import AuthorizerConfig

AL, BO = "User:al", "User:bo"
HERE = "10.0.0.1"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
PRINCIPALS = ["User:root", AL, BO, "User:*"]
NAMES = ["*", "*a", "a", "ab", "abc", "b"]
IMPLIED = {
    DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}

ENTRY = AclEntry(
    resource_type=Type.TOPIC,
    resource_name="t",
    pattern_type=PatternType.LITERAL,
    principal=AL,
    host="*",
    operation=READ,
    permission=AclPermission.ALLOW,
)


def entries() -> st.SearchStrategy[AclEntry]:
    return st.builds(
        AclEntry,
        resource_type=st.sampled_from([Type.TOPIC, Type.GROUP]),
        resource_name=st.sampled_from(NAMES),
        pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        principal=st.sampled_from(PRINCIPALS),
        host=st.sampled_from(["*", HERE, "10.0.0.0/24", "::/0"]),
        operation=st.sampled_from([one for one in AclOperation if one >= AclOperation.ALL]),
        permission=st.sampled_from([AclPermission.DENY, AclPermission.ALLOW]),
    )


def table_of(*found: AclEntry) -> AclTable:
    return NO_ACLS.with_entries({UUID(int=at): one for at, one in enumerate(found)})


def authorizer_of(*found: AclEntry, audit: AuditLog | None = None) -> StandardAuthorizer:
    return StandardAuthorizer(AuthorizerConfig(), audit, table_of(*found))


def obvious(
    found: set[AclEntry],
    default: bool,
    principal: str,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
) -> bool:
    """Decide by looking at every entry, with the rules as they are written down."""
    if principal == "User:root":
        return True
    over = [
        one
        for one in found
        if one.resource_type == kind
        and (
            name.startswith(one.resource_name)
            if one.pattern_type is PatternType.PREFIXED
            else one.resource_name in (name, "*")
        )
    ]
    mine = [one for one in over if one.principal in (principal, "User:*")]
    here = [one for one in mine if one.host in ("*", host) or is_in(host, one.host)]
    asked = {operation, AclOperation.ALL}
    if any(one.permission is AclPermission.DENY and one.operation in asked for one in here):
        return False
    asked |= IMPLIED.get(operation, set())
    if any(one.permission is AclPermission.ALLOW and one.operation in asked for one in here):
        return True
    return default and not over


def is_in(host: str, pattern: str) -> bool:
    addresses = host_pattern_of(pattern)
    return addresses is not None and addresses.holds(address_of(host))


@given(
    st.sets(entries(), max_size=12),
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(PRINCIPALS),
            st.sampled_from([HERE, "10.0.1.1", "::1", ""]),
            st.sampled_from([one for one in AclOperation if one > AclOperation.ALL]),
            st.sampled_from([Type.TOPIC, Type.GROUP]),
            st.sampled_from(NAMES),
        ),
        min_size=5,
        max_size=20,
    ),
)
def test_it_decides_as_the_rules_are_written(
    found: set[AclEntry],
    default: bool,
    questions: list[tuple[str, str, AclOperation, ResourceType, str]],
) -> None:
    rules = AuthorizerConfig(super_users=frozenset({"User:root"}), allow_everyone=default)
    authorizer = StandardAuthorizer(rules, acls=table_of(*found))

    for question in questions * 2:  # the second time from memory
        assert authorizer.is_allowed(*question) == obvious(found, default, *question)


def test_one_entry_that_denies_outweighs_those_that_allow() -> None:
    deny = replace(ENTRY, permission=AclPermission.DENY, principal="User:*", resource_name="*")
    authorizer = authorizer_of(ENTRY, deny)

    assert not authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "t")


def test_reading_implies_describing_and_not_reading_does_not_deny_it() -> None:
    describe = replace(ENTRY, operation=DESCRIBE)
    no_read = replace(ENTRY, permission=AclPermission.DENY)

    assert authorizer_of(ENTRY).is_allowed(AL, HERE, DESCRIBE, Type.TOPIC, "t")
    assert authorizer_of(describe, no_read).is_allowed(AL, HERE, DESCRIBE, Type.TOPIC, "t")
    assert not authorizer_of(describe).is_allowed(AL, HERE, READ, Type.TOPIC, "t")


def test_the_wildcard_holds_for_a_name_that_begins_with_it() -> None:
    """Kafka passes over the entries of the wildcard there, so that a denial has a hole."""
    allow = replace(ENTRY, resource_type=Type.GROUP, resource_name="*a")
    deny = replace(allow, resource_name="*", permission=AclPermission.DENY)

    assert authorizer_of(allow).is_allowed(AL, HERE, READ, Type.GROUP, "*a")
    assert not authorizer_of(allow, deny).is_allowed(AL, HERE, READ, Type.GROUP, "*a")


def test_the_judgement_names_the_entry_that_decided() -> None:
    deny = replace(ENTRY, permission=AclPermission.DENY, principal="User:*")

    judged = authorizer_of(ENTRY, deny).decide(AL, HERE, READ, Type.TOPIC, "t")

    assert (judged.is_allowed, judged.reason, judged.entry) == (False, "MatchingAcl", deny)
    assert authorizer_of().decide(AL, HERE, READ, Type.TOPIC, "t").reason == "DefaultDeny"


def test_writing_is_allowed_somewhere_where_one_resource_remains() -> None:
    write = replace(ENTRY, operation=WRITE, pattern_type=PatternType.PREFIXED)
    deny_all_below = replace(write, permission=AclPermission.DENY)
    deny_one = replace(deny_all_below, pattern_type=PatternType.LITERAL)

    assert authorizer_of(write).is_allowed_somewhere(AL, HERE, WRITE, Type.TOPIC)
    assert authorizer_of(write, deny_one).is_allowed_somewhere(AL, HERE, WRITE, Type.TOPIC)
    assert not authorizer_of(write, deny_all_below).is_allowed_somewhere(
        AL, HERE, WRITE, Type.TOPIC
    )
    assert not authorizer_of(write).is_allowed_somewhere(BO, HERE, WRITE, Type.TOPIC)


def test_a_revoked_entry_stops_counting_with_the_image_that_brings_the_change() -> None:
    image = fold.apply(EMPTY, acl_record(UUID(int=1), ENTRY))
    authorizer = StandardAuthorizer(AuthorizerConfig())
    trio.run(authorizer.publish, MetadataDelta(image), image)
    assert authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "t")
    assert authorizer.is_allowed_somewhere(AL, HERE, READ, Type.TOPIC)

    delta = MetadataDelta(image)
    delta.replay(remove_acl_record(UUID(int=1)))
    trio.run(authorizer.publish, delta, delta.apply(NOWHERE))

    assert not authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "t")
    assert not authorizer.is_allowed_somewhere(AL, HERE, READ, Type.TOPIC)


def test_a_client_that_asks_name_after_name_fills_a_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standard_authorizer, "REMEMBERED_MAX", 100)
    authorizer = authorizer_of(ENTRY)
    judged: list[str] = []
    decide = authorizer.decide

    def counting(*question: object) -> object:
        judged.append(str(question[-1]))
        return decide(*question)  # type: ignore[arg-type]  # it is passed on as it came

    monkeypatch.setattr(authorizer, "decide", counting)

    for number in range(1_000):
        authorizer.is_allowed(BO, HERE, READ, Type.TOPIC, f"guess-{number}", is_logged=False)
        authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "t")
    authorizer.is_allowed(BO, HERE, READ, Type.TOPIC, "long" * 1_000)

    assert len(authorizer._young) + len(authorizer._old) <= 100
    assert not any(len(str(question[4])) > 600 for question in authorizer._young)
    assert judged.count("t") == 1, "what is asked again and again stays in memory"


def test_the_authorizers_keep_the_protocol() -> None:
    both: list[Authorizer] = [AllowAll(), authorizer_of(ENTRY)]

    assert [one.is_active for one in both] == [False, True]
    bits = [authorized_operations(one, AL, HERE, Type.TOPIC, "t") for one in both]
    assert bits == [
        sum(1 << one for one in OPERATIONS[Type.TOPIC]),
        (1 << READ) | (1 << DESCRIBE),
    ]


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_a_denial_is_logged_with_what_decided_and_no_text_that_steers_a_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ottla.authorizer")
    authorizer = authorizer_of(
        replace(ENTRY, permission=AclPermission.DENY), audit=AuditLog(Clock())
    )

    authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "t")
    authorizer.is_allowed(AL, HERE, READ, Type.GROUP, "g\x1b[2J" + "x" * 1_000)
    authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "filtered", is_logged=False)

    first, second = caplog.messages
    assert first == (
        "Principal = User:al is Denied operation = READ from host = 10.0.0.1 on resource = "
        "TOPIC:LITERAL:t based on rule MatchingAcl(DENY User:al READ on TOPIC:LITERAL:t from *)"
    )
    assert "g\\x1b[2Jxxx" in second and "\x1b" not in second and len(second) < 500
    assert "DefaultDeny" in second


def test_what_is_allowed_is_logged_for_debugging_alone(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of(ENTRY, audit=AuditLog(Clock()))

    caplog.set_level(logging.INFO, "ottla.authorizer")
    authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "t")
    assert caplog.messages == []

    caplog.set_level(logging.DEBUG, "ottla.authorizer")
    authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "t")
    assert "is Allowed operation = READ" in caplog.text


def test_denials_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.authorizer")
    clock = Clock()
    authorizer = authorizer_of(audit=AuditLog(clock))

    for number in range(10_000):
        authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, f"t-{number % 3}")
    assert len(caplog.messages) == DENIALS_PER_WINDOW_MAX

    clock.now_ms = 60_000
    authorizer.is_allowed(AL, HERE, READ, Type.TOPIC, "t")
    kept_back = 10_000 - DENIALS_PER_WINDOW_MAX
    assert caplog.messages[-1].endswith(f"({kept_back} more were denied since the last line)")
