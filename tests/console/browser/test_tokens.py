"""The page of delegation tokens, in a cluster with logins: other connections may not see tokens."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
import trio

from ottla.client.admin import Admin, open_admin
from tests.cluster.conftest import Processes, make_processes, security_of
from tests.console.browser.conftest import WAIT_MS, open_console
from tests.console.browser.watched_page import WatchedPage

T = TypeVar("T")

SETTINGS: dict[str, Any] = {
    "delegation.token.secret.key": "a secret of the test",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Provide a cluster that requires logins."""
    own = make_processes(tmp_path_factory.mktemp("secure"), is_secure=True, **SETTINGS)
    try:
        own.start()
        yield own
    finally:
        own.stop_all()


@pytest.fixture
def secure_console(chromium: Any, secure: Processes) -> Iterator[WatchedPage]:
    """Provide a tab of a console that has the login of the cluster's administrator."""
    assert secure.plan.secure is not None
    login = str(secure.plan.secure.client_file)
    with open_console(secure.bootstrap, "--command-config", login) as address:
        where = urlsplit(address)
        context = chromium.new_context()
        context.set_default_timeout(WAIT_MS)
        tab = WatchedPage(context.new_page(), f"{where.scheme}://{where.netloc}")
        tab.tab.goto(address)  # with the key of the session
        yield tab
        context.close()
        assert not tab.problems, tab.problems


def test_a_token_is_renewed_and_ended(secure_console: WatchedPage, secure: Processes) -> None:
    async def with_admin(question: Callable[[Admin], Awaitable[T]]) -> T:
        async with open_admin(secure.bootstrap, security=security_of(secure.client)) as admin:
            return await question(admin)

    def ask(question: Callable[[Admin], Awaitable[T]]) -> T:
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(trio.run, with_admin, question).result()

    tab = secure_console
    tab.open("/tokens")
    assert "There is no delegation token" in tab.text()
    token = ask(lambda admin: admin.create_token(renewers=["bob"]))
    tab.open("/tokens")
    tab.submit("/tokens/renew", {"token": token.token_id})
    assert f"Token {token.token_id} was renewed." in tab.text()
    (renewed,) = ask(lambda admin: admin.describe_tokens())
    assert renewed.expires_ms >= token.expires_ms
    assert b64encode(renewed.hmac).decode() not in tab.tab.content()
    tab.submit("/tokens/end", {"token": token.token_id, "confirm": "end"})
    assert f"Token {token.token_id} has ended." in tab.text()
    assert ask(lambda admin: admin.describe_tokens()) == []
