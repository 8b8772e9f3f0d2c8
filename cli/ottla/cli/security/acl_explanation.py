"""Authorizes a request with a cluster's ACLs and settings as its brokers do, and returns the ACL
that decides."""

from uuid import UUID

from ottla.client.admin import Admin
from ottla.metadata.acl_table import NO_ACLS
from ottla.metadata.standard_authorizer import AuthorizationDecision, StandardAuthorizer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import AclFilter, AclOperation, ResourceType
from ottla.model.settings.security.authorizer import (
    ALLOW_EVERYONE,
    AUTHORIZER_CLASS,
    SUPER_USERS,
    AuthorizerConfig,
    authorizer_values,
)


async def explained(
    admin: Admin,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> AuthorizationDecision:
    """Return the decision about a request, and the ACL on which it is based.

    Raises RefusedError with SECURITY_DISABLED if the cluster has no authorizer.
    """
    settings = await _settings(admin)
    if not settings.is_on:
        raise RefusedError(
            ErrorCode.SECURITY_DISABLED,
            f"every client may do everything: {AUTHORIZER_CLASS} is not set",
        )
    entries = await admin.describe_acls(AclFilter())
    acls = NO_ACLS.with_entries({UUID(int=at + 1): one for at, one in enumerate(entries)})
    authorizer = StandardAuthorizer(settings, acls=acls)
    return authorizer.decide(principal, host, operation, resource_type, name)


async def _settings(admin: Admin) -> AuthorizerConfig:
    """Return the authorizer settings of a broker. They must be the same on all brokers."""
    cluster = await admin.describe_cluster()
    configs = await admin.broker_configs(cluster.brokers[0].node)
    keys = (AUTHORIZER_CLASS, SUPER_USERS, ALLOW_EVERYONE)
    texts = {key: configs[key].value for key in keys if key in configs}
    values, _ = authorizer_values({key: text for key, text in texts.items() if text})
    return AuthorizerConfig(**values)
