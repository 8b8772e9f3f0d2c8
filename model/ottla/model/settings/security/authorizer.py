"""Settings of the authorizer: Kafka's StandardAuthorizer or no authorizer, and the super users."""

from collections.abc import Mapping
from typing import Any

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, setting, values_of
from ottla.model.values import frozen

AUTHORIZER_CLASS = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Java class name of Kafka's StandardAuthorizer, the only authorizer that Ottla implements."""


def parse_authorizer(text: str) -> str:
    """org.apache.kafka.metadata.authorizer.StandardAuthorizer, or empty.

    Checks the name of the authorizer class and returns it. Raises ValueError for any other name.
    Error messages quote the first line as the description of valid texts.
    """
    if text not in ("", STANDARD_AUTHORIZER):
        raise ValueError(text)
    return text


def parse_super_users(text: str) -> frozenset[str]:
    """principals as Type:name, such as User:admin, with a semicolon between two.

    Returns the principals. Raises ValueError if the text is malformed. Error messages quote the
    first line as the description of valid texts.
    """
    found = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in found:
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise ValueError(principal)
    return found


@frozen(kw_only=True)
class AuthorizerConfig:
    """Settings of a node's authorizer. Brokers and controllers must have the same values."""

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
        """True if the node has an authorizer."""
        return bool(self.class_name)


def authorizer_values(texts: Mapping[str, str]) -> tuple[dict[str, Any], set[str]]:
    """Return the authorizer settings in the texts of a node's file, and the texts with all other
    keys.

    Raises ConfigError for an invalid value, or if the file sets other authorizer settings but no
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
