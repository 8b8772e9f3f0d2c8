"""Reasons why a page cannot show a fact. The user lacks a permission, the cluster does not support
the request, or a node does not respond. The page shows the reason in place of the fact."""

import shlex
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from ottla.client.admin import Admin
from ottla.console.sheets import AbsentPart, NotePart, SheetPart
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NodeId
from ottla.model.values import frozen

T = TypeVar("T")

FACT_S = 10.0
"""Maximum seconds for one request for information that a page shows."""
RESOURCE_OPTIONS = {
    "topic": "--topic",
    "group": "--group",
    "transactional id": "--transactional-id",
    "user": "--user",
}


@frozen(kw_only=True)
class NeededRight:
    """Permission for an ACL operation on a resource, which a user needs to see information or to
    make a change."""

    operation: str
    """Operation of Kafka's ACLs that the user needs, such as describe."""
    resource: str = "cluster"
    """Type of the resource to which the permission applies: cluster, topic, group, transactional id
    or user."""
    name: str = ""
    """Name of the resource to which the permission applies. Empty for the cluster."""

    @property
    def text(self) -> str:
        """The permission as a noun phrase for a page, such as `describe on group "billing"`."""
        if self.resource == "cluster":
            return f"{self.operation} on the cluster"
        if not self.name:
            return f"{self.operation} on {self.resource}s"
        return f"{self.operation} on {self.resource} {self.name!r}"

    def command(self, user: str) -> str:
        """Return the command that grants this permission to a user."""
        words = ["ottla", "acl", "create", "--allow", user or "USER", "--operation", self.operation]
        if self.resource == "cluster":
            words.append("--cluster")
        else:
            words += [RESOURCE_OPTIONS[self.resource], self.name or "*"]
        return shlex.join(words)


@frozen(kw_only=True)
class Absence:
    """Reason why a page cannot show a part of its information about the cluster."""

    thing: str
    """Noun phrase for the missing information, such as "members of the group"."""
    reason: str
    """Sentence without a full stop that explains why the information is missing."""
    right: NeededRight | None = None
    """Permission that the user needs to see the information, or None if another reason hides it."""
    is_unsupported: bool = False
    """True if the information is missing because the cluster does not support the request for
    it."""

    def part(self, user: str) -> SheetPart:
        """Return the part of a page that explains the missing information to a signed-in user."""
        if self.is_unsupported:
            return AbsentPart(thing=f"{self.thing[:1].upper()}{self.thing[1:]}")
        if self.right is not None:
            who = f"user {user!r}" if user else "the console's user"
            return NotePart(
                text=f"{self.thing}: {who} lacks the right to {self.right.text}",
                tone="warning",
                command=self.right.command(user),
            )
        return NotePart(text=f"{self.thing}: {self.reason}", tone="warning")


def absence_of(thing: str, error: Exception, needs: NeededRight) -> Absence:
    """Return the reason for missing information, derived from an error of the admin client."""
    if isinstance(error, trio.TooSlowError):
        return Absence(thing=thing, reason=f"no answer in {FACT_S:g} s")
    if isinstance(error, RefusedError):
        if error.code.name.endswith("AUTHORIZATION_FAILED"):
            return Absence(thing=thing, reason=error.message, right=needs)
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return Absence(thing=thing, reason=error.message, is_unsupported=True)
    return Absence(thing=thing, reason=str(error))


async def attempt(
    thing: str, call: Awaitable[T], needs: NeededRight, *, timeout_s: float = FACT_S
) -> T | Absence:
    """Return the result of an admin call, or the reason why it failed. `thing` names the requested
    information. `needs` is the permission that the call requires. `timeout_s` is the time limit in
    seconds."""
    try:
        with trio.fail_after(timeout_s):
            return await call
    except (OttlaError, trio.TooSlowError) as error:
        return absence_of(thing, error, needs)


CLUSTER_DESCRIBE = NeededRight(operation="describe")


OTTLA_FEATURE = "ottla.version"
"""Name of a cluster feature that only Ottla's brokers support."""


async def is_ottla(admin: Admin) -> bool:
    """Return whether the cluster's brokers are Ottla's. Brokers of Apache Kafka close the
    connection when they receive a request that only Ottla supports."""
    return OTTLA_FEATURE in await admin.describe_features()


async def attempt_own(
    admin: Admin, thing: str, call: Callable[[], Awaitable[T]], needs: NeededRight
) -> T | Absence:
    """Return the result of an admin call that sends requests of Ottla's own, or the reason why
    there is no result. Nothing is sent to a cluster of Apache Kafka."""

    async def checked() -> T:
        if not await is_ottla(admin):
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, "only Ottla has this request")
        return await call()

    return await attempt(thing, checked(), needs)


async def attempt_each(
    admin: Admin,
    thing: str,
    call: Callable[[NodeId], Awaitable[T]],
    needs: NeededRight,
    *,
    is_own: bool = False,
) -> tuple[dict[NodeId, T], list[Absence]]:
    """Make an admin call at each broker, concurrently. Returns the results by broker, and the
    reasons for the brokers without a result. With `is_own`, the call sends requests of Ottla's
    own."""
    found: dict[NodeId, T] = {}
    absent: list[Absence] = []
    brokers = await attempt("brokers", admin.describe_cluster(), CLUSTER_DESCRIBE)
    if isinstance(brokers, Absence):
        return found, [brokers]
    if is_own and not await is_ottla(admin):
        return found, [Absence(thing=thing, reason="only Ottla has it", is_unsupported=True)]
    limit = trio.CapacityLimiter(BROKERS_AT_ONCE)

    async def ask(node: NodeId) -> None:
        async with limit:
            result = await attempt(f"{thing} of broker {node}", call(node), needs)
        if isinstance(result, Absence):
            absent.append(result)
        else:
            found[node] = result

    async with trio.open_nursery() as nursery:
        for broker in brokers.brokers:
            nursery.start_soon(ask, broker.node)
    rights = {one.right for one in absent if one.right is not None}
    if len(rights) == 1 and not found:
        # All brokers refuse for the same right: one sentence is enough.
        (right,) = rights
        absent = [Absence(thing=thing, reason=absent[0].reason, right=right)]
    return dict(sorted(found.items())), absent[:ABSENT_MAX]


BROKERS_AT_ONCE = 16
ABSENT_MAX = 10
"""Maximum number of reasons for unresponsive brokers on one page. Further unresponsive brokers are
on the page of brokers."""
