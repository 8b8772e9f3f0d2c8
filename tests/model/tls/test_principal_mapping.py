"""The user that a certificate maps to, as in Kafka's SslPrincipalMapper.

Expected users were written down from Kafka 4.3's own class.
"""

import pytest

from ottla.model.tls.principal_mapping import (
    NAME_LENGTH_MAX,
    RULE_COUNT_MAX,
    parse_principal_rules,
)

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
BY_KAFKA: list[tuple[str, str, str | None]] = [
    ("DEFAULT", DUKE, DUKE),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=abc", None),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", DUKE, "duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", "CN=abc", "CN=abc"),
    # Every match is replaced, the empty one at the end too.
    ("RULE:.*/x/", "CN=abc", "xx"),
    ("RULE:.*?/y/", "CN=abc", "yCyNy=yaybycy"),
    ("RULE:CN=(a)|.*/[$1]/", "CN=abc", "[a][][]"),
    ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9. ]*).*$/$1@$2/L", DUKE, "duke@$2"),
    ("RULE:^.*CN=([a-z]*).*$/$12/U", "CN=abc", "ABC2"),
    (r"RULE:CN=(a)(b)c/\$1$2x/", "CN=abc", "$1bx"),
    ("RULE:CN=(a)(b)c/$2$3/", "CN=abc", "b$3"),
    ("RULE:CN=(a)(b)c/$0-$1/", "CN=abc", "CN=abc-a"),
    ("RULE:CN=(?<n>a).*/${n}/", "CN=abc", "a"),
    (r"RULE:CN=a\+OU=b,O=c/a\/b/, DEFAULT", "CN=a+OU=b,O=c", "a/b"),
    (r"RULE:CN=a\+OU=b,O=c/a\/b/, DEFAULT", "CN=x", "CN=x"),
    ("RULE:^OU=x,CN=(.*),C=DE$/$1/U", "OU=x,CN=Hans Müller,C=DE", "HANS MÜLLER"),
    (" DEFAULT , RULE:CN=abc/z/", "CN=abc", "CN=abc"),
]


@pytest.mark.parametrize(("rules", "name", "user"), BY_KAFKA)
def test_rules_map_names_as_kafkas_do(rules: str, name: str, user: str | None) -> None:
    assert parse_principal_rules(rules).user_of(name) == user


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "NO",
        "default",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/L DEFAULT",
        "RULE:CN=(a/b/",  # the pattern is none
        "RULE:CN=(?=a)b/c/",  # look-around could be made slow by a name
        "RULE:CN=abc/$1/",  # no group: Kafka finds out at the first login
        "RULE:CN=(a)bc/$/",
        "RULE:CN=(a)bc/${n}/",
        ",".join(["DEFAULT"] * (RULE_COUNT_MAX + 1)),
    ],
)
def test_rules_that_mean_nothing_are_refused(rules: str) -> None:
    with pytest.raises(ValueError):
        parse_principal_rules(rules)


def test_a_rule_that_makes_an_empty_user_maps_nothing_to_nothing() -> None:
    assert parse_principal_rules("RULE:CN=abc//").user_of("CN=abc") is None
    assert parse_principal_rules("RULE:CN=abc//,DEFAULT").user_of("CN=abc") is None


def test_rules_are_shown_as_they_were_written() -> None:
    text = "RULE:^CN=(.*?),OU=b.*$/$1/L,DEFAULT"
    assert str(parse_principal_rules(text)) == text


def test_names_too_long_to_try_rules_on_are_no_users() -> None:
    rules = parse_principal_rules("RULE:.*?/x/,DEFAULT")
    longest = "CN=" + "a" * (NAME_LENGTH_MAX - 3)
    assert rules.user_of(longest) is not None
    assert rules.user_of(longest + "a") is None
