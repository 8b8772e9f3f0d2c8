"""The way of a reader who does not know the console: from the overview, by at most three links with
the texts that the pages show, to the explanation of each of the 20 causes.

Other tests make each cause and check that the explanation names it: `tests/insight/rules`,
`tests/insight/test_answers_of_a_cluster.py` and `tests/cluster/operations/test_explanations.py`.
"""

from collections.abc import AsyncIterator
from html.parser import HTMLParser

import pytest
import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_quotas import QuotaChange
from ottla.client.testing import open_test_cluster
from ottla.console.links import address
from ottla.model.ids import TopicPartition
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tests.console.console_fixture import Browser, open_browser

TIMEOUT_S = 60
CLICKS_MAX = 3
TOPIC = "orders-eu"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}

DENIAL = ("Users", "explain", f"read {TOPIC}")
DENIED = ("denial", {"user": "alice", "operation": "read", "topic": TOPIC})
QUOTAS = ("Quotas", "What is throttled?")
LAG = ("Groups", "billing", "Why is it behind?")
BEHIND = ("lag", {"group": "billing"})
UNAVAILABLE = ("Quorum", "Why are partitions unavailable?")
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, dict[str, str]]]] = {
    "an ACL of another prefix": (DENIAL, DENIED),
    "an ACL of another host": (DENIAL, DENIED),
    "an ACL that denies": (DENIAL, DENIED),
    "producer_byte_rate": (QUOTAS, ("throttle", {})),
    "consumer_byte_rate": (QUOTAS, ("throttle", {})),
    "request_percentage": (QUOTAS, ("throttle", {})),
    "controller_mutation_rate": (("Quotas", "explain"), ("throttle", {"client_id": "maker"})),
    "connection_creation_rate": (("Quotas", "explain"), ("throttle", {"ip": "10.0.0.7"})),
    "a throttle of leaders": (QUOTAS, ("throttle", {})),
    "a throttle of followers": (QUOTAS, ("throttle", {})),
    "a throttle of log directories": (QUOTAS, ("throttle", {})),
    "a slow consumer": (LAG, BEHIND),
    "a poison record": (LAG, BEHIND),
    "a hanging transaction": (LAG, BEHIND),
    "a stuck rebalance": (
        ("Groups", "billing", "Why does it rebalance?"),
        ("rebalance", BEHIND[1]),
    ),
    "a full disk": (("Moves", "Why are disks full?"), ("disk", {})),
    "a partition without leader": (UNAVAILABLE, ("unavailable", {})),
    "too few replicas in sync": (UNAVAILABLE, ("unavailable", {})),
    "an expired certificate": (UNAVAILABLE, ("unavailable", {})),
    "a lock of a share group": (
        ("Queues", "workers", "Why is it not delivered?"),
        ("delivery", {"group": "workers"}),
    ),
}
"""Texts of the links that lead to the explanation of each cause, and the question that it answers
with its parameters."""


class Links(HTMLParser):
    """Links of a page: the text that is shown, without the letters of the keyboard, and the
    address."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._href: str | None = None
        self._text: list[str] = []
        self._is_key = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_key |= tag == "kbd"
        if tag == "a":
            self._href, self._text = dict(attrs).get("href"), []

    def handle_endtag(self, tag: str) -> None:
        self._is_key &= tag != "kbd"
        if tag == "a" and self._href is not None:
            self.found.append((" ".join("".join(self._text).split()), self._href))
            self._href = None

    def handle_data(self, data: str) -> None:
        if not self._is_key:
            self._text.append(data)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with (
        open_test_cluster(settings=SETTINGS) as cluster,
        open_admin(cluster.bootstrap) as admin,
        open_browser(admin) as browser,
    ):
        await fill(admin)
        yield browser


async def fill(admin: Admin) -> None:
    """Create the things that have names: a user, a topic, groups and limits."""
    await admin.create_topic("clicks", partition_count=1)
    await admin.create_topic(TOPIC, partition_count=1)
    at = TopicPartition(TOPIC, 0)
    await admin.set_password("alice", "SCRAM-SHA-512", "a password of alice")
    await admin.create_acls(
        [
            AclEntry(
                resource_type=ResourceType.TOPIC,
                resource_name="orders-",
                pattern_type=PatternType.LITERAL,
                principal="User:alice",
                host="*",
                operation=AclOperation.READ,
                permission=AclPermission.ALLOW,
            )
        ]
    )
    await admin.alter_group_offsets("billing", {at: 0})
    await admin.alter_share_group_offsets("workers", {at: 0})
    maker, ip = QuotaEntity("client-id", False, "maker"), QuotaEntity("ip", False, "10.0.0.7")
    await admin.alter_quotas(
        [
            QuotaChange((maker,), {"controller_mutation_rate": 1.0}),
            QuotaChange((ip,), {"connection_creation_rate": 2.0}),
        ]
    )


async def links_of(browser: Browser, where: str) -> list[tuple[str, str]]:
    links = Links()
    links.feed(await browser.get(where))
    return links.found


async def test_each_cause_is_three_links_away(browser: Browser) -> None:
    assert len(WAYS) == 20
    with trio.fail_after(TIMEOUT_S):
        seen: dict[str, list[tuple[str, str]]] = {}
        for cause, (texts, (question, values)) in WAYS.items():
            assert len(texts) <= CLICKS_MAX, cause
            wanted = address(f"/explain/{question}", {}, values)
            places = ["/"]
            for text in texts:
                found = []
                for place in places:
                    if place not in seen:
                        seen[place] = await links_of(browser, place)
                    found += [href for shown, href in seen[place] if shown == text]
                assert found, f"{cause}: no link {text!r} on {places}"
                # Rows of a table may have links with the same text.
                places = list(dict.fromkeys(found))
            assert wanted in places, (cause, wanted, places)
            assert "Explain: " in await browser.get(wanted)


async def test_topics_of_almost_matching_acls_are_offered_first(browser: Browser) -> None:
    html = await browser.get("/explain/denial?user=alice")
    assert 0 < html.index(f"read {TOPIC}") < html.index("read clicks")
    html = await browser.get("/explain/denial?user=alice&q=clicks")
    assert f"read {TOPIC}" not in html
    html = await browser.get(f"/explain/denial?user=alice&operation=read&topic={TOPIC}")
    assert "orders-" in html.replace(TOPIC, "")
