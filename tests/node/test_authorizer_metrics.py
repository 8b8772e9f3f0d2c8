"""Metrics of an authorizer."""

from uuid import UUID

from ottla.metadata.acl_table import NO_ACLS
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import AuthorizerConfig
from ottla.node.authorizer_metrics import AuthorizerMetrics

ENTRY = AclEntry(
    resource_type=ResourceType.TOPIC,
    resource_name="open",
    pattern_type=PatternType.LITERAL,
    principal="User:al",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.ALLOW,
)
PLUGINS = "kafka_server_plugins_"
LABELS = ("authorizer.class.name", "StandardAuthorizer", "broker")


def samples_of(metrics: AuthorizerMetrics) -> dict[str, dict[tuple[str, ...], object]]:
    return {
        family.name.removeprefix(PLUGINS): {
            one[0]: one[1] for one in family.samples if one is not None
        }
        for family in metrics.families()
    }


def test_decisions_are_reported_per_minute_and_acls_by_their_number() -> None:
    acls = NO_ACLS.with_entries({UUID(int=1): ENTRY})
    authorizer = StandardAuthorizer(AuthorizerConfig(), acls=acls)
    now_ms = 0
    metrics = AuthorizerMetrics("broker", authorizer, lambda: acls, lambda: now_ms)
    for name, count in (("open", 30), ("closed", 10)):
        for _ in range(count):
            authorizer.is_allowed(
                "User:al", "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, name, is_logged=False
            )
    now_ms = 120_000
    assert samples_of(metrics) == {
        "authorization_allowed_rate_per_minute": {LABELS: 15},
        "authorization_denied_rate_per_minute": {LABELS: 5},
        "authorization_request_rate_per_minute": {LABELS: 20},
        "acls_total_count": {LABELS: 1},
    }


def test_a_node_without_an_authorizer_has_the_names_and_no_numbers() -> None:
    found = samples_of(AuthorizerMetrics("controller", None, lambda: NO_ACLS, lambda: 0))
    assert len(found) == 4 and not any(found.values())
