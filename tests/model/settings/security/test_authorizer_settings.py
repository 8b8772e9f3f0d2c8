"""Settings of the authorizer in a node's file."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.security.authorizer import (
    STANDARD_AUTHORIZER,
    AuthorizerConfig,
    authorizer_values,
)

CLASS = {"authorizer.class.name": STANDARD_AUTHORIZER}


def config_of(texts: dict[str, str]) -> AuthorizerConfig:
    values, _ = authorizer_values(texts)
    return AuthorizerConfig(**values)


def test_everything_is_allowed_where_nothing_is_set() -> None:
    config = config_of({"authorizer.class.name": "", "super.users": " "})

    assert config == AuthorizerConfig()
    assert not config.is_on


def test_super_users_have_a_semicolon_between_them() -> None:
    config = config_of({**CLASS, "super.users": "User:admin; User:CN=a,O=b ;"})

    assert config.is_on
    assert config.super_users == {"User:admin", "User:CN=a,O=b"}
    assert not config.allow_everyone


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (
            {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
            "authorizer.class.name: is 'kafka.security.authorizer.AclAuthorizer'; it must be "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer, or empty",
        ),
        ({**CLASS, "super.users": "admin"}, "super.users: is 'admin'; it must be principals as "),
        ({**CLASS, "super.users": "User:"}, "super.users: is 'User:'; it must be principals as "),
        ({"super.users": "User:admin"}, "super.users: is set, but authorizer.class.name is not"),
        (
            {"allow.everyone.if.no.acl.found": "false"},
            "allow.everyone.if.no.acl.found: is set, but authorizer.class.name is not",
        ),
    ],
)
def test_what_would_leave_a_node_more_open_than_its_file_says_stops_the_start(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        authorizer_values(texts)

    assert str(caught.value).startswith(sentence)
