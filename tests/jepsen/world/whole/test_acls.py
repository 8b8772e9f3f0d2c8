"""The world's model of acknowledged ACLs, which must detect a lost one."""

from uuid import UUID

import pytest

from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.acls import AclHistory
from ottla.metadata.acl_table import NO_ACLS, AclTable
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

ENTRY = AclEntry(
    resource_type=ResourceType.TOPIC,
    resource_name="entry.1",
    pattern_type=PatternType.LITERAL,
    principal="User:al",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.DENY,
)
WITH = NO_ACLS.with_entries({UUID(int=1): ENTRY})


def book(*looks: tuple[int, AclTable]) -> AclHistory:
    """Return a book with an entry that was created, after some looks."""
    made = AclHistory()
    made.acknowledged(ENTRY, is_there=True)
    for offset, acls in looks:
        made.look("broker 1", offset, acls)
    return made


def test_an_entry_that_was_seen_must_be_in_every_later_image() -> None:
    known = book((4, NO_ACLS), (5, WITH))
    known.look("broker 2", 4, NO_ACLS)
    known.look("broker 2", 6, WITH)
    with pytest.raises(Violation, match="AcknowledgedEntriesStay: broker 2 at 5 lacks entry"):
        known.look("broker 2", 5, NO_ACLS)


def test_an_entry_that_was_deleted_must_be_in_no_later_image() -> None:
    known = book((5, WITH))
    known.begins_deletion(ENTRY)
    for offset, acls in ((6, WITH), (7, NO_ACLS), (4, NO_ACLS)):
        known.look("broker 1", offset, acls)
    known.acknowledged(ENTRY, is_there=False)
    # An image from before its creation says nothing.
    known.look("broker 2", 4, NO_ACLS)
    assert known.unseen == ["entry.1 deleted"]
    known.look("broker 1", 7, NO_ACLS)
    known.look("broker 2", 6, WITH)
    assert known.unseen == []
    with pytest.raises(Violation, match="deleted at 7 or before"):
        known.look("broker 2", 8, WITH)


def test_an_entry_that_no_image_shows_is_not_settled() -> None:
    known = book((5, NO_ACLS))
    assert known.unseen == ["entry.1 created"]
    assert known.standing == []


def test_an_entry_whose_deletion_has_no_answer_may_be_there_or_not() -> None:
    known = book((5, WITH))
    assert known.standing == [ENTRY]
    known.begins_deletion(ENTRY)
    for offset, acls in ((6, WITH), (7, NO_ACLS)):
        known.look("broker 1", offset, acls)
    assert known.unseen == [] and known.standing == []
