"""Reads the ACLs and authorizer settings of a cluster, and computes the decisions that brokers base
on them."""

from uuid import UUID

from ottla.client.admin import Admin
from ottla.metadata.acl_table import NO_ACLS
from ottla.metadata.standard_authorizer import AuthorizationDecision, StandardAuthorizer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import AclEntry, AclFilter, AclOperation, ResourceType
from ottla.model.settings.security.authorizer import (
    ALLOW_EVERYONE,
    AUTHORIZER_CLASS,
    SUPER_USERS,
    AuthorizerConfig,
    authorizer_values,
)
from ottla.model.values import frozen


@frozen
class AclFacts:
    """The authorizer settings of a cluster and all its ACLs."""

    settings: AuthorizerConfig
    entries: tuple[AclEntry, ...]

    def decide(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> AuthorizationDecision:
        """Return a broker's decision on whether a principal may perform an operation, and the ACL
        on which it is based."""
        acls = NO_ACLS.with_entries({UUID(int=at + 1): one for at, one in enumerate(self.entries)})
        authorizer = StandardAuthorizer(self.settings, acls=acls)
        return authorizer.decide(principal, host, operation, resource_type, name)


async def read_acl_facts(admin: Admin) -> AclFacts:
    """Return the authorizer settings and the ACLs of a cluster. No ACL is requested if the cluster
    has no authorizer."""
    settings = await _settings(admin)
    entries = await admin.describe_acls(AclFilter()) if settings.is_on else []
    return AclFacts(settings, tuple(entries))


async def explained(
    admin: Admin,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> AuthorizationDecision:
    """Return the brokers' decision on whether a principal may perform an operation, and the ACL on
    which it is based.

    Raises RefusedError with SECURITY_DISABLED if the cluster has no authorizer.
    """
    facts = await read_acl_facts(admin)
    if not facts.settings.is_on:
        raise RefusedError(
            ErrorCode.SECURITY_DISABLED,
            f"every client may do everything: {AUTHORIZER_CLASS} is not set",
        )
    return facts.decide(principal, host, operation, resource_type, name)


async def _settings(admin: Admin) -> AuthorizerConfig:
    """Return the authorizer settings of one broker. They must be the same on all brokers."""
    cluster = await admin.describe_cluster()
    configs = await admin.broker_configs(cluster.brokers[0].node)
    keys = (AUTHORIZER_CLASS, SUPER_USERS, ALLOW_EVERYONE)
    texts = {key: configs[key].value for key in keys if key in configs}
    if not texts.get(AUTHORIZER_CLASS):
        return AuthorizerConfig()  # A broker reports the defaults of the other settings, too.
    values, _ = authorizer_values({key: text for key, text in texts.items() if text})
    return AuthorizerConfig(**values)
