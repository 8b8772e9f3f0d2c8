"""Settings of the authorizer: Kafka's StandardAuthorizer, or none."""

from collections.abc import Mapping
from typing import Any

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, setting, values_of
from ottla.model.values import frozen

AUTHORIZER_CLASS = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only available authorizer, under Kafka's name for it."""


def parse_authorizer(text: str) -> str:
    """org.apache.kafka.metadata.authorizer.StandardAuthorizer, or empty."""
    if text not in ("", STANDARD_AUTHORIZER):
        raise ValueError(text)
    return text


def parse_super_users(text: str) -> frozenset[str]:
    """principals as Type:name, such as User:admin, with a semicolon between two."""
    found = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in found:
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise ValueError(principal)
    return found


@frozen(kw_only=True)
class AuthorizerConfig:
    """Authorizer settings of a node. Brokers and controllers must have the same settings."""

    class_name: str = setting(
        "",
        key=AUTHORIZER_CLASS,
        kind=SettingKind.CLASS,
        parse=parse_authorizer,
        text="",
        doc="Authorizer, which decides by ACLs about clients' operations; if empty, every client "
        "may do everything. Brokers and controllers must have the same.",
    )
    super_users: frozenset[str] = setting(
        frozenset(),
        key=SUPER_USERS,
        kind=SettingKind.STRING,
        parse=parse_super_users,
        text="",
        doc="Principals that may do everything, regardless of ACLs.",
    )
    allow_everyone: bool = setting(
        False,
        key=ALLOW_EVERYONE,
        doc="Whether everyone may do everything on a resource without ACLs.",
    )

    @property
    def is_on(self) -> bool:
        """True if an authorizer is set."""
        return bool(self.class_name)


def authorizer_values(texts: Mapping[str, str]) -> tuple[dict[str, Any], set[str]]:
    """Return the authorizer settings of a node's file, and the remaining keys.

    Raises ConfigError for an invalid value, or if the other settings are given without the
    authorizer.
    """
    values, unknown = values_of(AuthorizerConfig, texts)
    if not values.get("class_name"):
        for key in (SUPER_USERS, ALLOW_EVERYONE):
            if texts.get(key, "").strip():
                raise ConfigError(
                    key, f"is set, but {AUTHORIZER_CLASS} is not: every client may do everything"
                )
    return values, unknown
