"""Deletion of all resources that tests have added to a running cluster."""

from collections.abc import Iterable, Sequence

import trio

from ottla.broker.broker_driver import Broker
from ottla.client import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.admin_parts.admin_quotas import QuotaChange
from ottla.metadata.image import MetadataImage
from ottla.model.errors import RefusedError
from ottla.model.security.acls import AclEntry, AclFilter
from ottla.model.security.scram import SCRAM_BY_NUMBER
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.testing.leftovers import NOTHING, Leftovers, find_leftovers

APPLY_TIMEOUT_S = 10.0
"""Maximum time, in seconds, to wait until all brokers have applied the deletions."""
APPLY_POLL_S = 0.001


async def delete_leftovers(
    bootstrap: str,
    brokers: Sequence[Broker],
    first: MetadataImage,
    security: ClientSecurity | None,
) -> None:
    """Delete the resources that clients created since the metadata image `first`. Returns when all
    brokers have applied the deletions.

    Raises RuntimeError if some resources remain because a client continues to create topics.
    """
    found = find_leftovers(brokers[0].metadata.image, first)
    if found == NOTHING:
        return
    async with open_admin(bootstrap, security=security) as admin:
        await _delete(admin, found)
    with trio.move_on_after(APPLY_TIMEOUT_S):
        while True:
            left = [_left(broker, first) for broker in brokers]
            if all(one == NOTHING for one in left):
                return
            await trio.sleep(APPLY_POLL_S)
    raise RuntimeError(
        f"the cluster still has {left[0]}; does a client of an earlier test go on? Close it first"
    )


def _left(broker: Broker, first: MetadataImage) -> Leftovers | None:
    """Return the resources that a broker knows but `first` does not contain.  Returns None until
    the broker has applied its latest image."""
    image = broker.metadata.image
    if broker.member.applied_end_offset <= image.provenance.offset:
        return None
    return find_leftovers(image, first)


async def _delete(admin: Admin, found: Leftovers) -> None:
    async with trio.open_nursery() as nursery:
        if found.topics:
            nursery.start_soon(admin.delete_topics, found.topics)
        for (kind, name), keys in found.configs.items():
            resource = ConfigResource(ConfigKind(kind), name)
            nursery.start_soon(admin.alter_configs, resource, dict.fromkeys(keys))
        if found.quotas:
            changes = [
                QuotaChange(entity, dict.fromkeys(keys)) for entity, keys in found.quotas.items()
            ]
            nursery.start_soon(admin.alter_quotas, changes)
        for user, mechanism in found.credentials:
            nursery.start_soon(admin.delete_password, user, SCRAM_BY_NUMBER[mechanism].name)
        nursery.start_soon(_delete_acls, admin, found.acls)
        if found.has_tokens:
            nursery.start_soon(_delete_tokens, admin)


async def _delete_acls(admin: Admin, entries: Iterable[AclEntry]) -> None:
    for one in entries:
        await admin.delete_acls(
            AclFilter(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission=one.permission,
            )
        )


async def _delete_tokens(admin: Admin) -> None:
    for token in await admin.describe_tokens():
        try:
            await admin.end_token(token.hmac)
        except RefusedError:
            continue  # The token has expired in the meantime.
