"""Host names of the console, roles of users, and the rules for its address."""

import pytest

from ottla.console.access.hosts import host_names
from ottla.console.access.proxy_gate import parse_networks
from ottla.console.access.roles import RoleTable, parse_roles
from ottla.console.access.session_cookies import safe_next
from ottla.console.page_types import UserRole
from ottla.console.server_settings import (
    AccessKind,
    access_kind,
    check_address,
    user_security,
)
from ottla.model.errors import ConfigError


def test_a_loopback_console_has_loopback_names_only() -> None:
    names = host_names("127.0.0.1", 8088, has_tls=False)
    for host in ("127.0.0.1:8088", "localhost:8088", "LOCALHOST:8088", "[::1]:8088"):
        assert names.has(host)
    for host in ("", "evil.example:8088", "evil.example", "localhost", "localhost:80", "x" * 999):
        assert not names.has(host)
    assert not names.has("localhost:8088.evil.example")


def test_further_names_count_with_any_port() -> None:
    names = host_names("10.0.0.7", 443, ["console.example"], has_tls=True)
    for host in ("10.0.0.7", "10.0.0.7:443", "console.example", "Console.Example:8443"):
        assert names.has(host)
    assert not names.has("localhost:443")
    assert not host_names("0.0.0.0", 443, ["console.example"], has_tls=True).has("evil.example")
    assert host_names("0.0.0.0", 443, has_tls=True).has("any.example")


def test_only_pages_of_the_console_have_its_origin() -> None:
    names = host_names("127.0.0.1", 8088, ["console.example"], has_tls=False)
    assert names.is_own_origin("http://localhost:8088", "localhost:8088")
    assert names.is_own_origin("https://console.example", "127.0.0.1:8088")
    for origin in ("http://localhost:9999", "http://evil.example", "null", "", "http://[::1"):
        assert not names.is_own_origin(origin, "localhost:8088"), origin


def test_roles_are_read_and_the_command_line_counts_first() -> None:
    roles = parse_roles(["bob=viewer", "a=b=admin"], 'alice = "operator"\nbob = "admin"', "f")
    table = RoleTable(by_user=roles, default=UserRole.VIEWER)
    assert table.role_of("alice") is UserRole.OPERATOR
    assert table.role_of("bob") is UserRole.VIEWER
    assert table.role_of("a=b") is UserRole.ADMIN
    assert table.role_of("eve") is UserRole.VIEWER


@pytest.mark.parametrize(
    ("texts", "file"),
    [(["bob"], ""), (["=admin"], ""), (["bob=root"], ""), ([], "bob = 1"), ([], "bob = root")],
)
def test_wrong_roles_are_refused(texts: list[str], file: str) -> None:
    with pytest.raises(ConfigError, match="--role"):
        parse_roles(texts, file, "f")


@pytest.mark.parametrize("texts", [[], ["proxy"], ["10.0.0.0/99"], ["10.0.0.7/8"]])
def test_wrong_proxy_addresses_are_refused(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="--proxy-address"):
        parse_networks(texts)


@pytest.mark.parametrize(
    "text",
    [
        "//evil.example",
        "/\\evil.example",
        "http://evil.example",
        "javascript:alert(1)",
        "/a\nb",
        "/login",
        "",
        "x",
        "/" + "a" * 9_999,
    ],
)
def test_a_login_leads_to_the_console_only(text: str) -> None:
    assert safe_next(text) == "/"


def test_a_login_leads_to_the_page_that_was_asked_for() -> None:
    assert safe_next("/topics/a%2Fb?q=x") == "/topics/a%2Fb?q=x"


def kind(
    host: str = "127.0.0.1", *, login: bool = False, header: str = "", own: bool = False
) -> AccessKind:
    settings = {"sasl.mechanism": "PLAIN"} if own else {}
    return access_kind(wants_login=login, proxy_header=header, host=host, own_login=settings)


def test_the_way_in_follows_from_address_and_login() -> None:
    assert kind() is AccessKind.OPEN
    assert kind(own=True) is AccessKind.KEY
    assert kind(login=True) is AccessKind.LOGIN
    assert kind("10.0.0.7") is AccessKind.LOGIN
    assert kind("10.0.0.7", header="x-user") is AccessKind.PROXY
    with pytest.raises(ConfigError, match="excludes"):
        kind(login=True, header="x-user")


@pytest.mark.parametrize("way", AccessKind)
def test_other_addresses_than_loopback_need_tls(way: AccessKind) -> None:
    check_address(way, "127.0.0.1", has_tls=False)
    check_address(way, "10.0.0.7", has_tls=True)
    for host in ("10.0.0.7", "0.0.0.0", "::"):
        with pytest.raises(ConfigError, match="tls-certificate"):
            check_address(way, host, has_tls=False)
    with pytest.raises(ConfigError, match="must be an IP address"):
        check_address(way, "console.example", has_tls=True)


def test_logins_of_users_take_no_secret_of_the_console() -> None:
    own = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "console",
        "sasl.password": "secret",
    }
    found = user_security(own)
    assert (found.sasl_username, found.sasl_password) == (None, None)
    assert found.sasl_mechanism == "SCRAM-SHA-256"
    assert user_security({**own, "sasl.mechanism": "PLAIN"}).sasl_mechanism == "SCRAM-SHA-512"
    for protocol in ("PLAINTEXT", "SSL"):
        with pytest.raises(ConfigError, match="--login"):
            user_security({"security.protocol": protocol})
